"""The node deciding for itself: the same `agents.step`, on its own samples and its own ticks.

`node_agent.loop` folds each sample here once a period. The node keeps a log of its own: offsets
count up from 0, log time is the monotonic clock, side records (policies as they arrive, the own
inventory, the own acks) are admitted by the next tick. What comes back are commands to itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from agents import law
from agents.log import LAW_VERSION, Entry, SampleEntry, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from node_agent import plain_file
from schemas import codec
from schemas.errors import BadRecord
from schemas.packed import PackedSample
from schemas.policy import Policy
from schemas.records import Ack, Command, Inventory, PolicyRecord, Tick

PARTITION, INCARNATION = 0, 0
MAX_BYTES = 16 << 20  # of the policies on disk
TICK_SLACK_MS = 50  # a beat that comes a little early still ticks
QUIET_TICK_MS = 10_000
"""Between ticks that admit nothing: what they decide (capacity, reports) is the centre's to say,
and what protects the node is decided at samples."""


class LocalLaw:
    """State of one partition with one node in it."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._state = PartitionState(PARTITION, INCARNATION, fast_only=True)
        self._offset = 0
        self._ticked_ms: int | None = None
        self._waiting: list[SideRecord] = []
        self._vector: dict[str, int] = {}

    @property
    def policy(self) -> Policy | None:
        """The policy of this node, all layers laid; None before any was admitted."""
        return law.of_node(self._state, self._node)

    def hear_policy(self, key: bytes, record: PolicyRecord | None) -> None:
        """A record of the topic `policies`; None is a tombstone."""
        self._hear("policies", key, record)

    def hear_inventory(self, record: Inventory) -> None:
        """Who is on this machine now."""
        self._hear("inventory", self._node.encode(), record)

    def hear_ack(self, ack: Ack) -> None:
        """What is in force here, as the centre will hear it too."""
        self._hear("acks", self._node.encode(), ack)

    def fold(self, raw: bytes, mono_us: int) -> list[Command]:
        """Fold one packed sample and, when one is due, a tick; the commands for this node."""
        log_ms = mono_us // 1000
        batch: list[Entry] = [SampleEntry(self._next(), log_ms, PackedSample(raw))]
        if self._tick_due(log_ms):
            self._ticked_ms = log_ms
            tick = Tick(PARTITION, INCARNATION, LAW_VERSION, dict(self._vector))
            side, self._waiting = tuple(sorted(self._waiting, key=_place)), []
            batch.append(TickEntry(self._next(), log_ms, tick, side))
        return [
            output.record
            for output in step(self._state, batch)
            if isinstance(output.record, Command) and output.record.node == self._node
        ]

    def _tick_due(self, log_ms: int) -> bool:
        if self._ticked_ms is None:
            return True
        period_ms = self._state.law.loop.tick_ms
        if not self._waiting:
            period_ms = max(period_ms, QUIET_TICK_MS)
        return log_ms - self._ticked_ms >= period_ms - TICK_SLACK_MS

    def _hear(self, topic: str, key: bytes, record: Any) -> None:
        place = f"{topic}/{PARTITION}"
        self._vector[place] = self._vector.get(place, -1) + 1
        self._waiting.append(SideRecord(topic, PARTITION, self._vector[place], key, record))

    def _next(self) -> int:
        self._offset += 1
        return self._offset - 1


class PolicyShelf:
    """The newest record of each policy, on disk, for a start while the broker is away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, str] = {}

    def load(self) -> list[tuple[bytes, PolicyRecord]]:
        """What was kept; a file that cannot be read counts as none."""
        try:
            held = orjson.loads(plain_file.read(str(self._path), MAX_BYTES, follow=False))
            found = [
                (key.encode(), codec.decode(PolicyRecord, text.encode()))
                for key, text in held.items()
            ]
        except (OSError, ValueError, AttributeError, BadRecord):
            return []
        self._held = held
        return found

    def keep(self, key: bytes, record: PolicyRecord | None) -> None:
        """Remember a record, or forget it at its tombstone; written whole or not at all."""
        name = key.decode(errors="replace")
        if record is None:
            self._held.pop(name, None)
        else:
            self._held[name] = codec.encode(record).decode()
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(orjson.dumps(self._held))
        os.replace(fresh, self._path)


def _place(side: SideRecord) -> tuple[str, int, int]:
    return side.topic, side.partition, side.offset
