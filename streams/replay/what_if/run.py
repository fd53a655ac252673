"""What-if from beginning to end: each partition folded as it was, then under each other policy.

Called by `streams.replay.what_if.command`, the report and benches. One fold is one process's work;
what was recorded is folded once, however many policies are asked about.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from agents.log import LAW_VERSION
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.run import Wanted, end_with_caller, offset_at, opened, spare_the_collector
from streams.replay.what_if.examples import examples_of
from streams.replay.what_if.groups import Pair, groups_of, timelines_of
from streams.replay.what_if.limits import LIMITS
from streams.replay.what_if.policies import Choice, other_side, recorded_side
from streams.replay.what_if.recorded import Recorded, recorded
from streams.replay.what_if.result import WhatIf
from streams.replay.what_if.supposed import Supposed, supposed
from streams.replay.what_if.tally import Steps
from streams.replay.what_if.world import Heed, Span, known_before

POOL_LABEL = "pool"
MINUTE_MS, SHORT_STEP_MS = 60_000, 10_000
SHORT_MS = 20 * MINUTE_MS
"""What lasts no longer has columns over steps of ten seconds."""
LOOK_S = 0.2
Told = Callable[[int, int], None]
"""How many folds are over, and of how many."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of which recording; ``partitions``: only these, none named: all."""

    wanted: Wanted
    choices: tuple[Choice, ...]
    partitions: tuple[int, ...] = ()
    pool_label: str = POOL_LABEL
    over_time: bool = True  # columns, marks of each node and examples, not only figures


