"""A partition as it was: the recorded policy's side of every comparison, folded once.

Called by `streams.replay.what_if.run`; what it notes goes to other processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agents.log import SampleEntry, SideRecord
from schemas.records import Inventory, Sli
from streams.recording.source import Source
from streams.replay.what_if.slo import Heard
from streams.replay.what_if.standing import (
    SUPPRESS,
    Bound,
    Log,
    events_of,
    standing_in,
)
from streams.replay.what_if.tally import Tally
from streams.replay.what_if.twin import Seen
from streams.replay.what_if.world import INVENTORY, SLIS, Heed, Span, World, above


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
    problems: tuple[str, ...] = ()


class _Recorded(World):
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
            self._above(name, seen, entry)
        return entry

    def _above(self, name: str, seen: Seen, entry: SampleEntry) -> None:
        percent = self.threshold_of(name)
        held = self.thresholds.setdefault(name, [])
        if not held or held[-1][1] != percent:
            held.append((entry.offset, percent))
        if entry.log_ms >= self.span.steps.start_ms and above(seen, percent):
            self.above_us[name] = self.above_us.get(name, 0) + seen.interval.elapsed_us

    def side(self, record: SideRecord) -> SideRecord | None:
        if record.topic == INVENTORY and isinstance(record.record, Inventory):
            self.twin(record.record.node).known(record.record)
        elif record.topic == SLIS and isinstance(record.record, Sli):
            self.hear(record)
        return record

    def run(self, heed: Heed) -> Recorded:
        digests: dict[str, None] = {}
        for outputs in self.batches():
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
            digests, tuple(self._problems()),
        )  # fmt: skip

    def _problems(self) -> Iterator[str]:
        """What stood in the way."""
        if self.ended:
            yield self.ended
        for each in getattr(self.source, "problems", ()):
            yield f"{each.name}: {each.why}"


def recorded(
    source: Source, span: Span, known: dict[str, Inventory], heed: Heed
) -> Recorded:  # fmt: skip
    """Fold a partition as it was. Raises CannotReplay."""
    return _Recorded(source, span, known).run(heed)
