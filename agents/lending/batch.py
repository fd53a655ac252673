"""Batch: what lies above the short-term need, less margins, system and reserve.

`agents.capacity` calls it for all nodes of a tick. Formulas: koordinator
`noderesource/plugins/util/util.go`; amounts [n, 2] are millicores and bytes.
"""

from __future__ import annotations

import numpy as np

from agents.lending.amounts import Percent, share_of
from agents.lending.needs import REQUEST
from agents.table import Array, Bools, Ints


def margin_of(capacity: Array, reclaim_percent: Percent) -> Ints:
    """The safety margin: trunc(capacity x (100 - reclaim) / 100); negative above 100 %."""
    return share_of(capacity, 100 - reclaim_percent)


def lendable(capacity: Array, margin: Array, system: Array, reserved: Array, need: Array) -> Array:
    """Capacity - margin - max(system, reserved) - need; may be negative.

    ``system`` includes host applications above batch; ``need`` includes usage of pods that no
    inventory names (dangling), which counts as high.
    """
    result: Array = capacity - margin - np.maximum(system, reserved) - need
    return result


def system_of(codes: Array, system: Array) -> Ints:
    """The system's use as each policy counts it: not at all beside requests."""
    result: Ints = np.where(codes == REQUEST, 0, system)
    return result


def capped(amount: Array, capacity: Array, cap_percent: Percent) -> Ints:
    """At most trunc(capacity x cap / 100); a cap below 0 is none."""
    cap = np.asarray(cap_percent)
    result: Ints = np.where(cap < 0, amount, np.minimum(amount, share_of(capacity, cap)))
    return result


def degraded(age: Array, limit: Percent) -> Bools:
    """Whether figures of this age (ABSENT: never measured) are too old; equal is fresh."""
    result: Bools = (age < 0) | (age > limit)
    return result
