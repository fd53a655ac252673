"""Rules between keys of a policy; called once a document has been read key by key."""

from __future__ import annotations

from schemas.errors import BadPolicy
from schemas.policy.document import Policy


def check(policy: Policy, source: str) -> None:
    """Rules between keys."""
    evict = policy.evict_memory
    if evict.lower_percent >= evict.threshold_percent:
        raise BadPolicy(
            f"{source}: evict_memory.lower_percent is {evict.lower_percent}; allowed: 0 to "
            f"threshold_percent - 1 = {evict.threshold_percent - 1}"
        )
    loop = policy.loop
    if loop.command_ttl_ms < 3 * loop.tick_ms:
        raise BadPolicy(
            f"{source}: loop.command_ttl_ms is {loop.command_ttl_ms}; allowed: at least three "
            f"ticks, {3 * loop.tick_ms}"
        )
    if not loop.silent_after_ms < loop.withdraw_after_ms <= loop.forget_after_ms:
        raise BadPolicy(
            f"{source}: loop.silent_after_ms < withdraw_after_ms <= forget_after_ms must hold, "
            f"not {loop.silent_after_ms}, {loop.withdraw_after_ms}, {loop.forget_after_ms}"
        )
