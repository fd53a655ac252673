"""Where a simulated node's real parts meet its fake kernel: quota, groups, kills.

`tests.sim.node` puts them into `Obey` in place of what writes kernel files. The orders themselves
(`Evictions`: who is begun, killed, tried again, answered) are the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from node_agent.actuators.beneath import Parts
from node_agent.actuators.cpuset import Cpus
from node_agent.actuators.evict import Evicted
from node_agent.actuators.pods import BestEffortPod
from node_agent.evictions import Evictions
from node_agent.executors.cri import Runtime
from node_agent.executors.going import Order
from node_agent.hold import Hold
from node_agent.journal import Journal
from node_agent.obey import Obey
from schemas.records import Ack
from tests.sim.kernel import Kernel

ROOT = "best_effort"


class Machine(Protocol):
    """The simulated node, as hands see it."""

    kernel: Kernel
    hearing: str

    @property
    def stubborn(self) -> bool: ...
    def wrote_quota(self) -> None: ...
    def killed(self, uid: str, *, was_there: bool) -> None: ...


class FakeHold(Hold):
    """The same interface, straight into the fake kernel."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.drift = 0
        self.trees: Any = None

    def bind(self, cpus: Cpus) -> Cpus:
        """None of them: a node without an actuator for CPU sets."""
        return cpus[:0]

    def unbind(self) -> None:
        """Nothing is bound."""

    def release(self) -> list[str]:
        self.quota(None)
        return []

    def in_force(self) -> int:
        return self._machine.kernel.quota_milli

    def quota(self, allow_milli: int | None) -> int:
        kernel = self._machine.kernel
        wanted = -1 if allow_milli is None else allow_milli
        if wanted != kernel.quota_milli:
            kernel.quota_milli = wanted
            self._machine.wrote_quota()
        return kernel.quota_milli

    def idle(self) -> None:
        """The fake kernel gives best-effort work the lowest weight anyway."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """The best-effort subtree: a group a pod, with one process in it."""

    kernel: Kernel
    version: int = 1

    def identity(self, group: Parts) -> int | None:
        return _number(group) if group[-1] in self.kernel.pods else None

    def processes(self, group: Parts) -> set[int]:
        return {_number(group)} if group[-1] in self.kernel.pods else set()


@dataclass(frozen=True, slots=True)
class FakeTrees:
    """As `Trees`."""

    cpu: _Groups
    unified: None = None
    root: str = ROOT

    @classmethod
    def of(cls, kernel: Kernel) -> FakeTrees:
        return cls(_Groups(kernel))


class FakeEvictions(Evictions):
    """Kills reach the fake kernel; whatever they do is some order's doing."""

    machine: Machine

    async def _kill(self, order: Order, trees: Any) -> list[Ack]:
        """The witness is told for which order, also where it is tried again later."""
        before = self.machine.hearing
        self.machine.hearing = "" if order.local else order.command.id
        try:
            return await super()._kill(order, trees)
        finally:
            self.machine.hearing = before

    def _end_pod(self, _trees: Any, victim: BestEffortPod) -> Evicted:
        if self.machine.stubborn:
            return Evicted(1, empty=False, took_us=0)
        was_there = self.machine.kernel.kill(victim.uid)
        self.machine.killed(victim.uid, was_there=was_there)
        return Evicted(int(was_there), empty=True, took_us=0)


def put_on(obey: Obey, journal: Journal, machine: Machine) -> None:
    """These hands instead of those that write kernel files."""
    obey.hold = FakeHold(machine)
    evictions = FakeEvictions(
        journal, obey.answers, obey.lease, obey.isolation, lambda: machine.kernel.mono_us,
        Runtime(), lambda _ms: None, dry_run=False,
    )  # fmt: skip
    evictions.machine = machine
    obey.evictions = evictions


def _number(group: Parts) -> int:
    """One of its own for each pod, whose uid is used once."""
    return crc32(group[-1].encode())
