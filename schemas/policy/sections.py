"""Sections of the policy on lending and taking back: defaults are the field's.

Read by `schemas.policy.document`; each decider takes its own section's values as arguments.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.policy.units import (
    Bytes,
    Evictable,
    Milli,
    Ms,
    Orders,
    Overdraft,
    Part,
    Percent,
    Permille,
    PositiveMs,
)


class Loop(Part, frozen=True):
    """Periods of the loop itself and how long silence is forgiven."""

    tick_ms: PositiveMs = 1_000
    command_ttl_ms: PositiveMs = 30_000
    refresh_ms: PositiveMs = 60_000  # a standing command is said again
    report_ms: PositiveMs = 10_000  # reservations and signals, at most once a node
    silent_after_ms: PositiveMs = 3_000  # older than this: hold, offer nothing new
    withdraw_after_ms: PositiveMs = 900_000  # the peer's degrade: 15 minutes
    forget_after_ms: PositiveMs = 3_600_000  # state of a vanished node is collected


class Suppress(Part, frozen=True):
    """CPU of best-effort work: capacity x threshold - online - max(system, reserved)."""

    enabled: bool = True
    policy: Literal["quota", "cpuset"] = "quota"  # how the bound is put on the group
    threshold_percent: Percent = 65
    floor_milli: Milli = 10  # never less for the whole best-effort group
    floor_percent: Percent = 0
    ignore_permille: Permille = 10  # of capacity: smaller changes are not written
    raise_permille: Permille = 100  # of capacity: the largest step up
    floor_cpus: Annotated[int, Meta(ge=1, le=4096)] = 2  # the smallest CPU set


class EvictMemory(Part, frozen=True):
    """Memory's last gate: at the threshold, free down to the lower mark."""

    enabled: bool = True
    threshold_percent: Percent = 70
    lower_percent: Percent = 68
    best_effort_enabled: bool = True  # the largest best-effort pods go, offered or not
    limit_enabled: bool = True  # they go too before a memory limit above them is reached
    limit_margin_bytes: Bytes = 209_715_200  # so far below it; at most a quarter of it
    limit_lower_bytes: Bytes = 314_572_800  # what it is brought down to; at most half of it
    usage_enabled: bool = False  # then best-effort pods that offer themselves, as they say
    usage_priority_most: Evictable = 5_999  # nobody above it goes
    allocatable_enabled: bool = False  # requests beyond what is lent are taken back
    allocatable_threshold_percent: Overdraft = 110  # of what is lent: above it
    allocatable_lower_percent: Overdraft = 100  # what it is brought down to
    allocatable_priority_most: Evictable = 5_999  # nobody above it counts or goes
    cooldown_ms: PositiveMs = 4_000  # of a node, since its last order of any kind
    escalate_after_orders: Orders = 3  # that freed nothing; 0: never
    dry_run: bool = False


class EvictCpu(Part, frozen=True):
    """Best-effort work that gets far less CPU than it asked for: some of it goes elsewhere."""

    enabled: bool = False
    satisfaction_lower_percent: Annotated[int, Meta(ge=1, le=60)] = 30  # limit to request
    satisfaction_upper_percent: Annotated[int, Meta(ge=1, le=99)] = 40  # what it is raised to
    be_usage_percent: Percent = 90  # of the limit: below it nobody is starved
    by_allocatable: bool = False  # the limit is what is lent, not the quota in force
    best_effort_enabled: bool = True  # by that satisfaction
    usage_enabled: bool = False  # by the node's use: who offers himself goes, as he says
    usage_threshold_percent: Percent = 90  # of capacity, over the window and now
    usage_lower_percent: Percent = 85  # what it is brought down to
    usage_priority_most: Evictable = 5_999  # nobody above it goes
    allocatable_enabled: bool = False  # requests beyond what is lent are taken back
    allocatable_threshold_percent: Overdraft = 110  # of what is lent: above it
    allocatable_lower_percent: Overdraft = 100  # what it is brought down to
    allocatable_priority_most: Evictable = 5_999  # nobody above it counts or goes
    window_ms: PositiveMs = 60_000  # the mean over it must say the same as the last sample
    cooldown_ms: PositiveMs = 20_000  # of a node, since its last order of any kind
    escalate_after_orders: Orders = 3  # that freed nothing; 0: never
    dry_run: bool = False


class ReservationRule(Part, frozen=True):
    """Short-term and long-term reservation: peaks of a window, and a margin."""

    # window; predicted: the level that is worth its price, where a pod has a warm model; newest:
    # the use of the last sample, so that what is lent follows it up and down
    short_model: Literal["window", "predicted", "newest"] = "window"
    short_margin_percent: Percent = 10
    long_margin_percent: Percent = 20
    warm_ms: Ms = 300_000  # shorter history: capacity holds at what is lent


class Interference(Part, frozen=True):
    """Robust z-score of each online pod against its own last hour."""

    enabled: bool = True
    history_ms: Ms = 600_000  # at least so much history
    ill_score_permille: Annotated[int, Meta(ge=500, le=1_000_000)] = 6_000
    ill_points: Annotated[int, Meta(ge=1, le=60)] = 2  # points of 10 s in a row


class PodRules(Part, frozen=True):
    """Pods whose QoS, class and request do not go together are counted and reported."""

    enabled: bool = True


class Blast(Part, frozen=True):
    """How much may go wrong at once, fleet-wide."""

    evictions_permille: Annotated[int, Meta(ge=0, le=1000)] = 1  # of the fleet's nodes a cool-down
    stop_ill_permille: Permille = 550
    facts_stale_ms: PositiveMs = 10_000
