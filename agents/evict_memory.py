"""Memory's last gate: when a node is nearly full, best-effort pods go until it is not.

`agents.step` calls `decide` for each wave. Formulas: `agents.eviction`, after koordinator
`qosmanager/plugins/memoryevict/memory_evict.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.eviction import node
from agents.eviction.gate import Gate, serve
from agents.eviction.release import by_usage
from agents.table import ABSENT, Field

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave

GATE = Gate("evict_memory", "memory", "evicted_ms", "fruitless", "need_at_order")
NODE_FIELDS = (
    *GATE.fields(),
    Field("evictions_wanted"),  # pods, by the last sample, of every eviction decider
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
    release = by_usage(np.maximum(capacity, 1), used, threshold, lower)
    GATE.relieve(state, rows[sure & (release <= 0)])
    for at in np.flatnonzero(sure & (release > 0)).tolist():
        rule = law.of(state, int(rows[at])).evict_memory
        has, uses = int(capacity[at]), int(used[at])
        terms = {"capacity": has, "used": uses, "percent": uses * 100 // has}
        serve(state, wave, at, GATE, rule, int(release[at]), terms, _budget, out)


def _budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now, and why so many: the last gate knows one pod by itself."""
    left, against = node.budget(state, log_ms)
    if against == node.FLEET_UNKNOWN:
        return 1, "memory_full_fleet_unknown"
    return left, against or "memory_full"
