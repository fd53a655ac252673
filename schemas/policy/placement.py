"""Sections of the policy on placement: where pods go, which nodes are relieved, quotas.

Read by `schemas.policy.document`; `agents.placement.rules` turns them into the laws' arguments for
the scheduler bridge. Defaults are the peer's where it has one.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.policy.units import Milli, Ms, Part, Percent, Permille, PositiveMs

Weight = Annotated[int, Meta(ge=0, le=100)]
FactorPercent = Annotated[int, Meta(ge=0, le=1000)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]


class LoadAware(Part, frozen=True):
    """Load-aware filter and score; percent of allocatable with the pod, 0: no bound."""

    cpu_percent: Percent = 65
    memory_percent: Percent = 95
    prod_cpu_percent: Percent = 0  # for prod pods, by what prod pods use
    prod_memory_percent: Percent = 0
    aggregated_cpu_percent: Percent = 0  # by a percentile; then plain usage is not looked at
    aggregated_memory_percent: Percent = 0
    aggregation_percentile: Annotated[int, Meta(ge=0, le=99)] = 95  # 0: the mean
    aggregation_window_ms: Ms = 0  # 0: the longest that has data
    cpu_weight: Weight = 1
    memory_weight: Weight = 1
    dominant_weight: Weight = 0  # of the fuller of both
    score_prod_usage: bool = False
    score_aggregated: bool = False
    cpu_factor_percent: FactorPercent = 85  # of request or limit: what a new pod will use
    memory_factor_percent: FactorPercent = 70
    pods_choose_factors: bool = False
    default_cpu_milli: Milli = 250  # of a pod that asks for nothing
    default_memory_bytes: Bytes = 200 << 20
    estimate_after_assigned_ms: Ms = 0  # estimated so long although measured
    estimate_after_initialized_ms: Ms = 0
    expire_after_ms: Ms = 180_000  # 0: a report never gets stale by age
    reject_stale: bool = True
    stale_keep_permille: Permille = 0  # of the score; 1000 and no rejection: as if fresh
    ill_keep_permille: Permille = 500  # of the score of a node whose online pods are ill


class LowNodeLoad(Part, frozen=True):
    """Which nodes are relieved and which take; percent of allocatable, low 0: not looked at."""

    low_cpu_percent: Percent = 0
    low_memory_percent: Percent = 0
    high_cpu_percent: Percent = 0
    high_memory_percent: Percent = 0
    prod_low_cpu_percent: Percent = 0
    prod_low_memory_percent: Percent = 0
    prod_high_cpu_percent: Percent = 0
    prod_high_memory_percent: Percent = 0
    deviation: bool = False  # percents are distances from the mean of all nodes
    consecutive_rounds: Annotated[int, Meta(ge=1, le=1000)] = 5  # hot so often, then once more
    forget_after_ms: Ms = 300_000  # marks of a node that was not hot since
    expire_after_ms: Ms = 180_000


class Migration(Part, frozen=True):
    """Pods of hot nodes are asked to leave, so that they start elsewhere: how many at once.

    Best-effort pods alone; which nodes are hot and which can take says `LowNodeLoad`. A pod counts
    as on its way until its workload is whole again, at most ``ttl_ms``.
    """

    enabled: bool = False
    dry_run: bool = False  # said, not done
    round_ms: PositiveMs = 60_000  # how often nodes are judged
    targets_above: Annotated[int, Meta(ge=0, le=100_000)] = 0  # as many targets, or fewer: not yet
    cpu_weight: Weight = 1  # which hot node comes first
    memory_weight: Weight = 1
    per_node: Annotated[int, Meta(ge=1, le=1000)] = 2  # on their way at once
    per_namespace: Annotated[int, Meta(ge=0, le=100_000)] = 0  # 0: no bound
    per_workload: Annotated[int, Meta(ge=0, le=100_000)] = 0  # 0: by how many pods it has
    fleet: Annotated[int, Meta(ge=1, le=100_000)] = 10
    ttl_ms: PositiveMs = 300_000
    workload_pause_ms: Ms = 300_000  # in which a workload loses no more than its bound


class ElasticQuota(Part, frozen=True):
    """Shares of quota trees."""

    scale_minimums: bool = True  # minimums shrink when their parent cannot hold them
    bound_by_runtime: bool = True  # admission by the share of now; else by the maximum
