"""One partition's log folded again by the live engine, from wherever its records come.

Called by `slackwater replay`, what-if, explain, the report and `streams.checker`. There is no
second way to fold: this feeds `streams.engine.PartitionEngine` and takes what it would publish.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any

from agents.log import LAW_VERSION, Output, SampleEntry, SideRecord
from agents.state import PartitionState
from schemas.errors import BadRecord
from schemas.records import PolicyRecord, Tick
from streams import intake
from streams.engine import Gate, PartitionEngine, Ports
from streams.intake import Check
from streams.metrics import Metrics
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.refused import refusals_of
from streams.replay.side import POLICIES, RecordedSide
from streams.side_inputs import decode

BATCH = 4_000
"""Records folded at once; more make fuller waves and hold more memory."""
Reshape = Callable[[SampleEntry], SampleEntry]
ReshapeSide = Callable[[SideRecord], SideRecord | None]


class Fold:
    """Iterate over it: batches of outputs, dead letters too, in the order of their causes.

    Between two batches ``state``, ``at`` and ``records`` say how far it is; what comes next is
    not folded yet. Afterwards ``ended`` says why it ended before ``upto``; "" for the end of
    samples. One fold is iterated once.
    """

    def __init__(
        self, recording: Source, partition: int, state: PartitionState, *,
        upto: int | None = None, policy: PolicyRecord | None = None,
        reshape: Reshape | None = None, reshape_side: ReshapeSide | None = None,
        check: Check | None = None, waves: bool = False,
        batch: int = BATCH, at_ticks: bool = False, stops: Iterable[int] = (),
    ) -> None:  # fmt: skip
        """``state`` is taken over and changed; ``upto``: the last offset of samples to fold.

        ``policy``: stands in place of every record of topic `policies`; where one is in force when
        the fold begins, or none was ever published, from the first tick on.
        ``reshape`` may change a sample before it is folded, ``reshape_side`` change or drop (None)
        a side record before it is admitted; with ``waves`` no node comes twice in a batch, so that
        they know all that was said to it before. ``check``: who is believed; None: whoever was
        believed then (dead letters tell). Batches end after ``batch`` records, at each offset of
        ``stops`` (rising), and with ``at_ticks`` behind every tick.
        """
        self.partition, self.state, self.ended = partition, state, ""
        self._began = state.at
        self._source, self._upto = recording, upto
        self._reshape, self._check = reshape, check
        in_force = state.laws.published is not None or recording.last("policies", 0) < 0
        self._at_once = policy is not None and in_force
        self._batch, self._at_ticks, self._stops = batch, at_ticks, iter((*stops, float("inf")))
        self._waves = waves
        self._refused = refusals_of(recording) if check is None else {}
        self._forged = self._refused.get(("samples", partition), {})
        versions = recording.manifest.law_versions
        self._other_law = bool(versions) and LAW_VERSION not in versions
        self._side = RecordedSide(recording, partition, self._decode, policy, reshape_side)
        self._said: list[Output] = []
        self._gap = False
        self._engine = PartitionEngine(partition, self._ports())
        self._engine.begin(state)

    @property
    def at(self) -> int:
        """The last offset folded."""
        return self._engine.at

    @property
    def records(self) -> int:
        """How many records of samples were folded."""
        return self.at - self._began

    def __iter__(self) -> Iterator[list[Output]]:
        """Raises CannotReplay for a hole in what was recorded."""
        for batch in self._batches():
            _run(self._engine.deliver(batch))
            said, self._said = self._said, []
            if said or self.at == batch[-1].offset:
                yield said
            if self.at != batch[-1].offset:
                self._explain(batch[-1].offset)
                return

    def _batches(self) -> Iterator[list[Record]]:
        batch: list[Record] = []
        stop = next(self._stops)
        ticks = self._at_ticks
        wave: set[bytes | None] = set()
        for record in self._source.records("samples", self.partition, self.state.at, self._upto):
            if self._waves:
                if record.key in wave:
                    yield batch
                    batch = []
                    wave.clear()
                wave.add(record.key)
            batch.append(record)
            while record.offset > stop:
                stop = next(self._stops)
            full = len(batch) >= self._batch or record.offset == stop
            if full or (ticks and record.key is None):
                yield batch
                batch = []
                wave.clear()
        if batch:
            yield batch

    def _explain(self, upto: int) -> None:
        """Say why the engine did not go on to ``upto``. Raises CannotReplay unless all is well."""
        if self._side.failure is not None:
            raise self._side.failure
        if self._engine.gate is Gate.STOPPED:
            raise CannotReplay(
                f"partition {self.partition}: the law failed after offset {self.at}, see the log"
            )
        if self._side.ended:
            self.ended = f"after offset {self.at}: {self._side.ended}"
            return
        lost = self._source.fault("samples", self.partition, self.at, upto)
        raise CannotReplay(
            f"partition {self.partition}: samples behind offset {self.at} are not recorded"
            + (f" ({lost})" if lost else "") + ": replay up to there, or from an image behind"
        )  # fmt: skip

    def _read(self, record: intake.Record, check: Check) -> SampleEntry | Tick:
        """What the engine reads: as `intake.read`, with what is known of then, and what if."""
        forged = self._forged.get(record.offset)
        if forged is not None:
            raise BadRecord(*forged)
        entry = intake.read(record, check)
        if isinstance(entry, Tick):
            if self._at_once:  # one higher throughout: the first tick admits it too
                known = entry.side.get(POLICIES, -1)
                entry = replace(entry, side={**entry.side, POLICIES: known + 1})
            if self._other_law:
                entry = replace(entry, law_version=LAW_VERSION)
            return entry
        return entry if self._reshape is None else self._reshape(entry)

    def _decode(self, record: Record) -> SideRecord | None:
        forged = self._refused.get((record.topic, record.partition))
        if forged and record.offset in forged:
            raise BadRecord(*forged[record.offset])
        return decode(record.topic, record, self._check or intake.unchecked)

    def _ports(self) -> Ports:
        async def publish(partition: int, outputs: Iterable[Output]) -> None:
            del partition
            self._said += outputs

        async def log_start(partition: int) -> int:
            del partition
            return 0

        return Ports(
            publish=publish,
            seek=lambda partition, offset, why: None,  # noqa: ARG005  # a hole ends the fold
            recover=lambda partition: None,  # noqa: ARG005  # nothing is refused here
            log_start=log_start,
            side=self._side,
            metrics=Metrics(),
            check=self._check or intake.unchecked,
            read=self._read,
            slice_records=self._batch,
        )


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to its end what waits for nobody, on no event loop."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        return
