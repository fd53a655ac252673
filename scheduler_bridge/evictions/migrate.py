"""Hot nodes are relieved: once a round, pods that fit elsewhere are asked to leave. Pure.

The loop calls `Migration.round` while it leads and puts the requests into the queue. Which nodes
are hot, which pods go and how many at once is the law's (`agents.placement`); off by default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import numpy as np

from agents.eviction import order, worth
from agents.eviction.candidate import Candidate
from agents.placement import anomaly, arbitration, balance, relief, utilization
from agents.placement.rules import bounds_of
from agents.table import ABSENT, Bools
from scheduler_bridge.evictions.facts import Facts
from scheduler_bridge.evictions.flights import Flights, Plan
from scheduler_bridge.evictions.node import LiveNode
from scheduler_bridge.evictions.pod import LivePod
from scheduler_bridge.evictions.queue import Request
from scheduler_bridge.evictions.victim import refusal
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME
from schemas.policy import Policy
from schemas.records import PodFact, Reservation

USED = "usage"
CPU, MEMORY = "cpu", "memory"
KINDS = {CPU: (CPU, CPU_NAME, MID_CPU_NAME), MEMORY: (MEMORY, MEMORY_NAME, MID_MEMORY_NAME)}
"""Under which names a best-effort pod may ask for it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One look at all nodes. ``result`` is ``moved``, or what stood against it."""

    result: str
    requests: tuple[Request, ...] = ()
    hot: int = 0
    kinds: dict[str, str] = field(default_factory=dict)  # class of each node, for people
    stopped: dict[str, str] = field(default_factory=dict)  # sources: why no more of them
    refused: dict[str, str] = field(default_factory=dict)  # pods: why not


class Migration:
    """Marks and flights from round to round."""

    def __init__(self, facts: Facts) -> None:
        self.flights = Flights()
        self._facts = facts
        self._marks: dict[str, tuple[int, int]] = {}
        self._relieved: set[str] = set()  # sources that pods were taken from in the last round

    def round(
        self, now_ms: int, wall_ms: int, nodes: Mapping[str, LiveNode], pods: Mapping[str, LivePod]
    ) -> Round:
        """Judge all nodes; times are log time, and wall time for the age of pods."""
        stands = self._stands(now_ms)
        if stands or self._facts.policy is None:
            return Round(stands)
        policy = self._facts.policy.policy
        reports = self._facts.reports(now_ms, policy.low_node_load.expire_after_ms)
        fresh = [nodes[name] for name in sorted(nodes) if name in reports]
        if not fresh:
            return Round("no_report")
        seen = _Seen(policy, fresh, reports, pods)
        hot = balance.sources(seen.limits.kind)
        acting = self._mark(now_ms, policy, seen, hot)
        allowed = np.array([self._facts.migrates(node) for node in fresh], dtype=bool)
        acting &= allowed
        kinds = {
            node.name: balance.CLASSES[kind]
            for node, kind in zip(fresh, seen.limits.kind.tolist(), strict=True)
        }
        hot_nodes = int(np.count_nonzero(hot))
        against = relief.why_not(seen.limits.kind, acting, policy.migration.targets_above)
        if against:
            return Round(against, hot=hot_nodes, kinds=kinds)
        return self._relieve(now_ms, wall_ms, policy, seen, acting, Round("", (), hot_nodes, kinds))

    def _stands(self, now_ms: int) -> str:
        """What stands against any round: no policy, a fleet that is ill or not known."""
        facts = self._facts
        if facts.policy is None:
            return "no_policy"
        each = [one for one in (facts.policy.policy, facts.policy.trial) if one is not None]
        if not any(one.migration.enabled for one in each):
            return "off"
        blast = facts.policy.policy.blast
        if facts.fleet is None or now_ms - facts.fleet_ms > blast.facts_stale_ms:
            return "fleet_unknown"
        return "fleet_ill" if facts.fleet.ill_permille >= blast.stop_ill_permille else ""

    def _mark(self, now_ms: int, policy: Policy, seen: _Seen, hot: Bools) -> Bools:
        """One more round of marks; sources that are hot for long enough."""
        rule = policy.low_node_load
        names = [node.name for node in seen.nodes]
        known = [self._marks.get(name, (0, now_ms)) for name in names]
        count, last = (np.array(column, dtype=np.int64) for column in zip(*known, strict=True))
        relieved = np.array([name in self._relieved for name in names], dtype=bool)
        cleared = balance.targets(seen.limits.kind) | relieved
        marks = anomaly.mark(anomaly.Marks(count, last), now_ms, hot, cleared, rule.forget_after_ms)
        pairs = zip(marks.count.tolist(), marks.last_ms.tolist(), strict=True)
        self._marks = dict(zip(names, pairs, strict=True))
        self._relieved = set()
        return anomaly.abnormal(marks, hot, rule.consecutive_rounds)

    def _relieve(
        self, now_ms: int, wall_ms: int, policy: Policy, seen: _Seen, acting: Bools, so_far: Round
    ) -> Round:
        rule = policy.migration
        bounds = arbitration.Bounds(
            rule.per_node, rule.per_namespace, rule.per_workload, rule.fleet
        )
        plan = Plan(seen.nodes, seen.pods, self.flights, bounds, now_ms)
        self.flights.land(now_ms, rule.ttl_ms, rule.workload_pause_ms, seen.by_uid, plan.ready())
        # Of a node that is hot for its prod pods alone nothing can go: those are never asked.
        rows = np.flatnonzero(acting & (seen.limits.kind == balance.HIGH))
        weights = np.array([_weight(policy, name) for name in seen.names], dtype=np.int64)
        first = relief.hottest_first(rows, seen.usage, seen.allocatable, weights)

        def pods(row: int, over: Bools) -> Sequence[relief.Movable]:
            return seen.movable(row, over, wall_ms)

        found = relief.relieve(seen.limits, seen.usage, seen.names, first, pods, plan)
        self._relieved = {seen.nodes[move.source].name for move in found.moves}
        requests = tuple(seen.request(move, now_ms, policy) for move in found.moves)
        return Round(
            "moved" if requests else "nobody_may_leave" if len(rows) else "prod_only",
            requests,
            so_far.hot,
            so_far.kinds,
            {seen.nodes[row].name: why for row, why in found.stopped.items()},
            plan.refused,
        )


class _Seen:
    """The figures of one round: rows are ``nodes``, columns ``names``."""

    def __init__(
        self, policy: Policy, nodes: list[LiveNode], reports: Mapping[str, Reservation],
        pods: Mapping[str, LivePod],
    ) -> None:  # fmt: skip
        self.bounds = bounds_of(policy.low_node_load)
        self.names = self.bounds.names
        self.nodes, self.by_uid = nodes, pods
        self.pods = sorted(pods.values(), key=attrgetter("node", "uid"))
        self._of = {node: list(some) for node, some in groupby(self.pods, attrgetter("node"))}
        self._reports = reports
        self._use = {
            uid: amounts for node in nodes for uid, amounts in _uses(reports[node.name]).items()
        }
        rows = [self._row(reports[node.name]) for node in nodes]
        self.usage = np.array([row[0] for row in rows], dtype=np.int64)
        prod = np.array([row[1] for row in rows], dtype=np.int64)
        self.allocatable = np.array(
            [[node.allocatable.get(name, 0) for name in self.names] for node in nodes],
            dtype=np.int64,
        )
        closed = np.array([not node.open for node in nodes], dtype=bool)
        self.limits = balance.classify(self.bounds, self.usage, prod, self.allocatable, closed)

    def _row(self, report: Reservation) -> tuple[list[int], list[int]]:
        """What pods and system use together, and what prod pods use, by name."""
        total = {CPU: report.system_cpu_milli, MEMORY: report.system_memory_bytes}
        prod = {CPU: 0, MEMORY: 0}
        for uid, amounts in _uses(report).items():
            pod = self.by_uid.get(uid)
            for name, amount in amounts.items():
                total[name] += max(amount, 0)
                if pod is not None and pod.classes.priority_class == "prod":
                    prod[name] += max(amount, 0)
        return [total[name] for name in self.names], [prod[name] for name in self.names]

    def movable(self, row: int, over: Bools, wall_ms: int) -> list[relief.Movable]:
        """Best-effort pods of a node: cheap work first, by the order of what is short."""
        short = MEMORY if over[self.names.index(MEMORY)] else CPU
        candidates = [
            self._candidate(pod, short, wall_ms)
            for pod in self._of.get(self.nodes[row].name, ())
            if pod.active and not refusal(pod, "low_node_load")
        ]
        ordered = order.by_size(candidates) if short == MEMORY else order.by_share(candidates)
        return [
            relief.Movable(
                each.uid,
                tuple(self._use.get(each.uid, {}).get(name, ABSENT) for name in self.names),
            )
            for each in ordered
        ]

    def _candidate(self, pod: LivePod, short: str, wall_ms: int) -> Candidate:
        fact = PodFact(uid=pod.uid, name=pod.name, **pod.said)
        used = self._use.get(pod.uid, {}).get(short, ABSENT)
        return Candidate(
            uid=pod.uid,
            priority=pod.classes.priority,
            used=used if used > 0 else None,
            request=max((pod.needs.requests.get(name, 0) for name in KINDS[short]), default=0),
            best_effort=True,
            work=worth.work_of(
                worth.will_of(fact), fact.retries_left, max(wall_ms - pod.created_ms, 0)
            ),
        )

    def request(self, move: relief.Move, now_ms: int, policy: Policy) -> Request:
        """The order of a move; it says which limits the node was above, and by how much."""
        row = move.source
        high = utilization.whole_percent(self.limits.high[row], self.allocatable[row])
        over = utilization.overutilized(
            self.names, self.usage[row], self.allocatable[row], high.astype(np.float64)
        )
        terms = {f"{one.resource}_percent": int(one.usage_percent) for one in over}
        terms |= {f"{one.resource}_high_percent": int(one.threshold_percent) for one in over}
        dry = "dry/" if policy.migration.dry_run else ""
        return Request(
            id=f"low_node_load/{dry}{move.uid}",
            uid=move.uid,
            node=self.nodes[row].name,
            source="low_node_load",
            why="hot_" + "_".join(one.resource for one in over),
            asked_ms=now_ms,
            until_ms=now_ms + policy.migration.round_ms,
            order=(0, now_ms),
            dry_run=policy.migration.dry_run,
            terms=terms,
        )


def _uses(report: Reservation) -> dict[str, dict[str, int]]:
    """What each pod of a report uses, by uid and name; -1 where nothing is known."""
    nothing = [ABSENT] * len(report.pods)
    cpu = report.pod_cpu_milli.get(USED, nothing)
    memory = report.pod_memory_bytes.get(USED, nothing)
    return {
        uid: {CPU: milli, MEMORY: size}
        for uid, milli, size in zip(report.pods, cpu, memory, strict=False)
    }


def _weight(policy: Policy, name: str) -> int:
    rule = policy.migration
    return rule.cpu_weight if name == CPU else rule.memory_weight if name == MEMORY else 0
