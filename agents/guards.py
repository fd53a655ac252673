"""Guards that come after the law: bounded steps, hysteresis, cool-downs; all in milliseconds.

Shared by the deciders; pure functions over arrays or numbers.
"""

from __future__ import annotations

import numpy as np

from agents.lending.publish import differs
from agents.table import Array, Bools

PPM = 1_000_000
"""Shares are taken in parts per million of capacity, so that no product leaves 63 bits."""
SECONDS_PER_MIN = 60
"""Permille a minute, times milliseconds, divided by this: parts per million."""
SMALL_PERMILLE = 10
"""Changes below this share of capacity are not published, however large beside a small value."""


def rise(capacity: Array, permille_per_min: Array | int, elapsed_ms: Array) -> Array:
    """The largest rise in ``elapsed_ms``; exact below 2^63, at most the whole capacity."""
    ppm = np.minimum(elapsed_ms * permille_per_min // SECONDS_PER_MIN, PPM)
    result: Array = capacity // PPM * ppm + capacity % PPM * ppm // PPM
    return result


def changed(said: Array, now: Array, capacity: Array, permille: Array | int) -> Bools:
    """More than ``permille`` of what was said and not small beside capacity; or fallen to zero."""
    small = np.abs(now - said) * 1000 < capacity * SMALL_PERMILLE
    result: Bools = (differs(said, now, permille) & ~small) | ((now == 0) & (said > 0))
    return result


def due(log_ms: int, last_ms: Array | int, phase: Array, period_ms: int) -> Bools:
    """Once a period, each at its own moment of it, also what was never done before."""
    shift = phase % period_ms
    passed: Bools = (log_ms + shift) // period_ms != (last_ms + shift) // period_ms
    return passed


def cooled(log_ms: int, last_ms: int, cooldown_ms: int) -> bool:
    """Whether the last act is long enough ago; ``last_ms`` below 0: never acted."""
    return last_ms < 0 or log_ms - last_ms >= cooldown_ms
