"""What of an SLI can be believed; asked by who reads the topic `slis` and by `agents.slo_watch`.

A service speaks for itself alone, so nonsense is refused before it can move anything: numbers
outside any service's range, that contradict each other, or that are of the future.
"""

from __future__ import annotations

from schemas.errors import BadRecord
from schemas.records import Sli

AHEAD_MS = 60_000
"""A service's wall clock may run so far ahead of the broker's; what ends later is of the future."""
WORKLOAD_CHARACTERS = 253
LEAST_WINDOW_MS, DAY_MS = 100, 86_400_000
LONGEST_US = 3_600_000_000  # no request takes longer than an hour
MOST_REQUESTS = 1 << 50
LAST_MS = 1 << 50
RANGES = {
    "window_ms": (LEAST_WINDOW_MS, DAY_MS),
    "p50_us": (0, LONGEST_US),
    "p99_us": (0, LONGEST_US),
    "p90_us": (-1, LONGEST_US),
    "p999_us": (-1, LONGEST_US),
    "requests": (0, MOST_REQUESTS),
    "errors": (0, MOST_REQUESTS),
    "end_ms": (-1, LAST_MS),
}


def check(said: Sli, append_ms: int) -> None:
    """Raises BadRecord for numbers that cannot be. ``append_ms``: broker append time; -1: unknown.

    It names the field and what is allowed.
    """
    if not 1 <= len(said.workload) <= WORKLOAD_CHARACTERS:
        size = len(said.workload)
        raise BadRecord(
            "implausible", f"workload of {size} characters; allowed: 1 to {WORKLOAD_CHARACTERS}"
        )
    for name, (low, high) in RANGES.items():
        value = getattr(said, name)
        if not low <= value <= high:
            raise BadRecord("implausible", f"{name} is {value}; allowed: {low} to {high}")
    if said.errors > said.requests:
        raise BadRecord("implausible", f"errors {said.errors}; allowed: 0 to {said.requests}")
    if said.p50_us > said.p99_us:
        raise BadRecord("implausible", f"p50_us {said.p50_us}; allowed: 0 to p99_us {said.p99_us}")
    if said.p90_us >= 0 and not said.p50_us <= said.p90_us <= said.p99_us:
        raise BadRecord("implausible", f"p90_us {said.p90_us}; allowed: p50_us to p99_us, or -1")
    if 0 <= said.p999_us < said.p99_us:
        raise BadRecord("implausible", f"p999_us {said.p999_us}; allowed: from p99_us on, or -1")
    if append_ms >= 0 and said.end_ms > append_ms + AHEAD_MS:
        ahead_ms = said.end_ms - append_ms
        raise BadRecord(
            "future_clock", f"the window ends {ahead_ms} ms after the record; allowed: {AHEAD_MS}"
        )
