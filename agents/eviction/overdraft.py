"""Nodes on which best-effort work asks for more than is lent, and has for a while.

`agents.evict_memory` and `agents.evict_cpu` ask once a wave, where the policy wants eviction by
allocatable. An offer of nothing, or none that is known, is no reason to evict: CPU is throttled
then, and memory has its last gate. What was overdrawn must stay so for a cool-down, since what is
lent falls at once and rises slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from agents import law
from agents.classes import BEST_EFFORT, HOST
from agents.eviction.node import MID_ABOVE, kinds_of
from agents.table import ABSENT, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.state import PartitionState

LARGEST_ASKED = 1 << 43
"""Bytes or millicores; 500 pods of it stay exact in a float."""
SINCE, LATEST = 0, 1
UNITS = {"cpu": 0, "memory": 1}


def field(column: str) -> Field:
    """Event times since when a node is overdrawn, and when that was last seen."""
    return Field(column, shape=(2,), fill=ABSENT)


def standing(
    state: PartitionState, folded: Folded, decider: Literal["evict_memory", "evict_cpu"],
    resource: Literal["cpu", "memory"], sure: Bools, column: str,
) -> Bools:  # fmt: skip
    """Which nodes of the wave [w] have been overdrawn for a cool-down, and still are."""
    rows = folded.rows
    on = sure & law.switch(state, rows, f"{decider}.allocatable_enabled")
    if not on.any():
        return on
    on &= law.switch(state, rows, "capacity.enabled") & folded.known
    asked = _asked(state, folded, UNITS[resource], decider)
    there = np.minimum(offers(state, rows, resource), LARGEST_ASKED)
    threshold = law.column(state, rows, f"{decider}.allocatable_threshold_percent")
    over = on & ((there > 0) & (asked * 100 > there * threshold[:, None])).any(axis=1)
    seen = state.nodes.take(column, rows)
    unbroken = folded.event_ms - seen[:, LATEST] <= state.law.loop.silent_after_ms
    since_ms = np.where(unbroken & (seen[:, SINCE] >= 0), seen[:, SINCE], folded.event_ms)
    latest_ms = np.where(over, folded.event_ms, ABSENT)
    since_ms = np.where(over, since_ms, ABSENT)
    state.nodes[column][rows] = np.stack([since_ms, latest_ms], axis=1)
    long_ms = law.column(state, rows, f"{decider}.cooldown_ms")
    result: Bools = over & (folded.event_ms - since_ms >= long_ms)
    return result


def offers(state: PartitionState, rows: Ints, resource: Literal["cpu", "memory"]) -> Ints:
    """What is lent to batch and to mid [n, 2]; negative: not known."""
    offer = state.nodes.take("offer", rows)
    result: Ints = offer[:, UNITS[resource] :: len(UNITS)]
    return result


def lent_by_kind(
    state: PartitionState, row: int, resource: Literal["cpu", "memory"]
) -> dict[str, int]:
    """What is lent on one node, by kind; kinds of which nothing is lent are left out."""
    (amounts,) = offers(state, np.array([row]), resource).tolist()
    return {
        kind: amount for kind, amount in zip(kinds_of(resource), amounts, strict=True) if amount > 0
    }


def _asked(state: PartitionState, folded: Folded, unit: int, decider: str) -> Ints:
    """Requests [w, 2] of best-effort pods up to the rule's priority, on batch and on mid."""
    pods, slots, rows = state.pods, folded.slots, folded.rows
    roles, priority = pods["roles"].take(slots), pods["priority"].take(slots)
    most = law.column(state, rows, f"{decider}.allocatable_priority_most").take(folded.owner)
    mine = ((roles & (BEST_EFFORT | HOST)) == BEST_EFFORT) & (priority <= most)
    request = np.minimum(pods.take("request", slots)[:, unit], LARGEST_ASKED) * mine
    cell = folded.owner * 2 + (priority > MID_ABOVE)
    return np.bincount(cell, request, len(rows) * 2).astype(np.int64).reshape(-1, 2)
