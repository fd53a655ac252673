"""Nodes on which best-effort work asks for more than is lent, and has for a while.

`agents.evict_memory` and `agents.evict_cpu` ask once a wave, where the policy wants eviction by
allocatable. An offer of nothing, or none that is known, is no reason to evict: CPU is throttled
then, and memory has its last gate. What was overdrawn must stay so for a cool-down, since what is
lent falls at once and rises slowly. Requests are added up when a node's pods or its policy change
(`count`, called by `agents.side`), not at every sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from agents import law
from agents.classes import BEST_EFFORT, HOST
from agents.eviction.node import MID_ABOVE, kinds_of
from agents.lending.amounts import sums
from agents.table import ABSENT, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.state import PartitionState

LARGEST_ASKED = 1 << 43
"""Bytes or millicores; no node's sum leaves 63 bits, and times 100 neither."""
LARGEST_MILLI = 1 << 40
"""No node has a billion cores; cut here, so that no window's sum leaves 63 bits."""
SINCE, LATEST = 0, 1
UNITS = {"cpu": 0, "memory": 1}
ASKED = Field("asked", shape=(2 * len(UNITS) + 1,))
"""Requests of a node's best-effort pods up to its rules' priorities: of CPU on batch and on mid, of
memory on both; at last of CPU whatever the priority.
"""
DECIDERS = {"cpu": "evict_cpu", "memory": "evict_memory"}
SWITCHES = ("evict_cpu.enabled", "evict_memory.allocatable_enabled")
"""Keys of the policy of which one must be on for anybody to ask."""


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
    begin = 2 * UNITS[resource]
    asked = state.nodes.take("asked", rows)[:, begin : begin + 2]
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


def all_milli(state: PartitionState, rows: Ints) -> Ints:
    """CPU [n] that all best-effort pods of these nodes ask for."""
    result: Ints = state.nodes.take("asked", rows)[:, -1]
    return result


def count(state: PartitionState, rows: Ints) -> None:
    """Add the requests up anew: pods or the policies of these nodes may be others now."""
    if not any(state.laws.column(key).any() for key in SWITCHES):
        return
    pods = state.pods
    slots, owner, _ = state.slots_of(rows)
    mine = np.flatnonzero((pods["roles"].take(slots) & (BEST_EFFORT | HOST)) == BEST_EFFORT)
    slots, owner = slots[mine], owner[mine]
    request = np.minimum(pods.take("request", slots), LARGEST_ASKED)
    priority = pods["priority"].take(slots)
    above = (priority > MID_ABOVE).astype(np.int64)
    parts = np.zeros((len(slots), 2 * len(UNITS) + 1), dtype=np.int64)
    for resource, unit in UNITS.items():
        key = f"{DECIDERS[resource]}.allocatable_priority_most"
        counts = priority <= law.column(state, rows, key).take(owner)
        parts[np.arange(len(slots)), 2 * unit + above] = request[:, unit] * counts
    parts[:, -1] = np.minimum(request[:, 0], LARGEST_MILLI)
    state.nodes.put("asked", rows, sums(parts, owner, len(rows)))
