"""What YARN's ResourceManager says of its NodeManagers, as amounts of nodes. Pure.

`scheduler_bridge.sinks.yarn` asks; `scheduler_bridge.ledger.keeper` leans on the answer. What
containers hold is what the ResourceManager counts as used. A node that it calls lost has no
containers any more. One that it does not know is another matter: a ResourceManager that has just
begun learns of containers as NodeManagers register, so for a while it knows less than runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from scheduler_bridge.ledger.amounts import NOTHING, larger
from scheduler_bridge.reconcile import Amount

MIB = 1 << 20
VCORE_MILLI = 1000
MOST_CORES, MOST_MB = 10**6, 10**9
"""No machine has more cores, or MiB of memory (a petabyte)."""
GONE = ("LOST", "DECOMMISSIONED", "SHUTDOWN", "REBOOTED")
"""States of a NodeManager whose containers the ResourceManager has written off."""
T = TypeVar("T")
GRAIN = Amount(VCORE_MILLI, MIB, 1, 1)


@dataclass(frozen=True, slots=True)
class NodeManager:
    """One line of ``/ws/v1/cluster/nodes``. ``id`` is host:port, as updates must name it."""

    id: str
    host: str
    state: str
    shows: Amount
    held: Amount
    containers: int
    odd: str = ""  # what of the line cannot be: then its figures are not believed

    @property
    def gone(self) -> bool:
        return self.state in GONE


@dataclass(frozen=True, slots=True)
class Answer:
    """One look at a ResourceManager; another ``started_ms`` (its clock) is another run of it."""

    started_ms: int
    nodes: tuple[NodeManager, ...]
    containers_waiting: int


@dataclass(frozen=True, slots=True)
class YarnNode:
    """What is known of one of our nodes; ``id`` is empty where no NodeManager is there now."""

    id: str
    shows: Amount
    held: Amount


@dataclass(slots=True)
class YarnView:
    """The last answer by our node names; so long as ``learn_ms`` a new run may know too little."""

    learn_ms: int = 10_000
    nodes: dict[str, YarnNode] = field(default_factory=dict)
    waits: bool = False
    unknown: frozenset[str] = frozenset()
    odd: dict[str, str] = field(default_factory=dict)
    """NodeManagers whose figures cannot be, and why; what they held before stands."""
    _started_ms: int = -1
    _learns_until_ms: int = 0
    _absent_since_ms: dict[str, int] = field(default_factory=dict)

    def take(self, answer: Answer, known: Iterable[str], mono_ms: int) -> None:
        """Fold one look; ``known``: our node names. ``mono_ms``: a clock that only grows."""
        if answer.started_ms != self._started_ms:
            if self._started_ms >= 0:
                self._learns_until_ms = mono_ms + self.learn_ms
            self._started_ms = answer.started_ms
        learns = mono_ms < self._learns_until_ms
        self.waits = answer.containers_waiting > 0
        names = set(known)
        by_name = newest(answer.nodes, names)
        self.unknown = frozenset(
            one.id for one in answer.nodes if not one.gone and name_of(one, names) is None
        )
        self.odd = {one.id: one.odd for one in answer.nodes if one.odd}
        found: dict[str, YarnNode] = {}
        for name, before in self.nodes.items():
            if name not in by_name and self._still_there(name, mono_ms):
                found[name] = YarnNode("", NOTHING, before.held)
        for name, one in by_name.items():
            self._absent_since_ms.pop(name, None)
            if one.gone:
                found[name] = YarnNode("", NOTHING, NOTHING)
                continue
            if one.odd:
                stands = self.nodes.get(name, YarnNode("", NOTHING, NOTHING))
                found[name] = YarnNode("", NOTHING, stands.held)
                continue
            held = one.held
            if learns and name in self.nodes:
                held = larger(held, self.nodes[name].held)
            found[name] = YarnNode(one.id, one.shows, held)
        self.nodes = found

    def _still_there(self, name: str, mono_ms: int) -> bool:
        """A node that is in no list: its containers are believed to run for ``learn_ms``."""
        since_ms = self._absent_since_ms.setdefault(name, mono_ms)
        if mono_ms < max(since_ms + self.learn_ms, self._learns_until_ms):
            return True
        del self._absent_since_ms[name]
        return False


def newest(nodes: Iterable[NodeManager], known: set[str]) -> dict[str, NodeManager]:
    """NodeManagers by our names. A lost one beside a live one of the same host does not count."""
    found: dict[str, NodeManager] = {}
    for one in sorted(nodes, key=lambda one: (one.gone, one.id), reverse=True):
        name = name_of(one, known)
        if name is not None:
            found[name] = one
    return found


def name_of(node: NodeManager, known: set[str]) -> str | None:
    """Our name of a NodeManager's host: the same, or its first label."""
    for name in (node.host, node.host.partition(".")[0]):
        if name in known:
            return name
    return None


