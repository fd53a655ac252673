"""A partition folded under one policy, and what it came to: as recorded, and as supposed.

`streams.replay.what_if.run` asks `recorded` once and `supposed` for each other policy. Both go
through the live `Fold`; this hands it, sample by sample, what the twins make of what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agents import law
from agents.log import SampleEntry, SideRecord
from agents.state import PartitionState
from schemas import codec
from schemas.errors import BadRecord
from schemas.policy import Objective, Policy
from schemas.records import Ack, Inventory, PolicyRecord, Sli
from streams.replay.fold import Fold
from streams.replay.source import Source
from streams.replay.start import start_of
from streams.replay.what_if.examples import sentence_of
from streams.replay.what_if.pods import Offer
from streams.replay.what_if.result import Mark
from streams.replay.what_if.slo import Heard, Use
from streams.replay.what_if.standing import (
    CAPACITY,
    EVICTORS,
    SUPPRESS,
    Bound,
    Event,
    Log,
    Parting,
    events_of,
    standing_in,
)
from streams.replay.what_if.tally import ALLOW, Steps, Tally
from streams.replay.what_if.twin import Seen, Twin

INVENTORY, ACKS, SLIS = "inventory", "acks", "slis"
UNDONE = ("refused", "failed")
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


@dataclass(slots=True)
class Recorded:
    """What the recorded policy came to, and all that is needed to set another beside it."""

    span: Span
    tally: Tally
    log: Log
    heard: list[Heard]
    thresholds: dict[str, list[tuple[int, int]]]  # node -> (offset, percent) as they changed
    above_us: dict[str, int]  # by them
    digests: dict[str, None] = field(default_factory=dict)  # of policies, in order
    ended: str = ""


@dataclass(slots=True)
class Supposed:
    """What another policy came to beside it."""

    tally: Tally
    heard: list[Heard]
    marks: dict[str, Mark]
    first: dict[str, Mark]  # of each decider
    sentences: dict[str, str]  # what it said there
    above_recorded_us: dict[str, int]  # by the recorded policy's threshold
    above_other_us: dict[str, int]  # by its own
    thresholds: dict[str, int]  # its own, of each node at the end
    digest: str = ""


class _World:
    """What both have in common: twins, tally, services, the fold."""

    def __init__(
        self, source: Source, span: Span, policy: PolicyRecord | None, known: dict[str, Inventory]
    ) -> None:
        self.span = span
        self.state: PartitionState = start_of(source, span.partition, span.before)
        self.tally = Tally(span.steps)
        self.tally.begin(standing_in(self.state))
        self.twins: dict[str, Twin] = {}
        self.heard: list[Heard] = []
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
        self.tally.close(max(self.span.end_ms, self.state.log_ms))
        for seat in self.state.seats.values():
            self.tally.labels[seat.name] = seat.labels


class _Recorded(_World):
    """Nothing is changed; all is noted."""

    def __init__(self, source: Source, span: Span, known: dict[str, Inventory]) -> None:
        super().__init__(source, span, None, known)
        self.log = Log()
        self.bounds: dict[str, Bound] = {
            node: value
            for (node, decider), value in standing_in(self.state).items()
            if decider == SUPPRESS and isinstance(value, Bound)
        }
        self.thresholds: dict[str, list[tuple[int, int]]] = {}
        self.above_us: dict[str, int] = {}

    def sample(self, entry: SampleEntry) -> SampleEntry:
        name = entry.sample.node.decode(errors="replace")
        twin = self.twin(name)
        _, interval = twin.look(entry.sample, self.bounds.get(name))
        if interval is not None:
            seen = twin.asis(interval)
            self.measured(name, seen, entry.log_ms)
            self._above(name, seen, entry.offset)
        return entry

    def _above(self, name: str, seen: Seen, offset: int) -> None:
        percent = self.threshold_of(name)
        held = self.thresholds.setdefault(name, [])
        if not held or held[-1][1] != percent:
            held.append((offset, percent))
        if above(seen, percent):
            self.above_us[name] = self.above_us.get(name, 0) + seen.interval.elapsed_us

    def side(self, record: SideRecord) -> SideRecord | None:
        if record.topic == INVENTORY and isinstance(record.record, Inventory):
            self.twin(record.record.node).known(record.record)
        elif record.topic == SLIS and isinstance(record.record, Sli):
            self.hear(record)
        return record

    def run(self, heed: Heed) -> Recorded:
        digests: dict[str, None] = {}
        for outputs in self.fold:
            self.tally.take(outputs)
            for event in events_of(outputs):
                self.log.add(event)
                if isinstance(event.value, Bound):
                    self.bounds[event.node] = event.value
            if self.state.policy_digest:
                digests[self.state.policy_digest] = None
            heed(self.fold.at)
        self.close()
        return Recorded(
            self.span, self.tally, self.log.sealed(), self.heard, self.thresholds, self.above_us,
            digests, self.fold.ended,
        )  # fmt: skip


class _Supposed(_World):
    """Behind each mark the node's samples and pods are the model's."""

    def __init__(
        self, source: Source, was: Recorded, policy: PolicyRecord, known: dict[str, Inventory]
    ) -> None:
        super().__init__(source, was.span, policy, known)
        self.was = was
        self.parting = Parting(was.log, self.state)
        self.modelled_ms: dict[str, int] = {}
        self._ordered_was: set[tuple[str, str]] = set()
        self._ordered: set[tuple[str, str]] = set()
        self._orders: set[str] = set()  # ids of what it ordered
        self._sentences: dict[str, str] = {}
        self._place: dict[str, int] = {}
        self.above_recorded_us: dict[str, int] = {}
        self.above_other_us: dict[str, int] = {}

    def sample(self, entry: SampleEntry) -> SampleEntry:
        name = entry.sample.node.decode(errors="replace")
        twin, sample = self.twin(name), entry.sample
        was = self.parting.was.get((name, SUPPRESS))
        would = self.parting.would.get((name, SUPPRESS))
        if was != would:
            twin.touched = True
        held = was if isinstance(was, Bound) else None
        values, interval = twin.look(sample, held)
        seen: Seen | None
        if twin.touched:
            self.modelled_ms.setdefault(name, entry.log_ms)
            bound = would if isinstance(would, Bound) else None
            sample, seen = twin.would(
                sample, values, interval, bound, entry.log_ms, same=was == would
            )
            entry = SampleEntry(entry.offset, entry.log_ms, sample)
        else:
            twin.pods.note(sample)
            seen = None if interval is None else twin.asis(interval)
        if seen is not None:
            self.measured(name, seen, entry.log_ms)
            self._above(name, seen, entry.offset)
        return entry

    def _above(self, name: str, seen: Seen, offset: int) -> None:
        elapsed_us = seen.interval.elapsed_us
        if above(seen, self._recorded_threshold(name, offset)):
            self.above_recorded_us[name] = self.above_recorded_us.get(name, 0) + elapsed_us
        if above(seen, self.threshold_of(name)):
            self.above_other_us[name] = self.above_other_us.get(name, 0) + elapsed_us

    def _recorded_threshold(self, name: str, offset: int) -> int:
        held = self.was.thresholds.get(name)
        if not held:
            return self.threshold_of(name)
        at = self._place.get(name, 0)
        while at + 1 < len(held) and held[at + 1][0] <= offset:
            at += 1
        self._place[name] = at
        return held[at][1]

    def side(self, record: SideRecord) -> SideRecord | None:
        said = record.record
        if record.topic == INVENTORY and isinstance(said, Inventory):
            shaped = self.twin(said.node).admit(said, self._offers(said.node), self.state.log_ms)
            return record if shaped is said else _with(record, shaped)
        if record.topic == ACKS and isinstance(said, Ack):
            return record if self._believed(said) else None
        if record.topic == SLIS and isinstance(said, Sli):
            self.hear(record)
        return record

    def _offers(self, node: str) -> tuple[Offer, Offer] | None:
        """What was and what would have been offered on a node, where they differ."""
        was, would = (side.get((node, CAPACITY)) for side in (self.parting.was, self.parting.would))
        if was is None or would is None or was == would:
            return None
        return was[:ALLOW], would[:ALLOW]

    def _believed(self, ack: Ack) -> bool:
        """Whether an ack is of what the other policy ordered too, or of nobody's order."""
        if ack.decider not in EVICTORS or not ack.command_id:
            return True
        if ack.outcome in UNDONE:
            for uid in ack.pods:
                self.twin(ack.node).pods.stayed(uid)
        return ack.command_id in self._orders

    def run(self, heed: Heed) -> Supposed:
        for outputs in self.fold:
            self.tally.take(outputs)
            self._orders |= {
                output.record.id
                for output in outputs
                if output.topic == "commands" and output.decider in EVICTORS
            }
            for was, would in self.parting.upto(self.fold.at, events_of(outputs)):
                self._order(was, would)
            for decider in self.parting.first.keys() - self._sentences.keys():
                said = [output.record for output in outputs]
                self._sentences[decider] = sentence_of(self.parting.first[decider], said)
            heed(self.fold.at)
        self.close()
        marks = {
            node: _since(mark, self.modelled_ms.get(node, -1))
            for node, mark in self.parting.marks.items()
        }
        return Supposed(
            self.tally, self.heard, marks, self.parting.first, self._sentences,
            self.above_recorded_us,
            self.above_other_us, {name: self.threshold_of(name) for name in self.tally.nodes},
            self.state.policy_digest,
        )  # fmt: skip

    def _order(self, was: list[Event], would: list[Event]) -> None:
        """Pods that only one of the two tells to leave."""
        one = {(event.node, uid): event for event in was for uid in _victims(event)}
        other = {(event.node, uid): event for event in would for uid in _victims(event)}
        for (node, uid), event in other.items():
            if (node, uid) not in one:
                rule = self.policy_of(node).eviction
                by_memory = event.decider == "evict_memory"
                grace_ms = rule.memory_grace_ms if by_memory else rule.grace_ms
                self.twin(node).leave(uid, event.log_ms + grace_ms)
        self._ordered |= other.keys()
        for node, uid in one.keys() - self._ordered:
            self.twin(node).live_on(uid)
        self._ordered_was |= one.keys()


def recorded(
    source: Source, span: Span, known: dict[str, Inventory], heed: Heed
) -> Recorded:  # fmt: skip
    """Fold a partition as it was. Raises CannotReplay."""
    return _Recorded(source, span, known).run(heed)


def supposed(
    source: Source, was: Recorded, policy: PolicyRecord, known: dict[str, Inventory], heed: Heed
) -> Supposed:
    """Fold it under another policy. Raises CannotReplay."""
    return _Supposed(source, was, policy, known).run(heed)


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


def _victims(event: Event) -> tuple[str, ...]:
    """Pods that an order names in earnest."""
    if event.decider not in EVICTORS or event.value[0]:
        return ()
    return event.value[1:]


def _with(record: SideRecord, said: Inventory) -> SideRecord:
    return SideRecord(
        record.topic, record.partition, record.offset, record.key, said, record.log_ms
    )


def _since(mark: Mark, modelled_ms: int) -> Mark:
    return mark if modelled_ms < 0 else Mark(
        mark.node, mark.partition, mark.offset, mark.log_ms, mark.decider, mark.was, mark.would,
        modelled_ms,
    )  # fmt: skip
