"""The ladder on which classes are called back, the first of the order first; whole numbers only.

`agents.slo_guard` keeps how far down a node is and asks for the next rung and for what each class
keeps there. A rung is permille of what classes had, summed in their order: with two classes called
back whole it goes from 0 to 2000.
"""

from __future__ import annotations

from agents.lending.amounts import PERMILLE
from schemas.policy import SloGuard

CLASSES = ("free", "batch", "mid")
Shares = dict[str, int]
"""Permille that each class keeps."""


def bottom(rule: SloGuard) -> int:
    """The lowest rung: as much of every class as may be called back."""
    return len(rule.order) * rule.most_permille


def down(rule: SloGuard, called: int) -> int:
    """One step down; it ends with the class that it began in."""
    if called >= bottom(rule):
        return bottom(rule)
    whole = rule.most_permille
    return min(called + rule.step_permille, (called // whole + 1) * whole)


def up(rule: SloGuard, called: int) -> int:
    """One step back; it ends with the class that it began in."""
    if called <= 0 or not bottom(rule):
        return 0
    whole = rule.most_permille
    called = min(called, bottom(rule))
    return max(called - rule.return_permille, (called - 1) // whole * whole)


def kept(rule: SloGuard, called: int) -> Shares:
    """What each class keeps; a class that the order does not name keeps all."""
    shares = dict.fromkeys(CLASSES, PERMILLE)
    for place, name in enumerate(rule.order):
        gone = min(max(called - place * rule.most_permille, 0), rule.most_permille)
        shares[name] = PERMILLE - gone
    return shares


def bound_milli(whole: int, batch: int, mid: int, shares: Shares) -> int:
    """CPU that best-effort work may use of the ``whole`` that it had.

    Its pods ask for ``batch`` and ``mid`` on these classes; what is left is free's. The order in
    which they are served is mid, batch, free.
    """
    of_mid = min(mid, whole)
    of_batch = min(batch, whole - of_mid)
    of_free = whole - of_mid - of_batch
    parts = {"free": of_free, "batch": of_batch, "mid": of_mid}
    return sum(part * shares[name] // PERMILLE for name, part in parts.items())
