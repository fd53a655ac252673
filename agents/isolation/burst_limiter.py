"""How long a container may stay above its limit: a bucket of tokens that use below it fills.

Called beside `agents.isolation.cpu_burst` where the burst period has an end. Formula: koordinator
`qosmanager/plugins/cpuburst/cpu_burst.go`, but in percent times milliseconds, so that nothing is
lost between samples, and with a start that is the same everywhere.
"""

from __future__ import annotations

import numpy as np

from agents.table import Bools, Ints

START_PARTS = 4
"""A new bucket is filled to this part of its capacity: the mean of the peer's random start."""


def capacity(period_ms: Ints, percent: Ints) -> Ints:
    """Tokens [n]: the whole period at the ceiling; 0 where there is none."""
    return np.maximum(period_ms, 0) * np.maximum(percent - 100, 0)


def start(size: Ints) -> Ints:
    """Tokens of a container that is new, or whose capacity is another now [n]."""
    result: Ints = size // START_PARTS
    return result


def spend(
    tokens: Ints, size: Ints, usage_percent: Ints, elapsed_ms: Ints,
    saving_below_percent: Ints | int,
) -> Ints:  # fmt: skip
    """Tokens after ``elapsed_ms`` at this usage, in percent of the limit [n].

    Use above the limit spends, clear use below it saves, between the two nothing happens, nor
    without a figure (below 0). Debt goes down to a whole capacity.
    """
    far = (100 - usage_percent) * elapsed_ms
    counts = (usage_percent >= 100) | (usage_percent < saving_below_percent)
    counts &= usage_percent >= 0
    return np.maximum(np.minimum(tokens + far * counts, size), -size)


def allows(tokens: Ints) -> Bools:
    """Whether there is anything left to spend [n]."""
    result: Bools = tokens > 0
    return result
