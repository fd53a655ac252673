"""What a signal is: kernel files, a pure parser of their bytes, and the columns it fills.

A signal module has a ``NAME`` and ``SOURCES``. Its parsers take bytes and return one value a
column: an integer, or None where the kernel does not say (absent is never 0). They raise
ValueError for what they cannot read; the sampler counts it and goes on with the other signals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Value = int | None
Parse = Callable[..., tuple[Value, ...]]  # as many bytes arguments as the input has files


@dataclass(frozen=True, slots=True)
class NodeSource:
    """One file of the machine, by its path below the root."""

    columns: tuple[str, ...]
    file: str
    parse: Parse
    every_ms: int = 0  # at most this often; 0: every period


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
    every_ms: int = 0

    def input_of(self, version: int) -> Input | None:
        """None: that version cannot give these columns."""
        return self.v1 if version == 1 else self.v2


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
