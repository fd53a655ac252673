"""What a node offers, shared out to its zones: no more than they have, and as one sum.

`agents.capacity_zones` calls it; the guards have spoken for the node before.
"""

from __future__ import annotations

import numpy as np

from agents.lending.zones import Zones
from agents.table import Array, Bools, Ints


def share_out(amount: Ints, offer: Array, zones: Zones, held: Bools) -> Ints:
    """[z, 2] of the node's ``offer`` [n, 2] by each zone's own ``amount`` [z, 2], 0 or more.

    Zones that come to more than the node offers are cut in proportion. Where the node is ``held``
    [n] its offer stands above what is computed: then it is shared out whole, evenly if no zone has
    any. A node's zones never come to more than its offer.
    """
    mine = held.take(zones.node)[:, None]
    none = (_totals(amount, zones) == 0).take(zones.node, axis=0)
    weight = np.where(mine & none, 1, amount)
    whole = _totals(weight, zones)
    running = np.cumsum(weight, axis=0)
    before = running - weight
    base = before.take(zones.start, axis=0).take(zones.node, axis=0)
    ratio = (offer / np.maximum(whole, 1)).take(zones.node, axis=0)
    most = offer.take(zones.node, axis=0)
    upper, lower = (
        np.minimum((each - base) * ratio, most).astype(np.int64) for each in (running, before)
    )
    cut = np.where((whole > offer).take(zones.node, axis=0) | mine, upper - lower, amount)
    result: Ints = np.where(mine, cut, np.minimum(cut, amount))
    return result


def _totals(values: Ints, zones: Zones) -> Ints:
    """[n, 2] sums over each node's zones; every node has one."""
    result: Ints = np.add.reduceat(values, zones.start, axis=0, dtype=np.int64)
    return result
