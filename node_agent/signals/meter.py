"""What each signal costs and how it fares; kept by the sampler, read by the agent's metrics."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from node_agent.cgroup.handles import Files
from node_agent.signals.base import Parse, Value

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class SignalStats:
    """What one signal has cost and how it fared; read by the agent's metrics."""

    cost_us: int = 0  # of the latest sweep
    cost_us_total: int = 0
    reads: int = 0  # values asked for
    absent: int = 0  # of these: not there
    errors: int = 0  # reads or parses that failed
    ok: bool = True  # the latest sweep met no error
    last_error: str = ""

    def book(self, cost_us: int, reads: int, absent: int, errors: int) -> None:
        """Add one sweep."""
        self.cost_us = cost_us
        self.cost_us_total += cost_us
        self.reads += reads
        self.absent += absent
        self.errors += errors
        self.ok = errors == 0


@dataclass(slots=True)
class SamplerStats:
    """Counters of one sampler; every figure only grows except those of the latest sweep."""

    signals: dict[str, SignalStats] = field(default_factory=dict)
    sweeps: int = 0
    sweep_cost_us: int = 0  # of the latest sweep
    vanished: int = 0  # groups that went while they were read
    descriptors_kept: int = 0
    descriptor_shortfalls: int = 0  # opens that found the budget empty


class Meter:
    """Reads for one signal in one sweep, and what that cost."""

    __slots__ = ("absent", "began_ns", "errors", "reads", "stats")

    def __init__(self, stats: SignalStats) -> None:
        self.stats = stats
        self.began_ns = time.perf_counter_ns()
        self.reads = self.absent = self.errors = 0

    def read(
        self,
        files: Files,
        names: tuple[str, ...],
        parse: Parse,
        now_us: int,
    ) -> tuple[Value, ...] | None:
        """The parsed values, or None when a file is absent or broken. Raises `Vanished`."""
        self.reads += 1
        try:
            contents: list[bytes] = []
            for name in names:
                data = files.read(name, now_us)
                if data is None:
                    self.absent += 1
                    return None
                contents.append(data)
            return parse(*contents)
        except (OSError, ValueError, IndexError, ZeroDivisionError) as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Count an error; log it when it is not the one before."""
        self.errors += 1
        text = f"{type(error).__name__}: {error}"
        if text != self.stats.last_error:
            self.stats.last_error = text
            _LOG.warning("a signal failed, the others go on: %s", text)

    def book(self) -> None:
        cost_us = (time.perf_counter_ns() - self.began_ns) // 1000
        self.stats.book(cost_us, self.reads, self.absent, self.errors)
