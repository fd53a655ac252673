"""Memory's last gate: when a node is nearly full, best-effort pods go until it is not.

`agents.step` calls `decide` for each wave. Formulas: `agents.eviction`, after koordinator
`qosmanager/plugins/memoryevict/memory_evict.go`. Only `best_effort_pods` makes candidates, and no
online pod becomes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import emit, law
from agents.eviction import ladder, node, plan
from agents.eviction.passes import run
from agents.eviction.release import by_usage
from agents.guards import cooled
from agents.table import ABSENT, Field

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave

NODE_FIELDS = (
    Field("evicted_ms", fill=ABSENT),  # log time of the last order
    Field("evictions_wanted"),  # pods, by the last sample
    Field("fruitless"),  # orders in a row that freed nothing
    Field("need_at_order", fill=ABSENT),  # bytes to free when the last order was given
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
    calm = rows[sure & (release <= 0)]
    nodes["fruitless"][calm], nodes["need_at_order"][calm] = 0, ABSENT
    for at in np.flatnonzero(sure & (release > 0)).tolist():
        _gate(state, wave, at, (int(capacity[at]), int(used[at]), int(release[at])), out)


def _gate(
    state: PartitionState, wave: Wave, at: int, figures: tuple[int, int, int], out: list[Output]
) -> None:
    """One node that is over the threshold."""
    assert state.policy is not None, "nobody is evicted without a policy"
    seat, log_ms, nodes = wave.seats[at], wave.log_ms[at], state.nodes
    rule = law.of(state, seat.row).evict_memory
    row, (capacity, used, release) = seat.row, figures
    pods = node.best_effort_pods(state, seat, log_ms, "memory")
    going = {pod.uid: pod.used or 0 for pod in pods if pod.going}
    fruitless = ladder.fruitless_after(
        int(nodes["fruitless"][row]), int(nodes["need_at_order"][row]), release
    )
    start = ladder.start_of(fruitless, rule.escalate_after_orders)
    task = plan.best_effort_task("memory", release, pods, start)
    releases = plan.releases_of("memory", pods)
    wanted = len(run([task], releases, going).evicted)
    nodes["evictions_wanted"][row] = wanted
    if not wanted or not cooled(log_ms, int(nodes["evicted_ms"][row]), rule.cooldown_ms):
        return
    budget, reason = _budget(state, log_ms)
    named = run([task], releases, going, budget).evicted
    if not named:
        return
    nodes["evicted_ms"][row] = log_ms
    if not rule.dry_run:
        nodes["fruitless"][row], nodes["need_at_order"][row] = fruitless, release
        node.book(state, log_ms, [pod for pod in pods if pod.uid in named])
    credited = sum(going.values())
    terms = {
        "capacity": capacity,
        "used": used,
        "percent": used * 100 // capacity,
        "release": release,
        "credited": credited,
        "wanted": wanted,
        "budget": budget,
        "fruitless": fruitless,
    }
    emit.command(
        state, wave, at, "evict_memory", reason + ladder.REASONS[start], terms, out,
        dry_run=rule.dry_run, pods=tuple(named), release_bytes=release - credited,
    )  # fmt: skip


def _budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now, and why so many: the last gate knows one pod by itself."""
    left, against = node.budget(state, log_ms)
    if against == node.FLEET_UNKNOWN:
        return 1, "memory_full_fleet_unknown"
    return left, against or "memory_full"
