"""Which way a pod goes: pure, from the policy, who ordered it, and what this machine has.

Called by `node_agent.evictions` for each order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.policy import Eviction
from schemas.records import Decider

Executor = Literal["kill", "term", "cri", "api"]
"""``kill``: at once. ``term``: SIGTERM to its processes, ``cri``: the container runtime stops it,
and a kill when its time is over. ``api``: handed to the bridge, which asks the Eviction API.
"""
WATCH_MS = 60_000  # a pod that was handed over is looked after for so long


@dataclass(frozen=True, slots=True)
class Way:
    """``wait_ms``: until it is killed, or given up where ``kills`` is False."""

    executor: Executor
    wait_ms: int = 0
    kills: bool = True


def choose(rule: Eviction, decider: Decider, *, emergency: bool, has_runtime: bool) -> Way:
    """``emergency``: memory's last gate, which waits for nobody."""
    if emergency:
        return Way("kill")
    grace_ms = rule.memory_grace_ms if decider == "evict_memory" else rule.grace_ms
    if rule.executor == "api":
        kills = rule.api_kill_after_ms > 0
        return Way("api", rule.api_kill_after_ms if kills else WATCH_MS, kills)
    if rule.executor == "cri":
        return Way("cri", grace_ms)
    if grace_ms == 0:
        return Way("kill")
    by_runtime = rule.executor == "auto" and has_runtime
    return Way("cri" if by_runtime else "term", grace_ms)
