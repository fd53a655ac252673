"""Burst of latency-sensitive pods above their CPU limit: kernel burst, and quotas that move.

Called for containers of class LS (and none) once a sample. Formulas: koordinator
`qosmanager/plugins/cpuburst/cpu_burst.go`; quotas are microseconds a period of 100 ms. The limiter
is `agents.isolation.burst_limiter`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from agents.table import Bools, Ints
from schemas.policy import CpuBurst

UNKNOWN, IDLE, COOLING, OVERLOAD = range(4)
"""What the CPUs that online pods share have left."""
RESET, DOWN, REMAIN, UP = range(4)
"""What becomes of a quota: to its base, a step down, nothing, a step up."""
US_PER_MILLI = 100
BURST_US_MAX = 100_000_000
"""The largest burst that a kernel takes, whatever the limit."""
KERNEL_BURST = ("auto", "cpu_burst_only")
QUOTA_BURST = ("auto", "cfs_quota_burst_only")


@dataclass(frozen=True, slots=True)
class BurstConfig:
    """What a node's policy or a pod's own wish says; None: nothing."""

    policy: str | None = None
    cpu_burst_percent: int | None = None
    quota_burst_percent: int | None = None
    quota_burst_period_s: int | None = None  # -1: without end


def config_of(rule: CpuBurst) -> BurstConfig:
    """The policy's part that a pod may overrule."""
    return BurstConfig(
        rule.policy, rule.cpu_burst_percent, rule.quota_burst_percent, rule.quota_burst_period_s
    )


def merge(node: BurstConfig, pod: BurstConfig | None) -> BurstConfig:
    """The node's, with what the pod says for itself."""
    if pod is None:
        return node
    own = {one.name: getattr(pod, one.name) for one in fields(pod)}
    return BurstConfig(
        **{name: getattr(node, name) if said is None else said for name, said in own.items()}
    )


def node_state(
    cpus: Ints, pinned_milli: Ints, node_milli: Ints, outside_milli: Ints,
    threshold_percent: Ints | int, cooling_percent: Ints | int,
) -> Ints:  # fmt: skip
    """State of the shared CPUs of each node [n].

    The pool is the node's CPUs less ``pinned_milli``, the requests of LSE and LSR pods; in use is
    ``node_milli`` less ``outside_milli``, the usage of LSE, LSR and BE pods. A pool of nothing is
    full. Without CPUs or node usage (below 0) nothing is known.
    """
    pool = cpus * 1000 - pinned_milli
    used = node_milli - outside_milli
    used = np.where(pool > 0, used, 1)
    pool = np.where(pool > 0, pool, 1)
    over = used * 100 >= pool * threshold_percent
    close = used * 10_000 >= pool * (threshold_percent * cooling_percent)
    state = np.where(over, OVERLOAD, np.where(close, COOLING, IDLE))
    return np.where((cpus > 0) & (node_milli >= 0), state, UNKNOWN)


def burst_us(limit_milli: Ints, percent: Ints, on: Bools) -> Ints:
    """Burst of each container [n]: that share of its limit a period; 0 where off or unlimited."""
    return np.where(on & (limit_milli > 0), limit_milli * percent, 0)


def kernel_burst_us(burst: Ints, quota_us: Ints) -> Ints:
    """What a kernel accepts [n]: never more than the quota, and nothing without one."""
    return np.minimum(np.minimum(burst, np.maximum(quota_us, 0)), BURST_US_MAX)


def operation(
    state: Ints, on: Bools, percent: Ints, period_s: Ints, allows: Bools, throttled: Ints
) -> Ints:
    """What becomes of each container's quota [n].

    ``throttled``: periods throttled since the last sample, ABSENT: no sample. ``allows`` is the
    limiter's word, which counts where the period has an end.
    """
    wanted = np.where(throttled > 0, UP, REMAIN)
    refused = (period_s >= 0) & (~allows | (percent < 100))
    wanted = np.where(refused, DOWN, wanted)
    wanted = np.where((state == OVERLOAD) & (wanted >= REMAIN), DOWN, wanted)
    held = (state == COOLING) | (state == UNKNOWN)
    wanted = np.where(held & (wanted == UP), REMAIN, wanted)
    return np.where(on, wanted, RESET)


def quota_us(
    limit_milli: Ints, now_us: Ints, percent: Ints, what: Ints, up_percent: Ints | int,
    down_percent: Ints | int,
) -> Ints:  # fmt: skip
    """The next quota of each container [n], between its base and its ceiling.

    Without a limit the quota in force stays. A ceiling below the base is the base.
    """
    base = limit_milli * US_PER_MILLI
    ceiling = np.where(percent > 100, base * percent // 100, base)
    moved = np.where(what == UP, now_us * up_percent // 100, now_us)
    moved = np.where(what == DOWN, now_us * down_percent // 100, moved)
    moved = np.where(what == RESET, base, moved)
    return np.where(base > 0, np.minimum(np.maximum(moved, base), ceiling), now_us)


def pod_quota_us(pod_now_us: Ints, pod: Ints, moved_us: Ints) -> Ints:
    """The next quota of each pod [p]: it moves with its containers; without one it stays so.

    ``pod`` [n] is the place of each container's pod, ``moved_us`` [n] by how much its own moved.
    """
    moved = np.zeros_like(pod_now_us)
    np.add.at(moved, pod, moved_us)
    return np.where(pod_now_us > 0, pod_now_us + moved, pod_now_us)
