"""What `step` is fed and what it answers: entries of one partition's log, and outputs.

The callers of `step` (worker, node agent, replay, simulation) build these; `agents` only reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.packed import PackedSample
from schemas.records import Tick

LAW_VERSION = 6
"""Byte equality of outputs holds within one law version; raise it with any change of results."""


@dataclass(frozen=True, slots=True)
class SampleEntry:
    """A parsed sample at ``offset``; ``log_ms`` is the broker's append time."""

    offset: int
    log_ms: int
    sample: PackedSample


@dataclass(frozen=True, slots=True)
class SideRecord:
    """A record of a side topic that a tick admitted; ``record`` None: a tombstone.

    ``log_ms``: the broker's append time; -1: not known.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    record: Any
    log_ms: int = -1


@dataclass(frozen=True, slots=True)
class TickEntry:
    """A tick and the side records up to its vector that were not admitted before, sorted."""

    offset: int
    log_ms: int
    tick: Tick
    side: tuple[SideRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One record to publish; key (partition, ``offset``, ``node``, ``decider``, topic)."""

    topic: str
    key: bytes
    record: Any
    offset: int
    node: str
    decider: str


Entry = SampleEntry | TickEntry
