"""A replay from beginning to end: each partition found, folded, compared; several at once.

Called by `streams.replay.cli` and by benches. A partition is one process's work.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from schemas.signing import Checker
from streams.intake import Check
from streams.keyring import Folder
from streams.recording import open_recording
from streams.recording.partial import OPEN
from streams.recording.source import Source
from streams.recording.store import is_locked
from streams.replay.compare import Comparison
from streams.replay.errors import CannotReplay
from streams.replay.fold import BATCH, Fold
from streams.replay.result import Partition
from streams.replay.spoken import Spoken
from streams.replay.start import images_of, start_of
from streams.replay.topics import TopicSource

SLACK_MS = 60_000
"""Brokers' clocks differ by less: outputs are looked for from so long before their causes on."""
SETTLED_MS = 5_000
"""A recorder is not so far behind on one topic when it is not on another."""
LOOK_MS = 120_000
"""Images come at least so often."""
Progress = Callable[[int, int, int], bool]
"""Partition, records folded, records to fold; whether to go on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to replay. Exactly one of ``path`` and ``brokers``; times are log times, inclusive."""

    path: Path | None = None
    brokers: str = ""
    prefix: str = ""
    from_ms: int | None = None
    to_ms: int | None = None
    keys: Path | None = None
    accept_unsigned: bool = False
    speed: float = 0.0  # times real time; 0: as fast as it goes
    batch: int = BATCH


@contextmanager
def opened(wanted: Wanted) -> Iterator[Source]:
    """The source of the records. Raises BadRecording, CannotReplay, CannotRun."""
    if wanted.path is not None:
        with open_recording(wanted.path) as recording:
            yield recording
    else:
        with TopicSource(wanted.brokers, wanted.prefix) as source:
            yield source


def replay_partition(
    source: Source, partition: int, wanted: Wanted, progress: Progress = lambda *_: True
) -> Partition:
    """Fold one partition and compare; what stands in its way is in `Partition.error`."""
    began = time.monotonic()
    result = Partition(partition, began_at=-1)
    try:
        _replay(source, result, wanted, progress)
    except CannotReplay as error:
        result.error = str(error)
    result.seconds = time.monotonic() - began
    return result


def _replay(source: Source, result: Partition, wanted: Wanted, progress: Progress) -> None:
    partition = result.partition
    before = None if wanted.from_ms is None else offset_at(source, partition, wanted.from_ms)
    upto = source.last("samples", partition)
    if wanted.to_ms is not None:
        upto = offset_at(source, partition, wanted.to_ms + 1) - 1
    if before is not None and before > upto:
        raise CannotReplay(f"partition {partition} has no samples in that time")
    state = start_of(source, partition, before)
    result.began_at = state.at
    first = next(source.records("samples", partition, state.at, upto), None)
    if first is None:
        raise CannotReplay(f"partition {partition} has no samples in that time")
    spoken = Spoken(source, partition, state.at, first.timestamp - SLACK_MS)
    proved = newest_image(source, partition, upto) if settled(wanted, source) else -1
    comparison = Comparison(source, spoken, result, proved)
    pace = Pace(wanted.speed, first.timestamp)
    fold = Fold(
        source, partition, state, upto=upto, check=checked(source, wanted), batch=wanted.batch,
        at_ticks=wanted.speed > 0,
    )  # fmt: skip
    try:
        for outputs in fold:
            comparison.take(outputs)
            pace.wait(state.log_ms)
            if not progress(partition, fold.records, upto - result.began_at):
                raise KeyboardInterrupt
    finally:
        comparison.finish(fold.at)
        result.at, result.records, result.ended = fold.at, fold.records, fold.ended
        result.span_ms = max(state.log_ms - first.timestamp, 0)


def offset_at(source: Source, partition: int, ms: int) -> int:
    """The first offset of samples that was appended at ``ms`` or later; else the one to come."""
    begin = source.since("samples", partition, ms)
    for record in source.records("samples", partition, begin - 1):
        if record.timestamp >= ms:
            return record.offset
    return source.last("samples", partition) + 1


