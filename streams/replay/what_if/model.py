"""How suppressed work would have behaved: the only place where what-if leaves what is known. Pure.

`streams.replay.what_if.twin` asks for every sample behind a mark. Millicores and microseconds,
whole numbers, no clock and no chance: the same recording gives the same answer twice.

What best-effort work wants (`Wish`): what it used, while its bound did not hold it. While held
(95 % of the bound used, or throttled for 1 % of the time) at least what it used, and of these the
most: what it used when it was last free, up to ten minutes ago; what it used and one core for all
the time that a runqueue of it was throttled (`cpu.stat` sums that over CPUs). Never above the
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NO_BOUND = -1
HELD_PERCENT = 95
HELD_PERMILLE = 10
LATELY_US = 600_000_000
CORE_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """What was recorded between two samples of one start of a node's agent."""

    elapsed_us: int
    used_milli: int  # by the best-effort group
    others_milli: int  # by all else
    throttled_us: int  # of that group, over all CPUs; 0 where not measured
    bound_milli: int  # in force at its end; `NO_BOUND`
    capacity_milli: int


@dataclass(slots=True)
class Wish:
    """What the best-effort group of one node wants; remembers what it used when last free."""

    free_milli: int = -1
    free_us: int = -1

    def of(self, seen: Interval, at_us: int) -> int:
        """Millicores wanted in an interval that ends at ``at_us``; never below what was used."""
        if not held(seen):
            self.free_milli, self.free_us = seen.used_milli, at_us
            return seen.used_milli
        queued = seen.used_milli + seen.throttled_us * CORE_MILLI // seen.elapsed_us
        lately = self.free_milli if at_us - self.free_us <= LATELY_US else -1
        return max(seen.used_milli, min(max(queued, lately), seen.capacity_milli))


def held(seen: Interval) -> bool:
    """Whether its bound kept the group from using more."""
    if seen.bound_milli < 0:
        return False
    full = seen.used_milli * 100 >= seen.bound_milli * HELD_PERCENT
    return full or seen.throttled_us * 1000 >= seen.elapsed_us * HELD_PERMILLE


def use(
    seen: Interval, wants_milli: int, bound_milli: int, more_milli: int = 0, less_milli: int = 0
) -> int:
    """What the group would have used under ``bound_milli``, in millicores.

    ``more_milli`` is wanted by pods that live on, ``less_milli`` was used by pods that would have
    been gone. The same bound and the same pods: what was used. What is used beyond that must fit
    beside all else on the machine.
    """
    same = bound_milli == seen.bound_milli
    if same and not more_milli and not less_milli:
        return seen.used_milli
    wants = left_of(seen, wants_milli, less_milli)
    wider = bound_milli < 0 <= seen.bound_milli or bound_milli > seen.bound_milli >= 0
    if not wider:
        wants = min(wants, seen.used_milli)
    room = max(seen.capacity_milli - seen.others_milli, seen.used_milli)
    result = min(wants + more_milli, room)
    return result if bound_milli < 0 else min(result, bound_milli)


def left_of(seen: Interval, wants_milli: int, less_milli: int) -> int:
    """What is wanted without pods that used ``less_milli``: they take their share with them."""
    gone = min(less_milli, seen.used_milli)
    return wants_milli - wants_milli * gone // max(seen.used_milli, 1)


def split(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` in proportion to the weights, equal where all are 0; the parts add up to it."""
    whole = sum(weights)
    if not whole:
        weights = [1] * len(weights)
        whole = len(weights)
    parts, done, before = [], 0, 0
    for weight in weights:
        before += weight
        upto = total * before // whole
        parts.append(upto - done)
        done = upto
    return parts
