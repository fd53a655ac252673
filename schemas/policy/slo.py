"""The section of the policy on online services that leave their objectives.

Read by `schemas.policy.document`; `agents.slo_guard` acts by it. Off without objectives.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.policy.units import Part, Permille, PositiveMs

Borrower = Literal["free", "batch", "mid"]  # prod is no word of this list
Share = Annotated[int, Meta(ge=1, le=1000)]  # permille, never nothing


class Objective(Part, frozen=True):
    """What one online service promises; beyond either of the two it has left its objective."""

    workload: Annotated[str, Meta(min_length=1, max_length=253)]  # as inventory names it
    p99_us: Annotated[int, Meta(ge=0, le=3_600_000_000)] = 0  # at most; 0: not judged
    errors_permille: Permille = 1000  # at most, of the requests; 1000: not judged
    least_requests: Annotated[int, Meta(ge=1, le=1 << 50)] = 100  # fewer condemn nobody
    rounds: Annotated[int, Meta(ge=1, le=100)] = 2  # reports beyond, in a row, before it counts
    window_ms: PositiveMs = 60_000  # a report over more is not judged, an older one is a gap


class SloGuard(Part, frozen=True):
    """Who is called back for a service that suffers, how fast, and how it comes back."""

    enabled: bool = True
    order: Annotated[tuple[Borrower, ...], Meta(max_length=3)] = ("free", "batch", "mid")
    step_permille: Share = 500  # of what a class had, at each step down
    step_wait_ms: PositiveMs = 10_000  # after a step, whether the service comes back
    most_permille: Permille = 1000  # of what a class had, never more is called back
    calm_percent: Annotated[int, Meta(ge=1, le=100)] = 90  # of the objective; above is no calm
    calm_ms: PositiveMs = 30_000  # before each step back
    return_permille: Share = 250  # of what a class had, at each step back
    most_nodes_permille: Share = 200  # of a partition's nodes for one service; one at least
    objectives: Annotated[tuple[Objective, ...], Meta(max_length=64)] = ()
