"""The engine of one partition: batches of raw records in, outputs out; gate, `at`, image cuts.

Delivery calls `deliver` (Faust through `streams.worker`; a bare consumer in the bench); nothing of
Faust is in here. The engine knows no clock but for pacing images and measuring itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Any, Protocol

from agents.log import Entry, Output, SampleEntry, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas.errors import BadRecord
from schemas.records import Tick
from streams import intake
from streams.intake import Check, Record
from streams.metrics import Metrics
from streams.outputs import OutputFailed

log = logging.getLogger(__name__)

SLICE = 1_000  # records of one call of step, so that a worker's loop stays responsive
Read = Callable[[Record, Check], SampleEntry | Tick]


class Side(Protocol):
    """What the engine needs of the side inputs."""

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        """Side records in (applied, tick]; None while they have not been read."""

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """What has been applied may be dropped."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What an engine calls; ``publish`` may wait (back-pressure) and may raise."""

    publish: Callable[[int, Iterable[Output]], Awaitable[None]]
    seek: Callable[[int, int, str], None]  # partition, offset, why
    recover: Callable[[int], None]  # an output was lost: bring the newest image again
    log_start: Callable[[int], Awaitable[int]]
    side: Side
    metrics: Metrics
    held_records: int = 20_000
    check: Check = intake.unchecked
    read: Read = intake.read
    slice_records: int = SLICE


class Gate(Enum):
    """RECOVERING: no state yet. SHUT: waits for `at`+1. OPEN: folds. STOPPED: a bug, or the end."""

    RECOVERING = "recovering"
    SHUT = "shut"
    OPEN = "open"
    STOPPED = "stopped"


