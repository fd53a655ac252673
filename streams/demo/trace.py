"""What was seen on the real node, as plain series: the input of `judge`, nothing decided here.

All times are CLOCK_MONOTONIC microseconds of this machine, which every process on it shares.
Filled by `stage` (kernel counters, quota, load) and `board` (acks, commands); pure.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class Series:
    """A counter that only grows, seen now and then; read between two sights by interpolation."""

    at_us: list[int] = field(default_factory=list)
    value: list[int] = field(default_factory=list)

    def add(self, mono_us: int, value: int) -> None:
        """One more sight; one that is not later than the last is dropped."""
        if not self.at_us or mono_us > self.at_us[-1]:
            self.at_us.append(mono_us)
            self.value.append(value)

    def covers(self, from_us: int, to_us: int) -> bool:
        """Whether there are sights on both sides of the window."""
        return bool(self.at_us) and self.at_us[0] <= from_us < to_us <= self.at_us[-1]

    def read(self, mono_us: int) -> float:
        """The counter at a moment within the series."""
        right = bisect_right(self.at_us, mono_us)
        if right == 0 or right == len(self.at_us):
            return self.value[min(right, len(self.value) - 1)]
        left = right - 1
        span = self.at_us[right] - self.at_us[left]
        share = (mono_us - self.at_us[left]) / span
        return self.value[left] + share * (self.value[right] - self.value[left])

    def rate_milli(self, from_us: int, to_us: int) -> int:
        """CPU microseconds per microsecond over a window, in millicores."""
        return round(1000 * (self.read(to_us) - self.read(from_us)) / (to_us - from_us))


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of the best-effort group as the kernel file said it from then on; -1: none."""

    mono_us: int
    milli: int


@dataclass(frozen=True, slots=True)
class Step:
    """The online load changed, and stayed so until ``until_us``."""

    mono_us: int
    until_us: int
    milli: int
    up: bool


@dataclass(frozen=True, slots=True)
class Write:
    """A quota write that the node told of: ``by`` is ``command`` or ``local``."""

    mono_us: int
    by: str
    milli: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A suppress command that reached the node."""

    mono_us: int
    milli: int


@dataclass(slots=True)
class Trace:
    """Everything seen of the real node in one run; counters in CPU microseconds."""

    capacity_milli: int
    online: Series = field(default_factory=Series)
    best_effort: Series = field(default_factory=Series)
    machine: Series = field(default_factory=Series)
    ours: Series = field(default_factory=Series)  # the demo's own processes and the broker's
    quotas: list[Quota] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)

    def quota_at(self, mono_us: int) -> int:
        """The quota in force at a moment; -1 when none was seen yet."""
        right = bisect_right(self.quotas, mono_us, key=lambda quota: quota.mono_us)
        return self.quotas[right - 1].milli if right else -1

    def covers(self, from_us: int, to_us: int) -> bool:
        """Whether every counter is known over a window."""
        series = (self.online, self.best_effort, self.machine, self.ours)
        return all(one.covers(from_us, to_us) for one in series)

    def system_milli(self, from_us: int, to_us: int) -> int:
        """What neither online nor best-effort work used."""
        rest = self.machine.rate_milli(from_us, to_us) - self.online.rate_milli(from_us, to_us)
        return max(rest - self.best_effort.rate_milli(from_us, to_us), 0)

    def others_milli(self, from_us: int, to_us: int) -> int:
        """What neither the two groups nor our own processes used: the noise of the machine."""
        return max(self.system_milli(from_us, to_us) - self.ours.rate_milli(from_us, to_us), 0)
