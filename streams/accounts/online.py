"""How online services fared, by what they say of themselves on topic `slis`.

A report speaks for the part of its window that no report before it (same service, same node) spoke
for: windows of 30 s said every 5 s count each request once. Percentiles of windows do not add up to
those of a fleet, so each is three numbers: between ``least`` and ``most`` lies the fleet's own
percentile, whatever the requests within the windows were; ``typical`` is what the window of the
median request said. What no window says (p90 and p999 are optional) stays open at one end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from schemas.policy import Objective
from schemas.records import Sli
from streams.accounts.sums import MS_PER_HOUR, PERMILLE, Spread, Sums, ratio

QUANTILES = (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999))
US_PER_MS = 1000


@dataclass(slots=True)
class Online(Sums):
    """Of services; ``judged_ms``: time for which an objective could be asked, per service and node.

    ``least`` and ``most`` hold each request at the lower and upper end of where its window puts it.
    """

    windows: int = 0
    heard_ms: int = 0
    requests: int = 0
    errors: int = 0
    judged_ms: int = 0
    beyond_ms: int = 0
    violations: int = 0
    least: Spread = field(default_factory=Spread)
    most: Spread = field(default_factory=Spread)
    p50: Spread = field(default_factory=Spread)
    p90: Spread = field(default_factory=Spread)
    p99: Spread = field(default_factory=Spread)
    p999: Spread = field(default_factory=Spread)


class Percentile(Struct, frozen=True):
    """Microseconds; None: not known."""

    least_us: int | None
    typical_us: int | None
    most_us: int | None


class OnlineFigures(Struct, frozen=True):
    """``requests_per_s`` is of one service on one node; hours are those of services on nodes.

    ``violations``: how often a service left its objective on a node, by the objective's own terms;
    None: nothing could be judged.
    """

    windows: int
    heard_hours: float
    requests: int
    requests_per_s: float | None
    errors: int
    errors_permille: float | None
    latency: dict[str, Percentile]
    judged_hours: float
    beyond_hours: float
    violations: int | None


@dataclass(slots=True)
class Series:
    """One service on one node: up to when it was heard, and reports in a row that lay beyond."""

    at_ms: int = -1
    rounds: int = 0


def note(
    series: Series, said: Sli, at_ms: int, objective: Objective | None, sums: Online,
    *, counts: bool,
) -> None:  # fmt: skip
    """Take a report over that is as old as ``at_ms``; ``counts``: whether that is the account's."""
    if at_ms <= series.at_ms:
        return
    new_ms = said.window_ms if series.at_ms < 0 else min(said.window_ms, at_ms - series.at_ms)
    gap_ms = at_ms - series.at_ms
    series.at_ms = at_ms
    share = (new_ms, said.window_ms)
    requests, errors = _part(said.requests, share), _part(said.errors, share)
    beyond = judged = False
    if objective is not None and said.window_ms <= objective.window_ms:
        if gap_ms > objective.window_ms:
            series.rounds = 0
        judged = True
        beyond = _beyond(said, objective)
        series.rounds = series.rounds + 1 if beyond else 0
    if not counts:
        return
    sums.windows += 1
    sums.heard_ms += new_ms
    sums.requests += requests
    sums.errors += errors
    sums.judged_ms += new_ms if judged else 0
    sums.beyond_ms += new_ms if beyond else 0
    if beyond and objective is not None:
        sums.violations += series.rounds == objective.rounds
    _spread(said, requests, sums)


def _part(count: int, share: tuple[int, int]) -> int:
    """``count`` x share, to the nearest whole."""
    part, whole = share
    return (2 * count * part + whole) // (2 * whole)


def _beyond(said: Sli, objective: Objective) -> bool:
    """As `agents.slo_watch` judges: few requests condemn nobody."""
    if said.requests < objective.least_requests:
        return False
    slow = objective.p99_us > 0 and said.p99_us > objective.p99_us
    most = objective.errors_permille * said.requests
    return slow or (objective.errors_permille < PERMILLE and said.errors * PERMILLE > most)


def _spread(said: Sli, requests: int, sums: Online) -> None:
    """Put the window's requests where it says that they lie."""
    below, value = 0, 0
    for name, permille in QUANTILES:
        latency_us: int = getattr(said, f"{name}_us")
        if latency_us < 0 or (name == "p50" and latency_us == 0):
            continue  # not measured
        latency_us = max(latency_us, value)
        getattr(sums, name).note(latency_us, requests)
        weight = requests * (permille - below)
        sums.least.note(value, weight)
        sums.most.note(latency_us, weight)
        below, value = permille, latency_us
    sums.least.note(value, requests * (PERMILLE - below))
    sums.most.note_beyond(requests * (PERMILLE - below))


def figures(sums: Online) -> OnlineFigures:
    """The sums as rates and ranges."""
    return OnlineFigures(
        windows=sums.windows,
        heard_hours=sums.heard_ms / MS_PER_HOUR,
        requests=sums.requests,
        requests_per_s=ratio(sums.requests * 1000, sums.heard_ms),
        errors=sums.errors,
        errors_permille=ratio(sums.errors * PERMILLE, sums.requests),
        latency={
            name: Percentile(
                least_us=sums.least.at(permille, above=True),
                typical_us=getattr(sums, name).at(500),
                most_us=sums.most.at(permille, upper=True),
            )
            for name, permille in QUANTILES
        },
        judged_hours=sums.judged_ms / MS_PER_HOUR,
        beyond_hours=sums.beyond_ms / MS_PER_HOUR,
        violations=sums.violations if sums.judged_ms else None,
    )