def newest_image(source: Source, partition: int, upto: int) -> int:
    """The highest `at` of a whole image that is not above ``upto``; -1 without one.

    Images of the last seconds do not count: topics are not recorded to the same moment.
    """
    last = next(source.records("samples", partition, upto - 1, upto), None)
    if last is None:
        return -1
    begin = source.since("images", partition, last.timestamp - LOOK_MS)
    until_ms = last.timestamp - SETTLED_MS
    images = images_of(source, partition, begin - 1, until_ms)
    return max((chunks[0].at for chunks in images if chunks[0].at <= upto), default=-1)


def settled(wanted: Wanted, source: Source) -> bool:
    """Whether all topics were recorded to about the same moment: a bundle, a recorder's end.

    While a recorder writes, a topic of which little is said may lag behind by an hour.
    """
    if wanted.path is None or not wanted.path.is_dir():
        return source.manifest.kind == "bundle"
    return not is_locked(wanted.path) and not any(wanted.path.glob(f"*/*/{OPEN}"))


def checked(source: Source, wanted: Wanted) -> Check | None:
    """Who is believed: by the keys, or as it was then. Raises BadKeys."""
    if wanted.keys is None:
        return None
    folder = Folder(wanted.keys)
    checker: Checker = folder.checker(
        source.manifest.prefix, accept_unsigned=wanted.accept_unsigned
    )
    return checker.check


class Pace:
    """Lets log time pass ``speed`` times as fast as the clock on the wall; 0: does not wait."""

    def __init__(self, speed: float, begin_ms: int) -> None:
        self._speed, self._begin_ms, self._began = speed, begin_ms, time.monotonic()

    def due_s(self, log_ms: int) -> float:
        """Seconds until it is ``log_ms``; 0 when it is past."""
        if self._speed <= 0:
            return 0.0
        due = self._began + (log_ms - self._begin_ms) / 1000 / self._speed
        return max(due - time.monotonic(), 0.0)

    def wait(self, log_ms: int) -> None:
        """Until it is ``log_ms``."""
        if left := self.due_s(log_ms):
            time.sleep(left)


def replay_all(
    partitions: Sequence[int], wanted: Wanted, jobs: int, told: Callable[[int, int], None]
) -> list[Partition]:
    """Each partition in one of ``jobs`` processes; ``told(folded, of)`` is called now and then."""
    if jobs <= 1 or len(partitions) == 1:
        return [_alone(partition, partitions, wanted, told) for partition in partitions]
    context = multiprocessing.get_context("spawn")
    shared = context.Array("q", 2 * len(partitions), lock=False)
    stop = context.Event()
    found: list[Partition] = []
    with ProcessPoolExecutor(jobs, context, _begin, (shared, stop)) as pool:
        left = {pool.submit(_one, i, each, wanted) for i, each in enumerate(partitions)}
        try:
            while left:
                done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
                found += [each.result() for each in done]
                told(sum(shared[::2]), sum(shared[1::2]))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)  # children end at their next batch
            raise
    return found


def _alone(
    partition: int, partitions: Sequence[int], wanted: Wanted, told: Callable[[int, int], None]
) -> Partition:
    place, count = partitions.index(partition), len(partitions)

    def progress(partition: int, folded: int, of: int) -> bool:
        del partition
        told(place * max(of, 1) + folded, count * max(of, 1))
        return True

    with opened(wanted) as source:
        return replay_partition(source, partition, wanted, progress)


_shared: Any = None
_stop: Any = None


def end_with_caller() -> None:
    """In a process of a pool: end when the caller is gone, be it killed, and hold nothing open."""
    caller = multiprocessing.parent_process()
    assert caller is not None, "called in a process of a pool"

    def watch() -> None:
        connection.wait([caller.sentinel])
        os._exit(1)  # nothing here is worth keeping: answers go to the caller alone

    threading.Thread(target=watch, daemon=True).start()


def _begin(shared: Any, stop: Any) -> None:
    """In each process, once. An interrupt is the caller's to pass on."""
    global _shared, _stop
    _shared, _stop = shared, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_caller()
    spare_the_collector()


def _one(place: int, partition: int, wanted: Wanted) -> Partition:
    def progress(partition: int, folded: int, of: int) -> bool:
        del partition
        _shared[2 * place], _shared[2 * place + 1] = folded, of
        return not _stop.is_set()

    with opened(wanted) as source:
        return replay_partition(source, partition, wanted, progress)


def spare_the_collector() -> None:
    """Cyclic garbage is rare in a fold, long-lived objects are many: look less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
