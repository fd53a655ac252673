"""Mid: idle requests of prod that its prediction gives back, or a fixed share.

`agents.capacity` calls it for all nodes of a tick. Formulas: koordinator
`noderesource/plugins/midresource/plugin.go`; amounts [n, 2] are millicores and bytes.
"""

from __future__ import annotations

import numpy as np

from agents.lending.amounts import Percent, share_of
from agents.table import Array, Ints

PREDICTION, STATIC = range(2)
MODES = {"prediction": PREDICTION, "static": STATIC}
"""The modes by their names in a policy document."""


def unallocated(capacity: Array, system: Array, reserved: Array, allocated: Array) -> Ints:
    """What no prod pod asked for: capacity - max(system, reserved) - allocated, at least 0."""
    result: Ints = np.maximum(capacity - np.maximum(system, reserved) - allocated, 0)
    return result


def predicted(
    capacity: Array, usage: Array, reclaimable: Array, idle: Array, idle_percent: Percent
) -> Ints:
    """min(reclaimable, capacity - usage), at least 0, and a share of what is unallocated.

    A row of ``usage`` with an ABSENT in it is not known: then nothing is reclaimable.
    """
    known = (usage >= 0).all(axis=1, keepdims=True)
    unused = np.where(known, capacity - usage, 0)
    result: Ints = np.maximum(np.minimum(reclaimable, unused), 0) + share_of(idle, idle_percent)
    return result


def fixed(capacity: Array, percent: Percent) -> Ints:
    """The static mode: trunc(capacity x percent / 100)."""
    return share_of(capacity, percent)


def bounded(amount: Array, capacity: Array, threshold_percent: Percent) -> Ints:
    """At most trunc(capacity x threshold / 100), in either mode."""
    result: Ints = np.minimum(amount, share_of(capacity, threshold_percent))
    return result
