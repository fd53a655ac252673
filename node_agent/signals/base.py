"""What a signal is: kernel files, a pure parser of their bytes, and the columns it fills.

A signal module has a ``NAME`` and ``SOURCES``. Its parsers take bytes and return one value a
column: an integer, or None where the kernel does not say (absent is never 0). They raise
ValueError for what they cannot read; it is counted, and the other signals go on. How often a
source is read follows from its columns (`schemas.columns`).

What needs more than one file at a time, or remembers, is an object with a method: a `NodeReader`
for the machine, a `KeptSignal` for the pods, which visits few of them a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node_agent.cgroup.handles import GroupFiles
from schemas.records import PodFact

Value = int | None
Parse = Callable[..., tuple[Value, ...]]  # as many bytes arguments as the input has files
There = Callable[[str], bool]  # root of the file system, no slash at its end -> can be had here


def everywhere(_root: str) -> bool:
    """Every machine can have it: what one lacks is known by reading."""
    return True


@dataclass(frozen=True, slots=True)
class NodeSource:
    """One file of the machine, by its path below the root."""

    columns: tuple[str, ...]
    file: str
    parse: Parse
    there: There = everywhere


@dataclass(frozen=True, slots=True)
class Input:
    """The files, by name in `node_agent.cgroup.files`, that one version needs, and their parser."""

    files: tuple[str, ...]
    parse: Parse


@dataclass(frozen=True, slots=True)
class GroupSource:
    """One or more files of each group; the version of the first file chooses the input."""

    columns: tuple[str, ...]
    v1: Input | None
    v2: Input | None
    there: There = everywhere


class NodeSignal(Protocol):
    """A module that fills node columns."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  (a module's constant)

    @property
    def SOURCES(self) -> tuple[NodeSource, ...]: ...  # noqa: N802  (same)


class GroupSignal(Protocol):
    """A module that fills pod columns, or node columns from the best-effort root."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  (a module's constant)

    @property
    def SOURCES(self) -> tuple[GroupSource, ...]: ...  # noqa: N802  (same)


class NodeReader(Protocol):
    """Several files of the machine as one figure; its columns are read and sent together."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def there(self) -> bool:
        """Whether this machine has it now; asked once a minute."""

    def read(self, now_us: int) -> tuple[Value, ...] | None:
        """One value a column, None: none of them. Raises OSError and ValueError."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one sweep, side by side; ``facts`` in the order of ``files``."""

    files: Sequence[GroupFiles]
    facts: Sequence[PodFact]


class KeptSignal(Protocol):
    """Visits few pods a sweep and keeps what it found; sent when its columns have their turn."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def reason(self) -> str:
        """Why it has nothing to say, as `node_agent.cgroup.handles.Reason`; "": it has."""

    def visit(self, pods: Pods, now_us: int, oom_kills: Value) -> bool:
        """Go round a little; whether a value has news that must not wait for its turn.

        ``oom_kills``: the machine's own count in this sweep, None when it was not asked.
        """

    def values(self, column: str, pods: Pods) -> list[Value]:
        """One value a pod, None for what is not known yet."""

    def forget(self, groups: set[str]) -> None:
        """These groups have left the pod set."""

    def close(self) -> None:
        """Give back what is held open."""


def zone_there(zone: int) -> There:
    """Whether a machine has this NUMA node, and more than one at all."""

    def there(root: str) -> bool:
        nodes = Path(f"{root}/sys/devices/system/node")
        found = {path.name for path in nodes.glob("node[0-9]*")}
        return len(found) > 1 and f"node{zone}" in found

    return there


def number_after(data: bytes, key: bytes, begin: int = 0) -> Value:
    r"""The decimal after the first ``key`` from ``begin`` on, to the line's end; None: no such key.

    ``key`` includes what precedes it on the line before ("\nnr_throttled "), so that no longer
    name matches. Raises ValueError when something else than a number follows.
    """
    at = data.find(key, begin)
    if at < 0:
        return None
    start = at + len(key)
    end = data.find(b"\n", start)
    return int(data[start:end] if end >= 0 else data[start:])
