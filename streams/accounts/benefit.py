"""The net benefit: saved machines and energy - online regression - batch retries - platform.

Exact fractions of the user's prices. Regression is what the services on co-located nodes suffered
beyond what they would have at the rate of those that they are compared with: the control group, or
a baseline from the observe stage; with neither, all of it counts. A term whose inputs are missing
makes the sum no number, unless its price is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from streams.accounts.jobs import Jobs
from streams.accounts.lending import Lending, reclaimed_byte_ms, reclaimed_us
from streams.accounts.prices import Prices
from streams.accounts.sums import DAY_MS, GIB, MS_PER_HOUR, US_PER_HOUR

Against = Literal["control group", "baseline", "nothing"]
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Rates:
    """What services suffer where nothing is lent: share of the judged time, of the requests.

    None: not known of those that are compared with.
    """

    beyond: Fraction | None = None
    errors: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Suffered:
    """Of services on co-located nodes; None: nobody said (no SLIs), or nothing to judge by."""

    beyond_ms: int | None
    judged_ms: int
    errors: int | None
    requests: int


class Benefit(Struct, frozen=True):
    """In ``currency``. ``net`` is None where a term is; costs are positive numbers."""

    currency: str
    saved_machines: float
    saved_energy: float
    online_regression: float | None
    batch_retries: float | None
    platform: float
    net: float | None
    regression_against: Against
    regression_hours: float | None  # beyond objectives, more than those compared with
    regression_failed_requests: float | None


def of(
    prices: Prices, lending: Lending, jobs: Jobs | None, suffered: Suffered, rates: Rates,
    against: Against, span_ms: int, node_ms: int,
) -> Benefit:  # fmt: skip
    """The sum with its terms; ``jobs`` None: nobody said how batch work fares."""
    core_hours = Fraction(reclaimed_us(lending), US_PER_HOUR)
    gib_hours = Fraction(reclaimed_byte_ms(lending), GIB * MS_PER_HOUR)
    machines = core_hours * prices.machine_per_core_hour + gib_hours * prices.machine_per_gib_hour
    energy = core_hours * prices.energy_per_core_hour
    hours = _more(suffered.beyond_ms, suffered.judged_ms, rates.beyond)
    if hours is not None:
        hours /= MS_PER_HOUR
    failed = _more(suffered.errors, suffered.requests, rates.errors)
    regression = _sum(
        _cost(hours, prices.beyond_objective_per_hour), _cost(failed, prices.failed_request)
    )
    retries = _cost(None if jobs is None else Fraction(jobs.retries), prices.batch_retry)
    platform = (
        Fraction(span_ms, DAY_MS) * prices.platform_per_day
        + Fraction(node_ms, DAY_MS) * prices.platform_per_node_day
    )
    lost = _sum(regression, retries)
    net = None if lost is None else machines + energy - lost - platform
    return Benefit(
        currency=prices.currency,
        saved_machines=_money(machines),
        saved_energy=_money(energy),
        online_regression=None if regression is None else _money(regression),
        batch_retries=None if retries is None else _money(retries),
        platform=_money(platform),
        net=None if net is None else _money(net),
        regression_against=against,
        regression_hours=None if hours is None else _money(hours),
        regression_failed_requests=None if failed is None else _money(failed),
    )


def _more(found: int | None, of_whole: int, rate: Fraction | None) -> Fraction | None:
    """What was suffered beyond the rate of others; never less than nothing."""
    if found is None:
        return None
    return max(Fraction(found) - (rate or 0) * of_whole, Fraction(0))


def _cost(amount: Fraction | None, price: Fraction) -> Fraction | None:
    if price == 0:
        return Fraction(0)
    return None if amount is None else amount * price


def _sum(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    return None if one is None or other is None else one + other


def _money(amount: Fraction) -> float:
    return float(round(amount, _DIGITS))
