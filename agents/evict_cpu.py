"""CPU that best-effort work asked for and does not get: some of it is better off elsewhere.

`agents.step` calls `decide` for each wave, after memory's gate. When the limit on best-effort work
covers only a small part of its requests, over a window and now, and what it may use is used up,
pods go until the rest is satisfied. By policy also: pods that offer themselves where the node is
busy, and requests beyond what is lent; victims are best-effort pods in every case. Formulas:
`agents.eviction.release`, after koordinator `qosmanager/plugins/cpuevict/cpu_evict.go`. CPU can be
throttled: without the fleet's word nobody goes, also not by a node's own decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.eviction import node, plan, release
from agents.eviction.gate import Gate, Short, serve
from agents.eviction.overdraft import LARGEST_MILLI, all_milli, lent_by_kind, standing
from agents.table import ABSENT, Array, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave

SLICES = 5
"""Parts of the window that are kept apart; it is exact to one of them."""
USED, REQUEST, LIMIT, NODE, COUNT = range(5)
"""What a slice sums up: millicores, those of best effort and of the node; how many points."""
CORE_MILLI = 1000
KEYS = (
    "window_ms", "cooldown_ms", "satisfaction_lower_percent", "satisfaction_upper_percent",
    "be_usage_percent",
)  # fmt: skip
GATE = Gate(
    "evict_cpu", "cpu", "cpu_evicted_ms", "cpu_fruitless", "cpu_need_at_order", "cpu_overdrawn_ms"
)
NODE_FIELDS = (
    *GATE.fields(),
    Field("starved", shape=(SLICES, 5)),  # sums in millicores, and points: see COUNT
    Field("starved_ms", shape=(SLICES,), fill=ABSENT),  # event time at which each slice begins
)
POD_FIELDS: tuple[Field, ...] = ()


def decide(state: PartitionState, wave: Wave, folded: Folded, out: list[Output]) -> None:
    """Orders of this wave, in log order; none where any of the figures is missing."""
    rows = folded.rows
    enabled = law.switch(state, rows, "evict_cpu.enabled")
    if state.policy is None or not enabled.any():
        return
    now = _now(state, folded)
    sure = enabled & (now[:, :NODE] >= 0).all(axis=1)
    window_ms, cooldown_ms, lower, upper, full = (
        law.column(state, rows, f"evict_cpu.{key}") for key in KEYS
    )
    sums = _note(state, folded, now, sure, window_ms)
    count = sums[:, COUNT]
    enough = release.covers(count, state.law.loop.tick_ms, window_ms)
    mean = sums[:, :COUNT] / np.maximum(count, 1)[:, None]
    starved = release.by_satisfaction(
        release.Satisfaction(mean[:, USED], mean[:, REQUEST], mean[:, LIMIT]),
        release.Satisfaction(*now[:, :NODE].T.astype(np.float64)), enough, lower, upper, full,
    )  # fmt: skip
    starved *= law.switch(state, rows, "evict_cpu.best_effort_enabled")
    busy = np.minimum(sums[:, NODE] // np.maximum(count, 1), now[:, NODE])
    hot = enough & _is_hot(state, rows, busy)
    over = standing(state, folded, "evict_cpu", "cpu", sure, GATE.overdrawn_ms)
    short = (starved > 0) | hot | over
    GATE.relieve(state, rows[sure & ~short])
    seen_ms = folded.event_ms - state.nodes["since_ms"].take(rows)
    for at in np.flatnonzero(sure & short & (seen_ms >= cooldown_ms)).tolist():
        row = int(rows[at])
        rule = law.of(state, row).evict_cpu
        named = (
            (plan.BEST_EFFORT, starved[at] > 0), (plan.ALLOCATABLE, over[at]),
            (plan.USAGE, hot[at]),
        )  # fmt: skip
        features = frozenset(name for name, on in named if on)
        has = int(state.nodes["capacity"][row, 0])
        lent = lent_by_kind(state, row, "cpu")
        figures = plan.Node(has, int(busy[at]), lent, int(starved[at]))
        used, request, limit, _ = now[at].tolist()
        terms = {"used": used, "request": request, "limit": limit, "points": int(count[at])}
        if hot[at]:
            terms |= {"busy": int(busy[at]), "capacity": has}
        marks = plan.Rule.of(
            rule,
            (rule.usage_threshold_percent, rule.usage_lower_percent),
            (rule.satisfaction_lower_percent, rule.satisfaction_upper_percent),
        )
        lacks = Short(rule, marks, features, figures, terms)
        serve(state, wave, at, GATE, lacks, _budget, out)


def _is_hot(state: PartitionState, rows: Ints, busy: Ints) -> Bools:
    """Nodes that are busy beyond the threshold, where the policy evicts by use."""
    on = law.switch(state, rows, "evict_cpu.usage_enabled")
    if not on.any():
        return on
    capacity = np.maximum(state.nodes.take("capacity", rows)[:, 0], 1)
    threshold, lower = (
        law.column(state, rows, f"evict_cpu.usage_{key}_percent") for key in ("threshold", "lower")
    )
    result: Bools = on & (release.by_usage(capacity, busy, threshold, lower) > 0)
    return result


def _now(state: PartitionState, folded: Folded) -> Ints:
    """Best-effort millicores used, requested, their limit [w, 4]; ABSENT where not known.

    The last column is the node's use, 0 where not known: then it is never busy.
    """
    nodes, rows = state.nodes, folded.rows
    capacity = nodes.take("capacity", rows)[:, 0]
    limit: Array = np.where(folded.quota_milli >= 0, folded.quota_milli, capacity)
    bound = state.nodes["cpus_count"].take(folded.rows)  # by CPU set there is no quota
    limit = np.where(bound >= 0, np.minimum(limit, bound * CORE_MILLI), limit)
    limit = np.where(folded.quota_known, limit, ABSENT)
    lent = nodes.take("offer", rows)[:, 0]
    by_allocatable = law.switch(state, rows, "evict_cpu.by_allocatable")
    limit = release.limit_of(limit, lent, by_allocatable=by_allocatable)
    request = np.where(folded.known, all_milli(state, rows), ABSENT)
    figures: Ints = np.stack(
        [folded.be_milli, request, limit, np.maximum(folded.node_milli, 0)], axis=1
    )
    return np.minimum(figures, LARGEST_MILLI)


def _note(
    state: PartitionState, folded: Folded, now: Ints, sure: Bools, window_ms: Ints
) -> Ints:  # fmt: skip
    """Add the points to their slices; the sums over the window [w, 5]."""
    nodes, rows = state.nodes, folded.rows
    slice_ms = np.maximum(window_ms // SLICES, 1)
    begins = folded.event_ms // slice_ms * slice_ms
    place, every = folded.event_ms // slice_ms % SLICES, np.arange(len(rows))
    sums, starts = nodes.take("starved", rows), nodes.take("starved_ms", rows)
    sums[every, place] *= (starts[every, place] == begins)[:, None]
    starts[every, place] = begins
    point = np.concatenate([now, np.ones((len(rows), 1), dtype=np.int64)], axis=1)
    sums[every, place] += np.where(sure[:, None], point, 0)
    nodes["starved"][rows], nodes["starved_ms"][rows] = sums, starts
    age_ms = begins[:, None] - starts
    live = (starts >= 0) & (age_ms >= 0) & (age_ms < (slice_ms * SLICES)[:, None])
    whole = np.zeros_like(point)
    for each in range(SLICES):
        whole += sums[:, each] * live[:, each, None]
    return whole


def _budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now, and why: without facts of the fleet none."""
    left, against = node.budget(state, log_ms)
    return left, against or "cpu_unsatisfied"
