"""One pass over the bound of best-effort CPU on a node: by quota or by CPU set, never by both.

Called for a node whose facts or allowance changed, and by the conformance suite. The bound that
is not in use is lifted. Order of cases: koordinator
`qosmanager/plugins/cpusuppress/cpu_suppress.go`; quotas are microseconds a period of 100 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agents.allowance import adjust
from agents.cpuset import Pins, Processors, choose, lendable, wanted_cpus
from agents.table import Ints

CORE_MILLI = 1000
PERIOD_US = 100_000
NO_QUOTA = -1
UNSET, USING, RECOVERED = range(3)
"""What is known of a bound: never touched, put on, lifted again."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is in force on the best-effort group: its CPUs, its quota, and what is known of each."""

    cpus: Ints
    quota_us: int
    cpuset_status: int = UNSET
    quota_status: int = UNSET


@dataclass(frozen=True, slots=True)
class Manners:
    """The policy's part: how the bound is put on, floors and steps."""

    enabled: bool
    by_cpuset: bool
    floor_us: int
    floor_cpus: int
    ignore_permille: int
    raise_permille: int
    cpus_managed: bool = False  # somebody else gives best effort its CPUs: no bound of ours


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen; capacity or usage -1: not known."""

    capacity_milli: int
    node_milli: int
    pods: int
    allow_milli: int


def quota_us(
    capacity_milli: Ints, allow_milli: Ints, in_force_us: Ints, floor_us: int, ignore_permille: int,
    raise_permille: int,
) -> Ints:  # fmt: skip
    """The next quota [n] by `agents.allowance.adjust`, with capacity in whole cores."""
    whole_us = -(-capacity_milli // CORE_MILLI) * PERIOD_US
    wanted_us = allow_milli * (PERIOD_US // CORE_MILLI)
    floor = np.full_like(wanted_us, floor_us)
    return adjust(whole_us, wanted_us, in_force_us, floor, ignore_permille, raise_permille)


def reconcile(
    now: Bounds, facts: Facts, processors: Processors, pins: Pins, how: Manners
) -> Bounds:
    """What is to be in force next. Facts that are missing change nothing."""
    if how.cpus_managed or not how.enabled:
        return recover_quota(recover_cpuset(now, processors, pins))
    if facts.capacity_milli < 0 or facts.node_milli < 0 or facts.pods == 0:
        return now
    if how.by_cpuset:
        return recover_quota(bound_cpuset(now, facts.allow_milli, processors, pins, how))
    (quota,) = quota_us(
        np.array([facts.capacity_milli]), np.array([facts.allow_milli]), np.array([now.quota_us]),
        how.floor_us, how.ignore_permille, how.raise_permille,
    ).tolist()  # fmt: skip
    bound = replace(now, quota_us=quota, quota_status=USING)
    return recover_cpuset(bound, processors, pins)


def bound_cpuset(
    now: Bounds, allow_milli: int, processors: Processors, pins: Pins, how: Manners
) -> Bounds:
    """The CPU set for this allowance; where none can be given, the one in force stays."""
    (count,) = wanted_cpus(
        np.array([allow_milli]), np.array([len(now.cpus)]), np.array([len(processors.cpu)]),
        how.floor_cpus, how.raise_permille,
    ).tolist()  # fmt: skip
    cpus = choose(processors, pins, count)
    return replace(now, cpus=cpus if len(cpus) else now.cpus, cpuset_status=USING)


def recover_quota(now: Bounds) -> Bounds:
    """No quota, said once: what somebody sets later is left alone."""
    quota = now.quota_us if now.quota_status == RECOVERED else NO_QUOTA
    return replace(now, quota_us=quota, quota_status=RECOVERED)


def recover_cpuset(now: Bounds, processors: Processors, pins: Pins) -> Bounds:
    """Every CPU that may be lent, each time: a pod may have been given or left some.

    A node without any keeps the set in force, an empty one is never written.
    """
    cpus = np.sort(processors.cpu[lendable(processors.cpu, pins)])
    return replace(now, cpus=cpus if len(cpus) else now.cpus, cpuset_status=RECOVERED)


def keep_off(bounds: Bounds, pins: Pins) -> Bounds:
    """The guard after `reconcile`: what may not be lent is taken out, also of a set that stayed.

    A pod of class LSE that comes when no other set can be found would share its CPUs otherwise.
    """
    cpus = bounds.cpus[lendable(bounds.cpus, pins)]
    return replace(bounds, cpus=cpus) if len(cpus) else bounds
