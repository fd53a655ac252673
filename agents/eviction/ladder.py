"""Escalation: when orders free nothing, other and higher pods are asked as well, with a reason.

A rung is a bound of priority. Work goes rung by rung anyway, for priority comes first; what
escalation changes is that pods up to the rung are taken as equals, the least tried first, so that
a pod that will not go does not stand before all others for ever.
"""

from __future__ import annotations

from agents.classes import PRIORITY_RANGES
from agents.table import ABSENT

RUNGS: tuple[int, ...] = tuple(
    high for _, high, name in reversed(PRIORITY_RANGES) if name in ("batch", "mid")
)
"""Highest priority of each rung but the last, which has no bound: batch and below, then mid."""
REASONS = ("", "_escalated_to_mid", "_escalated_to_all")
"""What is added to the reason of an order that starts at each rung."""


def rung_of(priority: int) -> int:
    """The first rung that admits the priority."""
    for rung, most in enumerate(RUNGS):
        if priority <= most:
            return rung
    return len(RUNGS)


def start_of(fruitless: int, patience: int) -> int:
    """The rung to start at after so many orders in a row that freed nothing; patience 0: never."""
    return min(fruitless // patience, len(RUNGS)) if patience > 0 else 0


def fruitless_after(fruitless: int, need_at_order: int, need: int) -> int:
    """Orders in a row that freed nothing, judged when the next one is due.

    ``need_at_order`` ABSENT: there was none. Freed is what made the need smaller.
    """
    if need <= 0:
        return 0
    if need_at_order == ABSENT:
        return fruitless
    return fruitless + 1 if need >= need_at_order else 0
