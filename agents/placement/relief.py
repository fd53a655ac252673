"""Which pods leave a hot node, and where each would find room: one round over all nodes.

Called by the scheduler bridge's evictor after `balance.classify` and `anomaly`. Rules: koordinator
`descheduler/framework/plugins/loadaware/low_node_load.go`, `utilization_util.go` (balance).
Amounts [n, r] are in the order of the names of `Bounds`; -1 is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from agents.placement import balance, utilization
from agents.table import Bools, Ints

SCORE_SCALE = 1000
"""Scores are thousandths of a node, as the peer's."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A pod that may leave its node, in the order in which they would go. ``use`` [r]."""

    uid: str
    use: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """``uid`` leaves the node of row ``source``; ``target`` had room for it."""

    uid: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Relief:
    """The moves in order, and why other sources kept what they have, by row."""

    moves: tuple[Move, ...]
    stopped: dict[int, str]


class Places(Protocol):
    """What the caller knows beside usage: arbitration, and what pods ask for."""

    def may_leave(self, uid: str) -> bool:
        """Whether this pod may go now, after those that were taken."""

    def fits(self, uid: str, row: int) -> bool:
        """Whether it could be placed on the node of this row, after those that were taken."""

    def take(self, uid: str, row: int) -> None:
        """It leaves, for that node."""


def why_not(kind: Ints, acting: Bools, targets_above: int) -> str:
    """What stands against this round as a whole, in the peer's order; "" when nothing does.

    ``acting`` are the sources that were hot for long enough.
    """
    if not balance.sources(kind).any():
        return "no_source"
    if not acting.any():
        return "not_long_enough"
    targets = int(np.count_nonzero(balance.targets(kind)))
    if targets == 0:
        return "no_target"
    if targets <= targets_above:
        return "few_targets"
    return "all_targets" if targets == len(kind) else ""


def hottest_first(rows: Ints, usage: Ints, allocatable: Ints, weights: Ints) -> list[int]:
    """Rows by descending weighted usage in thousandths of the node; ties by row."""
    some = np.where(allocatable > 0, allocatable, 1)
    share = np.where(allocatable > 0, np.maximum(usage, 0) * SCORE_SCALE // some, 0)
    score = (share * weights).sum(axis=1, dtype=np.int64)
    return sorted(rows.tolist(), key=lambda row: (-int(score[row]), row))


def relieve(
    limits: balance.Classified, usage: Ints, names: Sequence[str], order: Sequence[int],
    pods: Callable[[int, Bools], Sequence[Movable]], places: Places,
) -> Relief:  # fmt: skip
    """Take pods from the nodes of ``order`` until each is within its high limits.

    ``pods`` gives those of a row in their order, by which resources [r] are over. A node is left
    alone when it is within its limits, or when the room of all targets is used up in any resource.
    A pod goes only if one target stays within its high limits with it; that room is then taken.
    """
    usage = usage.copy()
    room = np.array(
        [balance.room(limits.kind, usage, limits, names)[name] for name in names], dtype=np.int64
    )
    rows = np.flatnonzero(balance.targets(limits.kind))
    moves: list[Move] = []
    stopped: dict[int, str] = {}
    for row in order:
        for pod in pods(row, utilization.exceeds(usage[row], limits.high[row])):
            if not utilization.exceeds(usage[row], limits.high[row]).any():
                stopped[row] = "relieved"
                break
            if (room <= 0).any():
                stopped[row] = "no_room"
                break
            use = np.array(pod.use, dtype=np.int64)
            if not places.may_leave(pod.uid):
                continue
            target = _target(pod.uid, use, rows, usage, limits, places)
            if target is None:
                continue
            places.take(pod.uid, target)
            moves.append(Move(pod.uid, row, target))
            usage[row] -= use
            usage[target] += use
            room -= use
        else:
            over = utilization.exceeds(usage[row], limits.high[row]).any()
            stopped[row] = "no_pod_left" if over else "relieved"
    return Relief(tuple(moves), stopped)


def _target(
    uid: str, use: Ints, rows: Ints, usage: Ints, limits: balance.Classified, places: Places
) -> int | None:
    """The target with the most room left for the pod in its scarcest resource; ties by row."""
    if (use < 0).any():
        return None  # nobody knows what it would bring with it
    left = limits.high[rows] - usage[rows] - use
    within: Bools = np.all(left >= 0, axis=1)
    scarcest = left.min(axis=1, initial=np.iinfo(np.int64).max)
    for place in sorted(range(len(rows)), key=lambda i: (-int(scarcest[i]), i)):
        row = int(rows[place])
        if within[place] and places.fits(uid, row):
            return row
    return None
