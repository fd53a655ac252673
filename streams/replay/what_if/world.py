"""A partition folded by the live `Fold` under one policy: what both sides have in common.

`streams.replay.what_if.recorded` and `.supposed` hand the fold, sample by sample and record by
record, what their twins make of what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agents import law
from agents.log import Output, SampleEntry, SideRecord
from agents.state import PartitionState
from schemas import codec
from schemas.errors import BadRecord
from schemas.policy import Objective, Policy
from schemas.records import Inventory, PolicyRecord, Sli
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.fold import Fold
from streams.replay.start import start_of
from streams.replay.what_if.slo import Heard, Use
from streams.replay.what_if.standing import (
    standing_in,
)
from streams.replay.what_if.tally import Steps, Tally
from streams.replay.what_if.twin import Seen, Twin

INVENTORY, ACKS, SLIS = "inventory", "acks", "slis"
Heed = Callable[[int], None]
"""Told the offset that was folded, now and then."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of a partition is folded: from an image below ``before``, up to ``upto``."""

    partition: int
    before: int | None
    upto: int | None
    steps: Steps
    end_ms: int


class World:
    """What both have in common: twins, tally, services, the fold."""

    def __init__(
        self, source: Source, span: Span, policy: PolicyRecord | None, known: dict[str, Inventory]
    ) -> None:
        self.source, self.span = source, span
        self.state: PartitionState = start_of(source, span.partition, span.before)
        self.tally = Tally(span.steps)
        self.tally.begin(standing_in(self.state))
        self.twins: dict[str, Twin] = {}
        self.heard: list[Heard] = []
        self.ended = ""  # why it ended before all was folded
        self._uses: dict[str, Use] = {}
        for name, inventory in known.items():
            self.twin(name).known(inventory)
        self.fold = Fold(
            source, span.partition, self.state, upto=span.upto, policy=policy,
            reshape=self.sample, reshape_side=self.side, waves=True,
        )  # fmt: skip

    def sample(self, entry: SampleEntry) -> SampleEntry:
        raise NotImplementedError

    def side(self, record: SideRecord) -> SideRecord | None:
        raise NotImplementedError

    def batches(self) -> Iterator[list[Output]]:
        """Outputs, as the fold gives them; a hole is where it ends, unless nothing lies before it.

        Raises CannotReplay.
        """
        began = self.fold.at
        try:
            yield from self.fold
        except CannotReplay as error:
            if self.fold.at == began:
                raise
            self.ended = str(error)
        if self.fold.ended:
            self.ended = f"partition {self.span.partition} ends {self.fold.ended}"

    def twin(self, name: str) -> Twin:
        found = self.twins.get(name)
        if found is None:
            found = self.twins[name] = Twin(name)
        return found

    def policy_of(self, node: str) -> Policy:
        """As it holds on a node now."""
        seat = self.state.seats.get(node.encode())
        return self.state.law if seat is None else law.of(self.state, seat.row)

    def threshold_of(self, node: str) -> int:
        """Percent of capacity above which a node's use counts."""
        return self.policy_of(node).suppress.threshold_percent

    def measured(self, node: str, seen: Seen, log_ms: int) -> None:
        """One interval of one node, as it is told to the law."""
        self.tally.of(node).measured(seen, log_ms)
        use = self._uses.get(node)
        if use is None:
            use = self._uses[node] = Use()
        use.note(log_ms, seen.node_milli, seen.interval.elapsed_us)

    def hear(self, side: SideRecord) -> None:
        """One report of a service."""
        said: Sli = side.record
        use, at = self._uses.get(said.node), -1
        if use is not None:
            end_ms = side.log_ms if side.log_ms >= 0 else self.state.log_ms
            at = use.bin(end_ms, said.window_ms, self.twin(said.node).capacity_milli)
        self.heard.append(Heard(said.node, said, at, self._objective(said)))

    def _objective(self, said: Sli) -> Objective | None:
        found = self.policy_of(said.node).slo_guard.objectives
        return next((one for one in found if one.workload == said.workload), None)

    def close(self) -> None:
        """The end: what stands stood, and the nodes' labels are as they are now."""
        end_ms = self.state.log_ms if self.ended else max(self.span.end_ms, self.state.log_ms)
        self.tally.close(end_ms)
        for seat in self.state.seats.values():
            self.tally.labels[seat.name] = seat.labels


def known_before(source: Source, span: Span) -> dict[str, Inventory]:
    """What nodes had said of themselves before the fold begins; an image holds no pods' facts."""
    state = start_of(source, span.partition, span.before)
    upto = state.side.get(f"{INVENTORY}/{span.partition}", -1)
    newest: dict[bytes, Any] = {}
    if upto >= 0:
        for record in source.records(INVENTORY, span.partition, -1, upto):
            newest[record.key or b""] = record.value
    found: dict[str, Inventory] = {}
    for value in newest.values():
        try:
            inventory = codec.decode(Inventory, value or b"")
        except BadRecord:
            continue
        found[inventory.node] = inventory
    return found


def above(seen: Seen, percent: int) -> bool:
    """Whether the node used more than the law's share of its capacity."""
    return seen.node_milli > seen.interval.capacity_milli * percent // 100
