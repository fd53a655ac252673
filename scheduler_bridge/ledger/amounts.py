"""Sums and bounds of `Amount`, each of the four figures for itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agents.inventory import LARGEST
from scheduler_bridge.reconcile import Amount

NOTHING = Amount(0, 0)
MAX_AMOUNT = LARGEST
"""More than any machine has; who says more has said this much, so that sums stay numbers."""


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum, at most `MAX_AMOUNT` of each; `NOTHING` of none."""
    cpu_milli = memory_bytes = mid_cpu_milli = mid_memory_bytes = 0
    for one in amounts:
        cpu_milli += one.cpu_milli
        memory_bytes += one.memory_bytes
        mid_cpu_milli += one.mid_cpu_milli
        mid_memory_bytes += one.mid_memory_bytes
    found = (cpu_milli, memory_bytes, mid_cpu_milli, mid_memory_bytes)
    return Amount(*(min(figure, MAX_AMOUNT) for figure in found))


def less(one: Amount, other: Amount) -> Amount:
    """What is left of ``one``, never below nothing."""
    return each(lambda a, b: max(0, a - b), one, other)


def larger(one: Amount, other: Amount) -> Amount:
    """The larger of each figure."""
    return each(max, one, other)


def smaller(one: Amount, other: Amount) -> Amount:
    """The smaller of each figure."""
    return each(min, one, other)


def within(one: Amount, bound: Amount) -> bool:
    """Whether no figure is above its bound."""
    return all(a <= b for a, b in zip(one.each(), bound.each(), strict=True))


def each(law: Callable[[int, int], int], one: Amount, other: Amount) -> Amount:
    """``law`` of each pair of figures."""
    return Amount(*map(law, one.each(), other.each()))
