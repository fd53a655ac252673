"""A partition as it would have been under another policy; behind each mark it is the model's.

Called by `streams.replay.what_if.run` for each policy that is asked about.
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.log import SampleEntry, SideRecord
from schemas.records import Ack, Inventory, PolicyRecord, Sli
from streams.recording.source import Source
from streams.replay.what_if.examples import sentence_of
from streams.replay.what_if.pods import Offer
from streams.replay.what_if.recorded import Recorded
from streams.replay.what_if.result import Mark
from streams.replay.what_if.slo import Heard
from streams.replay.what_if.standing import (
    CAPACITY,
    EVICTORS,
    SUPPRESS,
    Bound,
    Event,
    Parting,
    events_of,
)
from streams.replay.what_if.tally import ALLOW, Tally
from streams.replay.what_if.twin import Seen
from streams.replay.what_if.world import ACKS, INVENTORY, SLIS, Heed, World, above

UNDONE = ("refused", "failed")


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


class _Supposed(World):
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
            self._above(name, seen, entry)
        return entry

    def _above(self, name: str, seen: Seen, entry: SampleEntry) -> None:
        if entry.log_ms < self.span.steps.start_ms:
            return
        elapsed_us = seen.interval.elapsed_us
        if above(seen, self._recorded_threshold(name, entry.offset)):
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
        """What was and what would have been offered on a node, where they differ.

        The other policy may offer nothing at all, as in stage `observe`.
        """
        was = self.parting.was.get((node, CAPACITY))
        would = self.parting.would.get((node, CAPACITY), (0,) * ALLOW)
        if was is None or was[:ALLOW] == would[:ALLOW]:
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
        for outputs in self.batches():
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


def supposed(
    source: Source, was: Recorded, policy: PolicyRecord, known: dict[str, Inventory], heed: Heed
) -> Supposed:
    """Fold it under another policy. Raises CannotReplay."""
    return _Supposed(source, was, policy, known).run(heed)


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
