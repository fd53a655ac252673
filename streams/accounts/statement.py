"""An account as it is written: the gate's fields on top, all figures below, what it lacks in words.

`slackwater account -o` writes it as JSON, `slackwater policy --account` reads its top, and
`--baseline` reads one of the observe stage. Made of `reading.Read`; pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from msgspec import Struct

from schemas.policy import STAGES
from streams import stages
from streams.account import Account
from streams.accounts import (
    benefit,
    jobs,
    lending,
    machines,
    online,
    satisfaction,
    suppression,
)
from streams.accounts.benefit import Against, Benefit, Rates, Suffered
from streams.accounts.cells import UNPLACED, Cell, Place
from streams.accounts.jobs import JobFigures
from streams.accounts.lacks import lacks_of
from streams.accounts.lending import LendingFigures
from streams.accounts.machines import MachineFigures
from streams.accounts.online import OnlineFigures
from streams.accounts.prices import Prices
from streams.accounts.reading import Read
from streams.accounts.satisfaction import SatisfactionFigures, StarvedPod
from streams.accounts.sums import DAY_MS
from streams.accounts.suppression import EvictionFigures, SuppressionFigures

FORMAT = 1
By = Literal["pool", "workload", "policy"]
BYS: tuple[str, ...] = get_args(By)
NONE = "(none)"


class Figures(Struct, frozen=True):
    """One family each; the modules of these names say what each number is."""

    machines: MachineFigures
    lending: LendingFigures
    suppression: SuppressionFigures
    evictions: EvictionFigures
    satisfaction: SatisfactionFigures
    jobs: JobFigures
    online: OnlineFigures


class Row(Struct, frozen=True):
    """The figures of one pool, workload or policy version among the account's nodes."""

    name: str
    figures: Figures


class Statement(Account, frozen=True, kw_only=True):
    """``stage``, ``node_days`` and what else the gate reads are those of the nodes in ``stage``.

    ``figures``: of these nodes; ``control``: of the control group in the same time, None without.
    ``stage_node_days``: for each stage that was seen, how much of it. ``starved``: the worst pods.
    """

    format: int = FORMAT
    from_ms: int
    to_ms: int
    stage_node_days: dict[str, float]
    figures: Figures
    control: Figures | None = None
    benefit: Benefit | None = None
    by: By = "pool"
    rows: tuple[Row, ...] = ()
    starved: tuple[StarvedPod, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked: ``stage`` "": the furthest that was seen."""

    stage: str = ""
    by: By = "pool"
    prices: Prices | None = None
    baseline: Statement | None = None


def of(read: Read, wanted: Wanted) -> Statement:
    """The account of what was read."""
    days = _stage_days(read)
    stage = wanted.stage or _furthest(days)
    ours = read.cells.total(lambda place: _is_of(place, stage))
    control = read.cells.total(lambda place: place.stage == stages.CONTROL)
    has_control = bool(control.machines.node_ms) and stage != stages.CONTROL
    found = _benefit(read, wanted, ours, control if has_control else None)
    figures = _figures(ours, read.span.ms)
    seen = read.cells.stages.get(stage)
    return Statement(
        net_benefit=None if found is None else found.net,
        stage=stage or None,
        observed_days=None if seen is None else (seen.to_ms - seen.from_ms) // DAY_MS,
        node_days=ours.machines.node_ms // DAY_MS,
        evictions=figures.evictions.pods if ours.machines.node_ms else None,
        suppressed_permille=figures.suppression.suppressed_permille,
        online_violations=figures.online.violations,
        from_ms=read.span.from_ms,
        to_ms=read.span.to_ms,
        stage_node_days=days,
        figures=figures,
        control=_figures(control, read.span.ms) if has_control else None,
        benefit=found,
        by=wanted.by,
        rows=_rows(read, stage, wanted.by),
        starved=tuple(read.starved),
        lacks=tuple(lacks_of(read, ours, stage, wanted.prices, control=has_control,
                             baseline=wanted.baseline is not None)),
    )  # fmt: skip


def _is_of(place: Place, stage: str) -> bool:
    """Whether a cell is the account's: its stage's, or that of jobs that no node has yet."""
    return place in (UNPLACED, place._replace(stage=stage))


def _stage_days(read: Read) -> dict[str, float]:
    found: dict[str, int] = {}
    for place, cell in read.cells.by_place.items():
        if cell.machines.node_ms:
            found[place.stage] = found.get(place.stage, 0) + cell.machines.node_ms
    return {stage: ms / DAY_MS for stage, ms in sorted(found.items())}


def _furthest(days: dict[str, float]) -> str:
    return next((stage for stage in reversed(STAGES) if stage in days), "")


def _figures(cell: Cell, span_ms: int) -> Figures:
    return Figures(
        machines=machines.figures(cell.machines),
        lending=lending.figures(cell.lending),
        suppression=suppression.figures(cell.suppression),
        evictions=suppression.eviction_figures(cell.evictions, cell.machines.node_ms),
        satisfaction=satisfaction.figures(cell.satisfaction),
        jobs=jobs.figures(cell.jobs, span_ms),
        online=online.figures(cell.online),
    )


def _rows(read: Read, stage: str, by: By) -> tuple[Row, ...]:
    """One row for each name; what has none comes last."""
    cells = read.cells
    names = {getattr(place, by) for place in cells.by_place if _is_of(place, stage)}
    numbers: dict[str, list[int]] = {}  # what was taken back comes again under another number
    for version in read.policies.versions:
        numbers.setdefault(version.digest, []).append(version.number)
    rows = []
    for name in sorted(names, key=lambda each: (not each, numbers.get(each, []), each)):
        cell = cells.total(_chooser(stage, by, name))
        shown = name or NONE
        if by == "policy" and name in numbers:
            shown = f"version {', '.join(map(str, numbers[name]))} ({name})"
        rows.append(Row(shown, _figures(cell, read.span.ms)))
    return tuple(rows)


def _chooser(stage: str, by: By, name: str) -> Callable[[Place], bool]:
    return lambda place: _is_of(place, stage) and getattr(place, by) == name


def _benefit(read: Read, wanted: Wanted, ours: Cell, control: Cell | None) -> Benefit | None:
    if wanted.prices is None:
        return None
    rates = Rates()
    against: Against = "nothing"
    if control is not None and control.online.windows:
        rates, against = _rates(control.online), "control group"
    elif wanted.baseline is not None:
        rates, against = _said_rates(wanted.baseline), "baseline"
    fared = ours.online
    suffered = Suffered(
        beyond_ms=fared.beyond_ms if fared.judged_ms else None,
        judged_ms=fared.judged_ms,
        errors=fared.errors if fared.windows else None,
        requests=fared.requests,
    )
    return benefit.of(
        wanted.prices, ours.lending, ours.jobs if read.records["jobs"] else None, suffered, rates,
        against, read.span.ms, ours.machines.node_ms,
    )  # fmt: skip


def _rates(fared: online.Online) -> Rates:
    return Rates(
        beyond=Fraction(fared.beyond_ms, fared.judged_ms) if fared.judged_ms else None,
        errors=Fraction(fared.errors, fared.requests) if fared.requests else None,
    )


def _said_rates(baseline: Statement) -> Rates:
    """Of an account in a file."""
    said = baseline.figures.online
    return Rates(
        beyond=Fraction(said.beyond_hours) / Fraction(said.judged_hours)
        if said.judged_hours else None,
        errors=Fraction(said.errors, said.requests) if said.requests else None,
    )  # fmt: skip