class _Line(msgspec.Struct):
    id: str
    host: str = msgspec.field(name="nodeHostName")
    state: str
    containers: int = msgspec.field(name="numContainers", default=0)
    used_mb: int = msgspec.field(name="usedMemoryMB", default=0)
    free_mb: int = msgspec.field(name="availMemoryMB", default=0)
    used_cores: int = msgspec.field(name="usedVirtualCores", default=0)
    free_cores: int = msgspec.field(name="availableVirtualCores", default=0)


class _Lines(msgspec.Struct):
    node: list[_Line] | None = None


class _Nodes(msgspec.Struct):
    nodes: _Lines | None = None


class _Info(msgspec.Struct):
    started_ms: int = msgspec.field(name="startedOn")
    ha_state: str = msgspec.field(name="haState", default="ACTIVE")


class _Cluster(msgspec.Struct):
    info: _Info = msgspec.field(name="clusterInfo")


class _Pending(msgspec.Struct):
    containers: int = msgspec.field(name="containersPending", default=0)


class _Metrics(msgspec.Struct):
    metrics: _Pending = msgspec.field(name="clusterMetrics")


def read_nodes(said: Any) -> tuple[NodeManager, ...]:
    """The body of ``/ws/v1/cluster/nodes``, of any version. Raises ValueError.

    What a node shows is used plus available: 2.x has no total, and available goes below 0 when a
    node was made smaller than what runs there.
    """
    lines = _read(said, _Nodes).nodes
    return tuple(_node(one) for one in (lines.node if lines is not None else None) or ())


def read_started_ms(said: Any) -> int:
    """``startedOn`` of ``/ws/v1/cluster/info``, of a ResourceManager that is active.

    Raises ValueError: not such an answer, or one of a ResourceManager that stands by.
    """
    info = _read(said, _Cluster).info
    if info.ha_state != "ACTIVE":
        raise ValueError(f"its haState is {info.ha_state!r:.40}, not ACTIVE")
    return info.started_ms


def read_waiting(said: Any) -> int:
    """``containersPending`` of ``/ws/v1/cluster/metrics``. Raises ValueError."""
    return _read(said, _Metrics).metrics.containers


def update_of(amount: Amount) -> dict[str, Any]:
    """The body of an update: whole cores and MiB, rounded down; nothing is killed for it."""
    return {
        "resource": {
            "memory": amount.memory_bytes // MIB, "vCores": amount.cpu_milli // VCORE_MILLI,
        },
        "overCommitTimeout": -1,
    }  # fmt: skip


def shown_as(amount: Amount) -> Amount:
    """An amount as a NodeManager can show it."""
    return Amount(amount.cpu_milli // VCORE_MILLI * VCORE_MILLI, amount.memory_bytes // MIB * MIB)


def _odd(line: _Line) -> str:
    """What cannot be; "" for a line whose figures may be so."""
    for name, figure, least, most in (
        ("usedVirtualCores", line.used_cores, 0, MOST_CORES),
        ("usedMemoryMB", line.used_mb, 0, MOST_MB),
        ("availableVirtualCores", line.free_cores, -MOST_CORES, MOST_CORES),
        ("availMemoryMB", line.free_mb, -MOST_MB, MOST_MB),
    ):
        if not least <= figure <= most:
            return f"{name} is {figure}, possible are {least} to {most}"
    return ""


def _node(line: _Line) -> NodeManager:
    odd = _odd(line)
    if odd:
        return NodeManager(line.id, line.host, line.state, NOTHING, NOTHING, line.containers, odd)
    used = Amount(line.used_cores * VCORE_MILLI, line.used_mb * MIB)
    shows = Amount(
        max(0, line.used_cores + line.free_cores) * VCORE_MILLI,
        max(0, line.used_mb + line.free_mb) * MIB,
    )
    return NodeManager(line.id, line.host, line.state, shows, used, line.containers)


def _read(said: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not an answer of a ResourceManager: {error}") from None
