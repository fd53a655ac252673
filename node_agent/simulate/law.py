"""The local law of all simulated nodes: `agents.step` on their own samples, in one state.

Every node of a real fleet keeps a state with itself alone in it (`node_agent.local_law`). The rules
that a node obeys from its own law, suppress and memory's last gate, look at one node at a time, so
one state with all nodes says the same, at a fraction of the cost. What it says to topics other
than `commands` is nobody's business and dropped, as on a real node.
"""

from __future__ import annotations

from typing import Any

from agents import law
from agents.log import LAW_VERSION, Entry, SampleEntry, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas.packed import PackedSample
from schemas.policy import Policy
from schemas.records import Command, Tick

PARTITION, INCARNATION = 0, 0


class FleetLaw:
    """A log of its own: offsets count up from 0, log time is the monotonic clock."""

    def __init__(self) -> None:
        self._state = PartitionState(PARTITION, INCARNATION)
        self._offset = 0
        self._waiting: list[SideRecord] = []
        self._vector: dict[str, int] = {}

    def policy(self, node: str) -> Policy | None:
        """The policy of a node, all layers laid; None before any was admitted."""
        return law.of_node(self._state, node)

    def hear(self, topic: str, key: bytes, record: Any) -> None:
        """A side record (inventory, policies, acks), admitted by the next tick."""
        place = f"{topic}/{PARTITION}"
        self._vector[place] = self._vector.get(place, -1) + 1
        self._waiting.append(SideRecord(topic, PARTITION, self._vector[place], key, record))

    def tick(self, mono_us: int) -> None:
        """Time passes, and what was heard is admitted."""
        side = tuple(sorted(self._waiting, key=lambda each: (each.topic, each.offset)))
        self._waiting = []
        tick = Tick(PARTITION, INCARNATION, LAW_VERSION, dict(self._vector))
        self._fold([TickEntry(self._next(), mono_us // 1000, tick, side)])

    def fold(self, raws: list[bytes], mono_us: int) -> dict[str, list[Command]]:
        """Fold packed samples of nodes; the commands by node."""
        log_ms = mono_us // 1000
        return self._fold([SampleEntry(self._next(), log_ms, PackedSample(raw)) for raw in raws])

    def _fold(self, batch: list[Entry]) -> dict[str, list[Command]]:
        commands: dict[str, list[Command]] = {}
        for output in step(self._state, batch):
            if isinstance(output.record, Command):
                commands.setdefault(output.record.node, []).append(output.record)
        return commands

    def _next(self) -> int:
        self._offset += 1
        return self._offset - 1
