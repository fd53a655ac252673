"""The batch sum for each NUMA zone: amounts of a node spread over its zones, rounded up.

`agents.capacity` calls it for nodes whose inventory names zones. Formula: koordinator
`noderesource/plugins/util/util.go`. Zones of all nodes lie one after another [z]; a pod tells its
zones by a bit mask. Amounts here are millicores and thousandths of a byte (`FINE`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.lending import batch
from agents.lending.amounts import Percent, share_of, sums, up
from agents.table import Array, Ints, spans

FINE = np.array([1, 1000])
"""Millicores as they are, bytes to thousandths: the peer divides in thousandths of a unit."""
LARGEST_FINE = 1 << 61
"""No amount is larger: two petabytes in thousandths of a byte."""


@dataclass(frozen=True, slots=True)
class Zones:
    """``count`` [n] zones of each node; ``node`` [z] the node of each zone."""

    count: Ints
    node: Ints
    start: Ints

    @classmethod
    def of(cls, count: Ints) -> Zones:
        """From the number of zones of each node."""
        return cls(count, np.repeat(np.arange(len(count)), count), np.cumsum(count) - count)


def fine(amounts: Array) -> Ints:
    """Millicores and bytes [.., 2] as the units of this module."""
    result: Ints = np.minimum(amounts, LARGEST_FINE // FINE) * FINE
    return result


def split(amounts: Array, masks: Ints, owner: Ints, zones: Zones) -> Ints:
    """[z, 2] sums of the pods' parts; ``amounts`` [p, 2] fine, ``masks`` [p] bits of zones.

    A pod is divided evenly over the zones that it names and that exist, else over all.
    """
    count = zones.count.take(owner)
    every = (np.int64(1) << count) - 1
    mine = masks & every
    mine = np.where(mine == 0, every, mine)
    part = up(amounts, np.maximum(np.bitwise_count(mine), 1).astype(np.int64)[:, None])
    _, pod, place = spans(np.zeros_like(count), count)
    here = (mine.take(pod) >> place) & 1
    parts = part.take(pod, axis=0) * here[:, None]
    return sums(parts, zones.start.take(owner).take(pod) + place, len(zones.node))


def lendable(
    capacity: Array, margin: Array, system: Array, reserved: Array, need: Ints, zones: Zones,
    cap_percent: Percent,
) -> Ints:  # fmt: skip
    """[z, 2] fine: the batch sum of each zone; may be negative.

    ``capacity`` and ``margin`` [z, 2] are whole units of the zone, so that shares of them are cut
    to whole units as the node's are; ``system`` and ``reserved`` [n, 2] are the node's, whole too,
    and spread evenly; ``need`` [z, 2] is fine (from `split`).
    """
    parts = np.maximum(zones.count, 1)[:, None]
    beside, kept = (up(fine(each), parts).take(zones.node, axis=0) for each in (system, reserved))
    amount = batch.lendable(fine(capacity), fine(margin), beside, kept, need)
    cap = np.asarray(cap_percent)
    result: Ints = np.where(cap < 0, amount, np.minimum(amount, fine(share_of(capacity, cap))))
    return result
