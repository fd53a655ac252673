"""Why these pods go and not others: the keys of the order as terms of the audit log.

`agents.eviction.gate` puts them beside each order. ``pod0_`` is the first victim, ``pod1_`` the
second; ``next_`` is who would have gone after the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.eviction.candidate import Candidate
from agents.eviction.ladder import rung_of
from agents.eviction.passes import Outcome, Task
from agents.eviction.plan import FEATURES
from agents.table import ABSENT

TOLD = 16
"""Victims of one order that are told in full; an order of more says how many."""


def terms(
    pods: Sequence[Candidate], tasks: Sequence[Task], done: Outcome, start: int, first_slot: int
) -> dict[str, int]:
    """Terms of the victims in ``done``, and of the next in the order of the last one's task.

    ``first_slot`` is the slot of the node's first pod: places are those of its pod set.
    """
    by_uid = {pod.uid: pod for pod in pods}
    told: dict[str, int] = {}
    for number, uid in enumerate(done.evicted[:TOLD]):
        feature = done.task_of[uid]
        told |= _keys(f"pod{number}_", by_uid[uid], feature, start, first_slot)
    if len(done.evicted) > TOLD:
        told["untold"] = len(done.evicted) - TOLD
    following = _next(by_uid, tasks, done)
    if following is not None:
        last = done.task_of[done.evicted[-1]]
        told |= _keys("next_", following, last, start, first_slot)
    return told


def _next(
    by_uid: Mapping[str, Candidate], tasks: Sequence[Task], done: Outcome
) -> Candidate | None:
    """The first pod that stays, in the order that the last victim was taken from."""
    last = done.task_of[done.evicted[-1]]
    for task in tasks:
        if task.name == last:
            for uid in task.order:
                if uid not in done.task_of and not by_uid[uid].going:
                    return by_uid[uid]
    return None


def _keys(prefix: str, pod: Candidate, feature: str, start: int, first_slot: int) -> dict[str, int]:
    cost, lost_ms = pod.work.cost()
    said = {
        "place": pod.slot - first_slot,
        "feature": FEATURES.index(feature),
        "rung": max(rung_of(pod.priority), start),
        "tries": pod.tries,
        "eviction_priority": pod.eviction_priority,
        "priority": pod.priority,
        "sub_priority": pod.priority if pod.sub_priority is None else pod.sub_priority,
        "cost": cost,
        "lost_ms": lost_ms,
        "used": ABSENT if pod.used is None else pod.used,
        "request": pod.request,
    }
    return {f"{prefix}{name}": value for name, value in said.items()}
