"""How best-effort work was held back, and how much of it was sent away.

Time is that of best-effort pods (pod-milliseconds). A pod is suppressed while its node's bound (the
quota read back, else the last command) lies below what the node's best-effort pods ask for, or
while the best-effort group was throttled for `THROTTLED_PERMILLE` of the time. Evictions are pods,
each counted once a node, when somebody says that they are gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from streams.accounts.sums import DAY_MS, MS_PER_HOUR, PERMILLE, Sums

THROTTLED_PERMILLE = 100


@dataclass(slots=True)
class Suppression(Sums):
    """Of best-effort pods."""

    ran_ms: int = 0
    suppressed_ms: int = 0


@dataclass(slots=True)
class Evictions(Sums):
    """``reasons``: how many for each reason of the order, as the audit log has it."""

    reasons: Counter[str] = field(default_factory=Counter)


class SuppressionFigures(Struct, frozen=True):
    """``suppressed_permille`` is rounded up: a gate reads it."""

    best_effort_pod_hours: float
    suppressed_pod_hours: float
    suppressed_permille: int | None


class EvictionFigures(Struct, frozen=True):
    """``per_1000_node_days``: None without node time."""

    pods: int
    per_1000_node_days: float | None
    by_reason: dict[str, int]


def is_suppressed(bound_milli: int, asked_milli: int, throttled_us: int, span_us: int) -> bool:
    """Whether best-effort work was held back; bounds below 0 bind nothing."""
    bound = 0 <= bound_milli < asked_milli
    return bound or throttled_us * PERMILLE >= max(span_us, 1) * THROTTLED_PERMILLE


def figures(sums: Suppression) -> SuppressionFigures:
    """The sums in hours, and the share."""
    share = -(-sums.suppressed_ms * PERMILLE // sums.ran_ms) if sums.ran_ms else None
    return SuppressionFigures(
        best_effort_pod_hours=sums.ran_ms / MS_PER_HOUR,
        suppressed_pod_hours=sums.suppressed_ms / MS_PER_HOUR,
        suppressed_permille=share,
    )


def eviction_figures(sums: Evictions, node_ms: int) -> EvictionFigures:
    """How many, by reason, and for each 1,000 days of a node."""
    count = sums.reasons.total()
    return EvictionFigures(
        pods=count,
        per_1000_node_days=count * 1000 * DAY_MS / node_ms if node_ms else None,
        by_reason=dict(sorted(sums.reasons.items())),
    )
