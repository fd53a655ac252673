"""CPU that best-effort work is allowed on a node, and how the bound moves there.

Called by `agents.suppress` once a sample and by `agents.suppress_pass`; pure arithmetic over nodes.
Formulas: koordinator `qosmanager/plugins/cpusuppress/cpu_suppress.go`.
"""

from __future__ import annotations

import numpy as np

from agents.table import Array


def allow(
    capacity: Array, threshold_percent: Array | int, online: Array, host: Array, system: Array,
    reserved: Array,
) -> Array:  # fmt: skip
    """Capacity x threshold - online - host applications - max(system, reserved); may be < 0."""
    share = capacity * threshold_percent // 100
    return share - online - host - np.maximum(system, reserved)


def floor_of(capacity: Array, floor_milli: Array | int, floor_percent: Array | int) -> Array:
    """What best-effort work keeps whatever the sum says."""
    result: Array = np.maximum(floor_milli, capacity * floor_percent // 100)
    return result


def adjust(
    capacity: Array, wanted: Array, in_force: Array, floor: Array, ignore_permille: Array | int,
    raise_permille: Array | int,
) -> Array:  # fmt: skip
    """The next target, from the one in force (-1: none), all in one unit.

    Small changes are ignored except to the floor; a step up is bounded, except from none; down is
    at once. From none any bound is applied, however small: none is no small distance from a bound.
    """
    wanted = np.maximum(wanted, floor)
    step = wanted - in_force
    bounded = in_force >= 0
    small = np.abs(step) * 1000 < capacity * ignore_permille
    ceiling = in_force + capacity * raise_permille // 1000
    result = np.where(bounded, np.minimum(wanted, ceiling), wanted)
    return np.where(bounded & small & (wanted != floor), in_force, result)
