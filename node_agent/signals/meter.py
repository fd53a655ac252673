"""What each signal costs and how it fares; kept by the sampler, read by the agent's metrics.

A signal that fails is counted and harms no other. One that is slow, and that no decision waits
for, rests: what it would have told is absent meanwhile.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

_LOG = logging.getLogger(__name__)
SLOW_US = 100_000  # of one sweep; the whole of it takes some milliseconds
REST_US, REST_MOST_US = 10_000_000, 600_000_000


@dataclass(slots=True)
class SignalStats:
    """What one signal has cost and how it fared; every figure only grows unless it says so."""

    name: str = ""
    cost_us: int = 0  # of the latest sweep that asked it
    cost_us_total: int = 0
    sweeps: int = 0  # that asked it
    reads: int = 0  # values asked for
    absent: int = 0  # of these: not there
    errors: int = 0  # reads or parses that failed
    rests: int = 0  # times it was too slow
    ok: bool = True  # the latest sweep that asked it met no error
    last_error: str = ""
    essential: bool = False  # a decision waits for some of it each second: it never rests
    _sweep: int = -1
    _rest_us: int = 0
    _rests_until_us: int = 0

    def book(self, sweep: int, cost_us: int, reads: int, absent: int, errors: int) -> None:
        """Add one part of a sweep; a sweep may have several."""
        if sweep != self._sweep:
            self._sweep = sweep
            self.sweeps += 1
            self.cost_us, self.ok = 0, True
        self.cost_us += cost_us
        self.cost_us_total += cost_us
        self.reads += reads
        self.absent += absent
        self.errors += errors
        self.ok = self.ok and errors == 0

    def resting(self, now_us: int) -> bool:
        """Whether it was slow, and is left alone for now."""
        return now_us < self._rests_until_us

    def rest_if_slow(self, cost_us: int, now_us: int) -> None:
        """Each time it is slow again it rests twice as long as before."""
        if cost_us <= SLOW_US or self.essential:
            self._rest_us = 0
            return
        self._rest_us = min(max(REST_US, 2 * self._rest_us), REST_MOST_US)
        self._rests_until_us = now_us + self._rest_us
        self.rests += 1
        _LOG.warning(
            "signal %s took %d ms and rests for %d s; what it fills is absent",
            self.name,
            cost_us // 1000,
            self._rest_us // 1_000_000,
        )


@dataclass(slots=True)
class SamplerStats:
    """Counters of one sampler; every figure only grows except those of the latest sweep."""

    signals: dict[str, SignalStats] = field(default_factory=dict)
    sweeps: int = 0
    sweep_cost_us: int = 0  # of the latest sweep
    vanished: int = 0  # groups that went while they were read
    descriptors_kept: int = 0
    descriptor_shortfalls: int = 0  # opens that found the budget empty

    def of(self, signal: str) -> SignalStats:
        """The figures of one signal, made when they are first asked for."""
        return self.signals.setdefault(signal, SignalStats(signal))


class Meter:
    """One part of a sweep for one signal, and what it cost."""

    __slots__ = ("absent", "began_ns", "errors", "reads", "stats")

    def __init__(self, stats: SignalStats) -> None:
        self.stats = stats
        self.began_ns = time.perf_counter_ns()
        self.reads = self.absent = self.errors = 0

    def fail(self, error: Exception) -> None:
        """Count an error; log it when it is not the one before."""
        self.errors += 1
        text = f"{type(error).__name__}: {error}"
        if text != self.stats.last_error:
            self.stats.last_error = text
            _LOG.warning("signal %s failed, the others go on: %s", self.stats.name, text)

    def book(self, sweep: int, now_us: int) -> None:
        """The part is over."""
        cost_us = (time.perf_counter_ns() - self.began_ns) // 1000
        self.stats.book(sweep, cost_us, self.reads, self.absent, self.errors)
        self.stats.rest_if_slow(cost_us, now_us)
