"""Sections of the policy on how a node acts: between two samples, and when a pod has to go.

Read by `schemas.policy.document`; `node_agent.reflex` and `node_agent.evictions` take the values.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.policy.units import Milli, Ms, Part, Percent, Permille, PositiveMs


class Reflex(Part, frozen=True):
    """An online pod is held up while best-effort work runs: cut it now, ask the law later."""

    enabled: bool = True
    poll_ms: Annotated[int, Meta(ge=20, le=1000)] = 50
    polls: Annotated[int, Meta(ge=2, le=20)] = 2  # in a row, before anything is done
    stall_permille: Permille = 200  # of the time, beyond what is normal for the pod
    wait_permille: Permille = 300  # over all the looks, of a pod that runs no more than usual
    busier_permille: Permille = 400  # it runs more by so much of a CPU, at least
    busier_percent: Percent = 50  # and by so much of what it usually does
    normal_ms: PositiveMs = 30_000  # what is normal follows so slowly
    least_milli: Milli = 50  # best-effort work that uses less is not the cause
    keep_percent: Percent = 25  # of the bound in force, at each cut; never below the floor
    hold_ms: PositiveMs = 3_000  # after the last cut nothing is raised


class Eviction(Part, frozen=True):
    """Who ends a pod that is ordered out, and how long it may take to end by itself.

    Memory's last gate always kills at once.
    """

    executor: Literal["auto", "kill", "cri", "api"] = "auto"
    grace_ms: Ms = 10_000  # asked for CPU; then it is killed
    memory_grace_ms: Ms = 0  # asked for memory, which the pod holds until it ends
    api_kill_after_ms: Ms = 0  # handed to the bridge and still there: killed; 0: never
    api_delete: bool = False  # deleted where no Eviction API is served; never against a budget