class PartitionEngine:
    """Folds one partition of `samples`. ``next`` is the offset it expects, ``at`` + 1 when idle."""

    def __init__(self, partition: int, ports: Ports) -> None:
        self.partition = partition
        self.gate = Gate.RECOVERING
        self.state: PartitionState | None = None
        self.mute_until = 0  # outputs of records below are a predecessor's to say
        self.cold = False
        self.next = 0
        self.since_cut = 0  # records folded since the last image cut
        self.image_at: int | None = None
        self.waiting = False  # for side inputs
        self.broken = False  # by a bug: the state may be half folded
        self.full = False  # so long that no more is taken in
        self.newest_ms = 0  # append time of the newest record folded
        self.progress_at = monotonic()
        self.lock = asyncio.Lock()
        self._ports = ports
        self._held: deque[Record] = deque()
        self._noted: Counter[str] = Counter()  # what the law had counted when it was last asked

    @property
    def at(self) -> int:
        """The last offset folded; -1 before the first."""
        return -1 if self.state is None else self.state.at

    @property
    def open(self) -> bool:
        """Whether the gate is open: only then may ticks be written."""
        return self.gate is Gate.OPEN

    def begin(self, state: PartitionState, mute_until: int = 0) -> None:
        """Take over a state; the gate stays shut until `at`+1 comes."""
        self.state = state
        self.mute_until = mute_until
        self.image_at = None
        self.since_cut = 0
        self._noted = Counter(state.counts)  # a predecessor's, or said before a refold
        self._shut(state.at + 1)
        self._ports.seek(self.partition, self.next, "recovered")

    def restart(self) -> None:
        """Forget the state: an output was lost, fold again from the image."""
        self.state = None
        self.full = False
        self._held.clear()
        self._set(Gate.RECOVERING)

    def stop(self) -> None:
        """No more folding."""
        self._held.clear()
        self._set(Gate.STOPPED)

    def sought(self, offset: int, end: int) -> None:
        """Delivery continues at ``offset``; the log ends at ``end``: nothing more, then open."""
        if self.gate is Gate.SHUT and offset == self.next and end <= offset:
            self._set(Gate.OPEN)

    async def deliver(self, records: Sequence[Record]) -> None:
        """Records of this partition in offset order. Raises nothing but cancellation."""
        async with self.lock:
            if self.state is None or self.gate is Gate.STOPPED:
                self._ports.metrics.add("ignored_total", self.partition, by=len(records))
                return
            async with self._guarded():
                fresh = await self._through_gate(records)
                if fresh:
                    self._held.extend(fresh)
                    self.next = fresh[-1].offset + 1
                await self._pump()

    async def pump(self) -> None:
        """Side inputs have advanced: go on where a tick waited."""
        async with self.lock:
            if self.state is not None and self.gate is not Gate.STOPPED:
                async with self._guarded():
                    await self._pump()

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        """Whatever happens in here, no state whose outputs were not published becomes an image."""
        try:
            yield
        except OutputFailed as error:
            self._lost(f"an output was refused: {error}")
        except asyncio.CancelledError:
            self._lost("cancelled")
            raise
        except Exception as error:  # noqa: BLE001  # one partition's bug stops that one
            self._bug(error)

    async def _through_gate(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records to fold; shuts or opens the gate as their offsets say."""
        metrics, partition = self._ports.metrics, self.partition
        known = sum(1 for record in records if record.offset < self.next)
        if known:
            metrics.add("skipped_total", partition, by=known)
            records = records[known:]
        if not records or self.full:
            return ()
        first = records[0].offset
        if first == self.next:
            whole = records[-1].offset - first + 1 == len(records)
            if not whole:  # a hole inside: fold up to it, then ask again
                records = [r for i, r in enumerate(records) if r.offset == first + i]
            if self.gate is Gate.SHUT:
                self._set(Gate.OPEN)
            if self._held and len(self._held) + len(records) > self._ports.held_records:
                # Too much waits for side inputs: let it go, it is in the log.
                self.full = True
                self._shut(self.next)
                metrics.add("ignored_total", partition, by=len(records))
                return ()
            return records
        self._shut(self.next)
        metrics.add("ignored_total", partition, by=len(records))
        begin = await self._ports.log_start(partition)
        if begin > self.next:
            lost = begin - self.next
            log.error(
                "partition %d: retention removed %d records from %d on before they were folded",
                partition, lost, self.next,
            )  # fmt: skip
            metrics.add("lost_total", partition, by=lost)
            self.next = begin
        self._ports.seek(partition, self.next, "gap")
        return ()

    async def _pump(self) -> None:
        while self._held and self.state is not None:
            entries, letters, last = self._slice()
            if last < 0:
                return
            outputs = [*letters, *self._fold(entries, last)]
            if self.mute_until:
                outputs = self._unmuted(outputs, last)
            if outputs:
                await self._ports.publish(self.partition, outputs)
            await asyncio.sleep(0)
        if self.full and not self._held:
            self.full = False
            self._ports.seek(self.partition, self.next, "full")

    def _slice(self) -> tuple[list[Entry], list[Output], int]:
        """Entries of one slice of what is held, dead letters, last offset taken (-1: none)."""
        assert self.state is not None
        vector = dict(self.state.side)
        entries: list[Entry] = []
        letters: list[Output] = []
        last = -1
        self.waiting = False
        while self._held and len(entries) < self._ports.slice_records:
            record = self._held[0]
            if last >= 0 and last < self.mute_until <= record.offset:
                break  # what is said and what is not are folded apart, however batches are cut
            try:
                entry: Any = self._ports.read(record, self._ports.check)
            except BadRecord as error:
                letters.append(intake.dead_letter("samples", record, error))
            else:
                if isinstance(entry, Tick):
                    side = self._admitted(vector, entry)
                    if side is None:
                        self.waiting = True
                        self._ports.metrics.add("side_waits_total", self.partition)
                        break
                    entry = TickEntry(record.offset, record.timestamp, entry, side)
                entries.append(entry)
            last = record.offset
            self._held.popleft()
        return entries, letters, last

    def _admitted(self, vector: dict[str, int], tick: Tick) -> tuple[SideRecord, ...] | None:
        """What a tick admits beyond ``vector``, which moves with it; None: not read yet."""
        assert self.state is not None
        if tick.incarnation != self.state.incarnation:
            return ()  # step refuses it whole
        side = self._ports.side.admit(self.partition, vector, tick.side)
        if side is not None:
            for name, offset in tick.side.items():
                vector[name] = max(vector.get(name, -1), offset)
        return side

    def _fold(self, entries: list[Entry], last: int) -> list[Output]:
        """Fold, and move `at` to ``last``, also past records that could not be read."""
        state, metrics = self.state, self._ports.metrics
        assert state is not None
        started = monotonic()
        outputs = step(state, entries) if entries else []
        self.since_cut += max(len(entries), 1)
        state.at = last
        self.progress_at = monotonic()
        metrics.time("step_seconds", self.progress_at - started)
        metrics.add("folded_total", self.partition, by=len(entries))
        metrics.put("at_offset", self.partition, value=last)
        if entries:
            self.newest_ms = entries[-1].log_ms
        if any(isinstance(entry, TickEntry) for entry in entries):
            self._ports.side.applied(self.partition, state.side)
            self._note_counts(state.counts)
        return outputs

    def _note_counts(self, counts: Counter[str]) -> None:
        """Let the metric follow what the law counts in its state."""
        for what, more in (counts - self._noted).items():
            self._ports.metrics.add("law_noted_total", self.partition, what, by=more)
        self._noted = counts.copy()

    def _unmuted(self, outputs: list[Output], last: int) -> list[Output]:
        kept = [output for output in outputs if output.offset >= self.mute_until]
        self._ports.metrics.add("outputs_muted_total", self.partition, by=len(outputs) - len(kept))
        if last + 1 >= self.mute_until:
            log.info("partition %d: refolded to %d, now speaks", self.partition, last)
            self.mute_until = 0
            assert self.state is not None
            self.state.unsaid()
        return kept

    def _shut(self, offset: int) -> None:
        """Shut the gate and expect ``offset``; what is held stays valid, it lies below."""
        self.next = offset
        self._set(Gate.SHUT)

    def _set(self, gate: Gate) -> None:
        self.gate = gate
        self._ports.metrics.put("gate_open", self.partition, value=int(gate is Gate.OPEN))

    def _lost(self, why: str) -> None:
        """Folded, but not said: the image is the truth, fold again from it."""
        log.warning("partition %d begins again from its image: %s", self.partition, why)
        self.restart()
        self._ports.recover(self.partition)

    def _bug(self, error: Exception) -> None:
        log.error(
            "partition %d stops after offset %d: a bug", self.partition, self.at, exc_info=error
        )
        self._ports.metrics.add("bugs_total", self.partition)
        self.broken = True
        self.stop()
