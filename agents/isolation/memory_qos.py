"""Memory protection and throttling of containers and pods, and their sums by tier.

Called for pods whose class, request or limit changed. Formulas: koordinator
`qosmanager/plugins/cgreconcile/cgroup_reconcile.go`; bytes, ABSENT where nothing is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents.isolation.by_class import chosen, switched_on
from agents.table import ABSENT, Ints
from schemas.policy import ClassMemory, MemoryQos

PAGE = 4096
"""Bytes of a page: the kernel rounds memory.high down to whole ones."""
NO_LIMIT = (1 << 63) - 1
"""What the kernel takes for max."""
TIERS = ("Guaranteed", "Burstable", "BestEffort")
"""Kubernetes' own classes; the first is the root of the other two."""
GUARANTEED, BURSTABLE, BEST_EFFORT = range(len(TIERS))


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked for each pod or container [n]; ABSENT: not set."""

    min_percent: Ints
    low_percent: Ints
    throttling_percent: Ints
    page_cache_bytes: Ints
    page_cache_percent: Ints
    page_cache_sync: Ints


@dataclass(frozen=True, slots=True)
class PageCache:
    """Settings of each pod [n]; ABSENT: not written."""

    enabled: Ints
    size: Ints
    sync: Ints


def wishes(qos: Ints, rule: MemoryQos) -> Wishes:
    """What the policy asks for each pod's class [n]; nothing for a class that is off."""
    on = switched_on(qos, rule)

    def of(value: Callable[[ClassMemory], int]) -> Ints:
        return np.where(on, chosen(qos, rule, value, system=ABSENT), ABSENT)

    return Wishes(
        of(lambda one: one.min_percent),
        of(lambda one: one.low_percent),
        of(lambda one: one.throttling_percent),
        of(lambda one: one.page_cache_bytes),
        of(lambda one: one.page_cache_percent),
        of(lambda one: int(one.page_cache_sync)),
    )


def protected(request: Ints, percent: Ints) -> Ints:
    """A share of the request [n], rounded down; no request is a request of nothing."""
    return np.where(percent >= 0, _share(np.maximum(request, 0), percent), ABSENT)


def raised(value: Ints, minimum: Ints) -> Ints:
    """A protection or a throttle that is set is never below the hard protection [n]."""
    return np.where((value > 0) & (value < minimum), minimum, value)


def high(request: Ints, limit: Ints, allocatable: Ints, percent: Ints) -> Ints:
    """Where throttling begins [n]: so far from request to limit, in whole pages; 0 percent: never.

    A container without a limit is measured by what the node can give out.
    """
    request = np.maximum(request, 0)
    room = np.where(limit > 0, limit, allocatable) - request
    begin = request + np.sign(room) * _share(np.abs(room), percent)
    begin = np.where(percent == 0, NO_LIMIT, begin // PAGE * PAGE)
    return np.where(percent >= 0, begin, ABSENT)


def page_cache(size: Ints, percent: Ints, switch: Ints, sync: Ints, limit: Ints) -> PageCache:
    """Limit of a pod's page cache [n]: by size within the memory limit, else by share of it.

    A limit of 0 switches it off. ``switch`` 0 or 1 overrules the switch alone.
    """
    by_size = np.where(limit > 0, np.minimum(size, limit), size)
    by_share = np.where((percent >= 0) & (limit > 0), _share(np.maximum(limit, 0), percent), ABSENT)
    allowed = np.where(size >= 0, by_size, by_share)
    on = np.where(allowed > 0, 1, np.where(allowed == 0, 0, ABSENT))
    in_task = np.where(allowed > 0, np.maximum(sync, 0), ABSENT)
    return PageCache(np.where(switch >= 0, switch, on), allowed, in_task)


def tier_sums(place: Ints, tier: Ints, values: Ints, places: int) -> Ints:
    """Protection of every node's tiers [places, 3]: the sum over its pods [n], ABSENT without any.

    ``place`` is the pod's node, ``tier`` one of GUARANTEED, BURSTABLE, BEST_EFFORT. The guaranteed
    tier is the root of the others, so it is the sum of all three.
    """
    sums = np.zeros((places, len(TIERS)), dtype=np.int64)
    said = np.zeros((places, len(TIERS)), dtype=np.bool_)
    is_set = values >= 0
    np.add.at(sums, (place[is_set], tier[is_set]), values[is_set])
    said[place[is_set], tier[is_set]] = True
    sums[:, GUARANTEED] = sums.sum(axis=1, dtype=np.int64)
    said[:, GUARANTEED] = said.any(axis=1)
    return np.where(said, sums, ABSENT)


def _share(amount: Ints, percent: Ints) -> Ints:
    """Percent of an amount, rounded down, without leaving 63 bits."""
    result: Ints = amount // 100 * percent + amount % 100 * percent // 100
    return result
