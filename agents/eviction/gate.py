"""One node that is short of something: who is ordered out now, and the record that says why.

`agents.evict_memory` and `agents.evict_cpu` call `serve` for each node in need. Orders draw on one
budget, so nodes are served in log order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agents import emit
from agents.eviction import ladder, node, plan
from agents.eviction.candidate import Candidate
from agents.eviction.passes import run
from agents.guards import cooled
from agents.table import ABSENT, Field, Ints

if TYPE_CHECKING:
    from agents.log import Output
    from agents.state import PartitionState
    from agents.wave import Wave
    from schemas.policy import EvictCpu, EvictMemory

Budget = Callable[["PartitionState", int], tuple[int, str]]
"""Pods that may be ordered out at a log time, and the reason that goes with it."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One decider's resource and the names of its columns; see `fields`."""

    decider: Literal["evict_memory", "evict_cpu"]
    resource: Literal["memory", "cpu"]
    evicted_ms: str
    fruitless: str
    need_at_order: str

    def fields(self) -> tuple[Field, ...]:
        """Log time of the last order; orders in a row that freed nothing; the need at the last."""
        return (
            Field(self.evicted_ms, fill=ABSENT),
            Field(self.fruitless),
            Field(self.need_at_order, fill=ABSENT),
        )

    def relieve(self, state: PartitionState, rows: Ints) -> None:
        """These nodes need nothing: what was in vain before is forgotten."""
        state.nodes[self.fruitless][rows] = 0
        state.nodes[self.need_at_order][rows] = ABSENT


def serve(
    state: PartitionState, wave: Wave, at: int, gate: Gate, rule: EvictMemory | EvictCpu,
    need: int, terms: dict[str, int], budget_of: Budget, out: list[Output],
) -> None:  # fmt: skip
    """Order pods out until ``need`` (bytes, or millicores requested) is covered, within budget.

    What is going already counts as freed; after an order the node rests for the cool-down.
    """
    nodes, row, log_ms = state.nodes, wave.seats[at].row, wave.log_ms[at]
    pods = node.best_effort_pods(state, wave.seats[at], log_ms, gate.resource)
    going = [pod for pod in pods if pod.going]
    fruitless = ladder.fruitless_after(
        int(nodes[gate.fruitless][row]), int(nodes[gate.need_at_order][row]), need
    )
    start = ladder.start_of(fruitless, rule.escalate_after_orders)
    task = plan.best_effort_task(gate.resource, need, pods, start)
    releases = plan.releases_of(gate.resource, pods)
    gone = [pod.uid for pod in going]
    wanted = len(run([task], releases, gone).evicted)
    nodes["evictions_wanted"][row] += wanted
    if not wanted or not cooled(log_ms, int(nodes[gate.evicted_ms][row]), rule.cooldown_ms):
        return
    budget, reason = budget_of(state, log_ms)
    named = run([task], releases, gone, budget).evicted
    if not named:
        return
    nodes[gate.evicted_ms][row] = log_ms
    if not rule.dry_run:
        nodes[gate.fruitless][row], nodes[gate.need_at_order][row] = fruitless, need
        node.book(state, log_ms, [pod for pod in pods if pod.uid in named])
    credited = _credit(gate, going)
    said = terms | {
        "release": need,
        "credited": credited,
        "wanted": wanted,
        "budget": budget,
        "fruitless": fruitless,
    }
    emit.command(
        state, wave, at, gate.decider, reason + ladder.REASONS[start], said, out,
        dry_run=rule.dry_run, pods=tuple(named),
        release_bytes=need - credited if gate.resource == "memory" else 0,
    )  # fmt: skip


def _credit(gate: Gate, going: list[Candidate]) -> int:
    """What pods that are going release: memory that they use, CPU that they request."""
    if gate.resource == "memory":
        return sum(pod.used or 0 for pod in going)
    return sum(pod.request for pod in going)
