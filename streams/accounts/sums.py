"""Sums that add up: integers, counts by name, spreads. Every family's sums are made of these."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Self

MS_PER_HOUR = 3_600_000
US_PER_HOUR = 1000 * MS_PER_HOUR
DAY_MS = 24 * MS_PER_HOUR
GIB = 1 << 30
PERMILLE = 1000
_BITS = 11
"""A spread tells values apart to one part in 1024; below 2048 it is exact."""


@dataclass(slots=True)
class Spread:
    """How values are distributed, each with a weight: non-negative integers in fine buckets.

    ``beyond`` is the weight of what is known to lie above every value, and no more.
    """

    buckets: dict[int, int] = field(default_factory=dict)  # lower edge -> weight
    weight: int = 0
    beyond: int = 0

    def note(self, value: int, weight: int = 1) -> None:
        """Count a value; a weight of 0 is nothing."""
        if weight:
            edge = _edge(value)
            self.buckets[edge] = self.buckets.get(edge, 0) + weight
            self.weight += weight

    def note_beyond(self, weight: int) -> None:
        """Count what is larger than anything that could be said."""
        self.beyond += weight
        self.weight += weight

    def add(self, other: Spread) -> None:
        """Take the values of another over."""
        for edge, weight in other.buckets.items():
            self.buckets[edge] = self.buckets.get(edge, 0) + weight
        self.weight += other.weight
        self.beyond += other.beyond

    def at(self, permille: int, *, above: bool = False, upper: bool = False) -> int | None:
        """The smallest value that ``permille`` of the weight lies at or below (``above``: more than
        that); None when there is no weight, or it lies beyond. ``upper``: the end of its bucket.
        """
        held = 0
        for edge in sorted(self.buckets):
            held += self.buckets[edge]
            reached = held * PERMILLE - permille * self.weight
            if reached > 0 or (reached == 0 and not above):
                return edge | ((1 << _spare(edge)) - 1) if upper else edge
        return None


def _edge(value: int) -> int:
    """The lower edge of the bucket that holds ``value``."""
    spare = _spare(value)
    return value >> spare << spare


def _spare(value: int) -> int:
    """Bits of a value that a bucket does not tell apart."""
    return max(value.bit_length() - _BITS, 0)


@dataclass(slots=True)
class Sums:
    """Base of a family's sums: `add` adds field by field."""

    def add(self, other: Self) -> None:
        """Add what another of the same kind has summed up."""
        for one in fields(self):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(ours, int):
                setattr(self, one.name, ours + theirs)
            elif isinstance(ours, Counter):
                ours.update(theirs)
            elif isinstance(ours, set):
                ours |= theirs
            else:
                ours.add(theirs)


def ratio(part: int, whole: int) -> float | None:
    """``part / whole``; None where there is no whole: no ratio is not a ratio of 0."""
    return part / whole if whole else None
