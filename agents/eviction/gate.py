"""One node that is short of something: who is ordered out now, and the record that says why.

`agents.evict_memory` and `agents.evict_cpu` call `serve` for each node in need. Orders draw on one
budget, so nodes are served in log order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from agents import emit
from agents.eviction import ladder, node, overdraft, plan, why
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
FULL, LIMIT = "memory_full", "memory_limit"
ALONE = {FULL: "memory_full_fleet_unknown", LIMIT: "memory_limit_fleet_unknown"}
"""Reasons of an order without the fleet's word: then best effort alone goes, by the last gate."""
REASONS = {plan.ALLOCATABLE: "overdrawn", plan.USAGE: "in_use"}
"""Reasons of the features that are off by default, after the resource's name."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One decider's resource and the names of its columns; see `fields`."""

    decider: Literal["evict_memory", "evict_cpu"]
    resource: Literal["memory", "cpu"]
    evicted_ms: str
    fruitless: str
    need_at_order: str
    overdrawn_ms: str

    def fields(self) -> tuple[Field, ...]:
        """Log time of the last order, of any gate in earnest or of this one in a dry run; orders in
        a row that freed nothing; the need at the last; since when it is overdrawn.
        """
        return (
            Field(self.evicted_ms, fill=ABSENT),
            Field(self.fruitless, np.int32),
            Field(self.need_at_order, fill=ABSENT),
            overdraft.field(self.overdrawn_ms),
        )

    def relieve(self, state: PartitionState, rows: Ints) -> None:
        """These nodes need nothing: what was in vain before is forgotten."""
        state.nodes[self.fruitless][rows] = 0
        state.nodes[self.need_at_order][rows] = ABSENT

    @property
    def names(self) -> dict[str, str]:
        """What pods call the features of this resource."""
        return {
            plan.BEST_EFFORT: f"be_{self.resource}",
            plan.ALLOCATABLE: f"{self.resource}_allocatable",
            plan.USAGE: self.resource,
        }


@dataclass(frozen=True, slots=True)
class Short:
    """One node in need: its rule, the features that ask for victims now, and the figures."""

    rule: EvictMemory | EvictCpu
    marks: plan.Rule
    features: frozenset[str]
    node: plan.Node
    terms: dict[str, int]


def serve(
    state: PartitionState, wave: Wave, at: int, gate: Gate, short: Short, budget_of: Budget,
    out: list[Output],
) -> None:  # fmt: skip
    """Order pods out until every goal is covered, within budget.

    What is going already counts as freed, whichever decider ordered it; after an order of either
    the node rests for this rule's cool-down.
    """
    nodes, row, log_ms, rule = state.nodes, wave.seats[at].row, wave.log_ms[at], short.rule
    pods = node.best_effort_pods(state, wave.seats[at], log_ms, gate.resource)
    lent = [pod for pod in pods if pod.kind in short.node.allocatable]
    goals = plan.goals_of(gate.resource, short.features, short.marks, short.node, lent)
    need = plan.need_of(goals)
    going = [pod for pod in pods if pod.going]
    fruitless = ladder.fruitless_after(
        int(nodes[gate.fruitless][row]), int(nodes[gate.need_at_order][row]), need
    )
    start = ladder.start_of(fruitless, rule.escalate_after_orders)
    tasks = plan.tasks_of(gate.resource, goals, short.marks, pods, gate.names, start)
    releases = plan.releases_of(gate.resource, pods)
    gone = [pod.uid for pod in going]
    whole = run(tasks, releases, gone)
    wanted = len(whole.evicted)
    nodes["evictions_wanted"][row] += wanted
    if not wanted or not cooled(log_ms, int(nodes[gate.evicted_ms][row]), rule.cooldown_ms):
        return
    budget, reason = budget_of(state, log_ms)
    if reason in ALONE.values():  # its task is the first, so nobody was taken before
        tasks = [task for task in tasks if task.name == plan.BEST_EFFORT]
    done = whole.first(budget, [task.name for task in tasks])
    if not done.evicted:
        return
    nodes[gate.evicted_ms][row] = log_ms
    if not rule.dry_run:
        nodes[gate.fruitless][row], nodes[gate.need_at_order][row] = fruitless, need
        node.book(state, row, log_ms, [pod for pod in pods if pod.uid in done.task_of])
    credited = _credit(gate, going)
    said = short.terms | {
        "release": need,
        "credited": credited,
        "wanted": wanted,
        "budget": budget,
        "fruitless": fruitless,
    }
    first = done.task_of[done.evicted[0]]
    if first in REASONS:
        reason = f"{gate.resource}_{REASONS[first]}"
    emit.command(
        state, wave, at, gate.decider, reason + ladder.REASONS[start], said, out,
        told=why.terms(pods, tasks, done, start, int(nodes["start"][row])),
        dry_run=rule.dry_run, pods=tuple(done.evicted),
        release_bytes=max(need - credited, 0) if gate.resource == "memory" else 0,
    )  # fmt: skip


def _credit(gate: Gate, going: list[Candidate]) -> int:
    """What pods that are going release: memory that they use, CPU that they request."""
    if gate.resource == "memory":
        return sum(pod.used or 0 for pod in going)
    return sum(pod.request for pod in going)