class _Runner(Protocol):
    """Runs folds: here, or in processes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]: ...


def answer(asked: Asked, jobs: int = 1, told: Told = lambda *_: None) -> list[WhatIf]:
    """One answer a choice, in their order; the same bytes whatever ``jobs`` is.

    Raises what `opened` raises, and CannotReplay.
    """
    with opened(asked.wanted) as source:
        spans = spans_of(source, asked)
    of = len(spans) * (1 + len(asked.choices))
    with _runner(min(jobs, of)) as (pool, stop):
        try:
            runs = _folded(pool, asked, spans, lambda over: told(over, of))
        except BaseException:
            stop()
            raise
    with opened(asked.wanted) as source:
        return [
            _answer(source, asked, choice, [Pair.of(was, others[i]) for was, others in runs])
            for i, choice in enumerate(asked.choices)
        ]


def spans_of(source: Source, asked: Asked) -> list[Span]:
    """What of each partition is folded. Raises CannotReplay."""
    there = source.partitions()
    if unknown := sorted(set(asked.partitions) - set(there)):
        raise CannotReplay(f"partition {unknown[0]} is not there; there are {list(there)}")
    if not there:
        raise CannotReplay("there are no samples: nothing was decided from it")
    wanted, places, times = asked.wanted, [], []
    for partition in sorted(set(asked.partitions)) or there:
        before = None if wanted.from_ms is None else offset_at(source, partition, wanted.from_ms)
        upto = source.last("samples", partition)
        if wanted.to_ms is not None:
            upto = offset_at(source, partition, wanted.to_ms + 1) - 1
        first = next(source.records("samples", partition, (before or 0) - 1, upto), None)
        last = next(source.records("samples", partition, upto - 1, upto), None)
        if first is None or last is None:
            raise CannotReplay(f"partition {partition} has no samples in that time")
        places.append((partition, before, upto))
        times.append((first.timestamp, last.timestamp))
    begin_ms, end_ms = min(first for first, _ in times), max(last for _, last in times)
    step_ms = SHORT_STEP_MS if end_ms - begin_ms <= SHORT_MS else MINUTE_MS
    begin_ms = begin_ms // step_ms * step_ms
    steps = Steps(begin_ms, step_ms, (end_ms - begin_ms) // step_ms + 1)
    return [Span(*place, steps, end_ms) for place in places]


def _folded(
    pool: _Runner, asked: Asked, spans: Sequence[Span], told: Callable[[int], None]
) -> list[tuple[Recorded, list[Supposed]]]:
    """Both sides of every partition; the recorded one of each comes first."""
    was: dict[int, Recorded] = {}
    others: dict[tuple[int, int], Supposed] = {}
    left: dict[Future[Any], tuple[int, int]] = {
        pool.submit(_recorded, asked.wanted, span): (i, -1) for i, span in enumerate(spans)
    }
    over = 0
    while left:
        done, _ = wait(left, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for each in done:
            at, choice = left.pop(each)
            over += 1
            if choice >= 0:
                others[at, choice] = each.result()
                continue
            was[at] = each.result()
            for i, one in enumerate(asked.choices):
                left[pool.submit(_supposed, asked.wanted, was[at], one, asked.over_time)] = (at, i)
        told(over)
    every = range(len(asked.choices))
    return [(was[at], [others[at, i] for i in every]) for at in range(len(spans))]


def _answer(source: Source, asked: Asked, choice: Choice, pairs: list[Pair]) -> WhatIf:
    marks = sorted(
        (mark for pair in pairs for mark in pair.would.marks.values()),
        key=lambda mark: (mark.log_ms, mark.partition, mark.offset, mark.node),
    )
    first = marks[0] if marks else None
    steps = pairs[0].was.span.steps
    digests = [digest for pair in pairs for digest in pair.was.digests]
    named = asked.wanted.path.name if asked.wanted.path else asked.wanted.prefix
    full = asked.over_time
    groups = groups_of(pairs, asked.pool_label)
    return WhatIf(
        recording=named,
        law_version=LAW_VERSION,
        from_ms=steps.start_ms,
        to_ms=max(pair.was.span.end_ms for pair in pairs),
        partitions=tuple(pair.was.span.partition for pair in pairs),
        pool_label=asked.pool_label,
        recorded=recorded_side(source, digests),
        other=other_side(source, choice),
        mark=first,
        marks=tuple(marks) if full else (),
        groups=tuple(groups if full else (each for each in groups if each.kind != "node")),
        timelines=tuple(
            timelines_of(pairs, asked.pool_label, [m.node for m in marks]) if full else ()
        ),
        examples=tuple(examples_of(source, pairs) if full else ()),
        limits=LIMITS,
        problems=_problems(source, pairs),
    )


def _problems(source: Source, pairs: list[Pair]) -> tuple[str, ...]:
    """What of the recording could not be used, or is not what it was."""
    found = sorted({problem for pair in pairs for problem in pair.was.problems})
    laws = source.manifest.law_versions
    if laws and LAW_VERSION not in laws:
        recorded_by = ", ".join(map(str, laws))
        found.append(
            f"it was decided by law version {recorded_by}; both sides are folded by {LAW_VERSION}"
        )
    return tuple(found)


# The folds themselves, here or in another process.

_here: dict[str, Any] = {}


class Stopped(Exception):
    """Somebody interrupted."""


def _begin(stop: Any) -> None:
    """In each process, once. An interrupt is the caller's to pass on."""
    _here["stop"] = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_caller()
    spare_the_collector()


def _heed() -> Heed:
    stop = _here.get("stop")

    def heed(_: int) -> None:
        if stop is not None and stop.is_set():
            raise Stopped

    return heed


def _recorded(wanted: Wanted, span: Span) -> Recorded:
    with opened(wanted) as source:
        return recorded(source, span, known_before(source, span), _heed())


def _supposed(wanted: Wanted, was: Recorded, choice: Choice, full: bool) -> Supposed:
    with opened(wanted) as source:
        found = supposed(source, was, choice.record, known_before(source, was.span), _heed())
    if not full:
        found.tally.forget_over_time()
    return found


class _Here:
    """Runs at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args))
        return future


@contextmanager
def _runner(jobs: int) -> Iterator[tuple[_Runner, Callable[[], None]]]:
    """What runs folds, and how to stop it."""
    if jobs <= 1:
        yield _Here(), lambda: None
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, context, _begin, (stop,)) as pool:

        def end() -> None:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

        yield pool, end
