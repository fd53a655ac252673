"""What batch work achieved, by what schedulers say on topic `jobs`.

Queue time: from the first record, when it says ``queued``, to the first that runs. Completion:
from the first record to ``done``. Both are known only of jobs whose beginning the account saw: one
that was running when it was first heard of has neither. Retries are counted as they rise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from schemas.records import Job
from streams.accounts.sums import MS_PER_HOUR, PERMILLE, US_PER_HOUR, Spread, Sums

MOST_RETRIES = 1_000_000
MOST_CPU_US = 1 << 60


@dataclass(slots=True)
class Jobs(Sums):
    """Of jobs that were heard of in the account's time; ``left``: how each stood at its end."""

    said: int = 0
    done: int = 0
    retries: int = 0
    cpu_us: int = 0
    progress_permille: int = 0  # gained, over all jobs
    lost_permille: int = 0  # and lost again, by work that began anew
    left: Counter[str] = field(default_factory=Counter)
    unrecoverable_evicted: int = 0
    queue_ms: Spread = field(default_factory=Spread)
    completion_ms: Spread = field(default_factory=Spread)


class Times(Struct, frozen=True):
    """Of how many jobs, and percentiles in ms."""

    jobs: int
    p50_ms: int | None
    p90_ms: int | None
    p99_ms: int | None


class JobFigures(Struct, frozen=True):
    """``jobs_worth_of_progress``: 1.0 is one job from nothing to its end."""

    jobs: int
    done: int
    done_per_hour: float | None
    left: dict[str, int]
    retries: int
    unrecoverable_evicted: int
    cpu_core_hours: float
    jobs_worth_of_progress: float
    jobs_worth_lost: float
    queue: Times
    completion: Times


@dataclass(slots=True)
class Known:
    """What is remembered of one job."""

    first_ms: int
    began: bool  # it was queued when it was first heard of
    newest: Job
    node: str = ""
    queued: bool = True


def sound(said: Job) -> bool:
    """Whether what a scheduler says of a job can be."""
    return (
        0 <= said.retries <= MOST_RETRIES
        and 0 <= said.progress_permille <= PERMILLE
        and 0 <= said.cpu_us <= MOST_CPU_US
    )


def note(known: Known | None, said: Job, at_ms: int, sums: Jobs, *, counts: bool) -> Known:
    """Take a record over; ``counts``: whether its time is the account's. Returns what is known."""
    if known is None:
        began = said.state == "queued"
        known = Known(at_ms, began, said, said.node, began)
        if counts:
            sums.progress_permille += said.progress_permille if began else 0
            sums.done += said.state == "done"
        return known
    before = known.newest
    if counts:
        sums.retries += max(said.retries - before.retries, 0)
        sums.cpu_us += max(said.cpu_us - before.cpu_us, 0)
        gained = said.progress_permille - before.progress_permille
        sums.progress_permille += max(gained, 0)
        sums.lost_permille += max(-gained, 0)
        if said.state == "evicted" != before.state and not said.recoverable:
            sums.unrecoverable_evicted += 1
        _times(known, said, at_ms, sums)
    known.queued = known.queued and said.state == "queued"
    known.newest, known.node = said, said.node or known.node
    return known


def _times(known: Known, said: Job, at_ms: int, sums: Jobs) -> None:
    """What has ended with this record."""
    if known.queued and known.began and said.state != "queued":
        sums.queue_ms.note(max(at_ms - known.first_ms, 0))
    if said.state == "done" != known.newest.state:
        sums.done += 1
        if known.began:
            sums.completion_ms.note(max(at_ms - known.first_ms, 0))


def figures(sums: Jobs, span_ms: int) -> JobFigures:
    """The sums; ``span_ms`` is the account's time."""
    return JobFigures(
        jobs=sums.said,
        done=sums.done,
        done_per_hour=sums.done * MS_PER_HOUR / span_ms if span_ms else None,
        left=dict(sorted(sums.left.items())),
        retries=sums.retries,
        unrecoverable_evicted=sums.unrecoverable_evicted,
        cpu_core_hours=sums.cpu_us / US_PER_HOUR,
        jobs_worth_of_progress=sums.progress_permille / PERMILLE,
        jobs_worth_lost=sums.lost_permille / PERMILLE,
        queue=_of(sums.queue_ms),
        completion=_of(sums.completion_ms),
    )


def _of(spread: Spread) -> Times:
    return Times(spread.weight, spread.at(500), spread.at(900), spread.at(990))
