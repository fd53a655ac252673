"""Memory's last gate: when a node is nearly full, best-effort pods go until it is not.

The same before a memory limit at or above their root (their own, or that of all pods) is reached:
there the kernel would kill, and whom it likes.

`agents.step` calls `decide` for each wave. By policy also: pods that offer themselves, in the order
they say, and requests beyond what is lent; victims are best-effort pods in every case. Formulas:
`agents.eviction`, after koordinator `qosmanager/plugins/memoryevict/memory_evict.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.eviction import node, overdraft
from agents.eviction.gate import ALONE, FULL, LIMIT, Gate, Short, serve
from agents.eviction.overdraft import lent_by_kind, standing
from agents.eviction.plan import ALLOCATABLE, BEST_EFFORT, USAGE, Node, Rule
from agents.eviction.release import by_limit, by_usage
from agents.table import ABSENT, Field, Ints

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave

GATE = Gate(
    "evict_memory", "memory", "evicted_ms", "fruitless", "need_at_order", "memory_overdrawn_ms"
)
NODE_FIELDS = (
    *GATE.fields(),
    overdraft.ASKED,
    Field("evictions_wanted", np.uint16),  # pods, by the last sample, of every eviction decider
)
POD_FIELDS = (
    Field("ordered_ms", fill=ABSENT),  # log time of the order that it goes
    Field("tries", np.int32),  # orders so far
)


def decide(state: PartitionState, wave: Wave, folded: Folded, out: list[Output]) -> None:
    """Orders of this wave, in log order, because all nodes draw on one budget."""
    nodes, rows = state.nodes, folded.rows
    nodes["evictions_wanted"][rows] = 0
    if state.policy is None:
        return
    enabled = law.switch(state, rows, "evict_memory.enabled")
    if not enabled.any():
        return
    capacity = nodes.take("capacity", rows)[:, 1]
    total, available = folded.memory_total, folded.memory_available
    sure = enabled & folded.known & (capacity > 0) & (available > 0) & (available <= total)
    used = np.where(sure, total - available, 0)
    threshold = law.column(state, rows, "evict_memory.threshold_percent")
    lower = law.column(state, rows, "evict_memory.lower_percent")
    full = by_usage(np.maximum(capacity, 1), used, threshold, lower) > 0
    over = standing(state, folded, "evict_memory", "memory", sure, GATE.overdrawn_ms)
    beyond = _beyond(state, folded)
    GATE.relieve(state, rows[sure & ~(full | over | (beyond > 0))])
    for at in np.flatnonzero(sure & (full | over | (beyond > 0))).tolist():
        row, has, uses = int(rows[at]), int(capacity[at]), int(used[at])
        rule, excess = law.of(state, row).evict_memory, int(beyond[at])
        named = (
            (BEST_EFFORT, rule.best_effort_enabled and (full[at] or excess > 0)),
            (ALLOCATABLE, over[at]),
            (USAGE, rule.usage_enabled and full[at]),
        )
        features = frozenset(name for name, on in named if on)
        lent = lent_by_kind(state, row, "memory")
        figures = Node(has, uses, lent, beyond_bytes=excess)
        terms = {"capacity": has, "used": uses, "percent": uses * 100 // has}
        if excess:
            terms["limit"] = int(folded.memory_limit[at])
            terms["limited"] = int(folded.memory_limited[at])
        marks = Rule.of(rule, (rule.threshold_percent, rule.lower_percent))
        short = Short(rule, marks, features, figures, terms)
        serve(state, wave, at, GATE, short, _budget if full[at] else _budget_at_limit, out)


def _beyond(state: PartitionState, folded: Folded) -> Ints:
    """What is to be freed under the next memory limit above best-effort work [w]; 0: nothing."""
    rows, limit, used = folded.rows, folded.memory_limit, folded.memory_limited
    margin = law.column(state, rows, "evict_memory.limit_margin_bytes")
    lower = law.column(state, rows, "evict_memory.limit_lower_bytes")
    known = law.switch(state, rows, "evict_memory.limit_enabled") & (limit > 0) & (used >= 0)
    result: Ints = np.where(known, by_limit(limit, used, margin, lower), 0)
    return result


def _budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now, and why so many: the last gate knows one pod by itself."""
    left, against = node.budget(state, log_ms)
    if against == node.FLEET_UNKNOWN:
        return 1, ALONE[FULL]
    return left, against or FULL


def _budget_at_limit(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """The same, where the node is not full but a limit on it is nearly reached."""
    left, reason = _budget(state, log_ms)
    return left, {FULL: LIMIT, ALONE[FULL]: ALONE[LIMIT]}.get(reason, reason)
