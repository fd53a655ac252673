"""What best-effort pods got of the CPU that they asked for, minute by minute.

A pod's minute: got / asked, at most 1 (``asked``: its CPU request over the measured time). A pod is
starved when it lay below a share for some minutes in a row; what it did not want it did not get
either, so a starved minute in which the pod also waited for CPU is counted by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from msgspec import Struct

from streams.accounts.sums import US_PER_HOUR, Spread, Sums, ratio

MINUTE_MS = 60_000
LEAST_MS = MINUTE_MS // 2
"""A minute of which less was measured is none."""
WAITED_PERMILLE = 100
_FINE = 1_000_000  # parts of a share


@dataclass(frozen=True, slots=True)
class Starving:
    """Below which share, and for how many minutes in a row."""

    below: Fraction = Fraction(1, 10)
    minutes: int = 1


@dataclass(slots=True)
class Satisfaction(Sums):
    """Of pods that asked for CPU. ``spread``: shares of minutes, in parts of a million."""

    minutes: int = 0
    got_us: int = 0
    asked_us: int = 0
    starved_minutes: int = 0
    starved_waiting_minutes: int = 0
    starved_pods: int = 0
    spread: Spread = field(default_factory=Spread)


class SatisfactionFigures(Struct, frozen=True):
    """``mean`` is got / asked over all minutes; ``p10`` and ``p50`` are of single minutes."""

    pod_minutes: int
    got_core_hours: float
    asked_core_hours: float
    mean: float | None
    p10: float | None
    p50: float | None
    starved_pods: int
    starved_pod_minutes: int
    starved_and_waiting_pod_minutes: int


class StarvedPod(Struct, frozen=True):
    """A pod that was starved; ``satisfaction`` is that of its worst minute."""

    node: str
    pod: str  # uid
    workload: str
    minutes: int
    satisfaction: float
    first_ms: int  # end of the minute that made it one


@dataclass(slots=True)
class PodMinutes:
    """One pod's minutes, as they come."""

    minute: int = -1
    got_us: int = 0
    asked_us: int = 0
    waited_us: int = 0
    ms: int = 0
    in_a_row: int = 0
    starved: int = 0
    worst: Fraction = Fraction(1)
    first_ms: int = -1

    def close(self, sums: Satisfaction, rule: Starving) -> None:
        """The running minute is over."""
        if self.ms >= LEAST_MS and self.asked_us > 0:
            self._count(sums, rule)
        else:
            self.in_a_row = 0
        self.got_us = self.asked_us = self.waited_us = self.ms = 0

    def _count(self, sums: Satisfaction, rule: Starving) -> None:
        got_us = min(self.got_us, self.asked_us)
        share = Fraction(got_us, self.asked_us)
        sums.minutes += 1
        sums.got_us += got_us
        sums.asked_us += self.asked_us
        sums.spread.note(int(share * _FINE))
        if share >= rule.below:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        if self.in_a_row < rule.minutes:
            return
        new = rule.minutes if self.in_a_row == rule.minutes else 1  # the ones before count too
        sums.starved_minutes += new
        if self.waited_us * 1000 >= self.ms * 1000 * WAITED_PERMILLE:
            sums.starved_waiting_minutes += new
        if self.first_ms < 0:
            sums.starved_pods += 1
            self.first_ms = (self.minute + 1) * MINUTE_MS
        self.starved += new
        self.worst = min(self.worst, share)


def figures(sums: Satisfaction) -> SatisfactionFigures:
    """The sums as shares and hours."""
    low, middle = sums.spread.at(100), sums.spread.at(500)
    return SatisfactionFigures(
        pod_minutes=sums.minutes,
        got_core_hours=sums.got_us / US_PER_HOUR,
        asked_core_hours=sums.asked_us / US_PER_HOUR,
        mean=ratio(sums.got_us, sums.asked_us),
        p10=None if low is None else low / _FINE,
        p50=None if middle is None else middle / _FINE,
        starved_pods=sums.starved_pods,
        starved_pod_minutes=sums.starved_minutes,
        starved_and_waiting_pod_minutes=sums.starved_waiting_minutes,
    )
