"""Which candidates a pod may go to and how good each is: rows of the fleet through the laws. Pure.

Called by `service` for each question, and by `bindings` for the node that was chosen. Every rule is
one of `agents.placement`; here they are only called, in the order in which reasons are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.placement import borrow_filter, estimate, load, load_filter, load_score, rules
from agents.table import ABSENT, Ints
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.wire import MOST_SCORE

LOAD_WORDS = {
    load_filter.STALE: "node(s) whose usage report is too old",
    load_filter.CPU_OVER: "node(s) whose CPU would be loaded beyond the bound",
    load_filter.MEMORY_OVER: "node(s) whose memory would be loaded beyond the bound",
}
BORROW_WORDS = {
    borrow_filter.NOTHING_KNOWN: "node(s) that nobody offers to lend of",
    borrow_filter.NO_NEW_WORK: "node(s) that lend to no new work",
    borrow_filter.NOT_LISTED: "node(s) that do not lend to this workload",
    borrow_filter.TOO_LITTLE: "node(s) with too little left to lend",
}
"""Few and without numbers: the scheduler counts nodes by the text, and shows each text."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of each candidate [n]: reasons of `load_filter` and of `borrow_filter`."""

    load: Ints
    borrow: Ints

    @property
    def refused(self) -> Ints:
        """Indexes of those that are refused."""
        return np.flatnonzero(
            (self.load >= load_filter.STALE) | (self.borrow >= borrow_filter.NOTHING_KNOWN)
        )

    @property
    def for_want_of_room(self) -> bool:
        """Whether no candidate is left, and more to lend would leave one."""
        refused = self.refused.tolist()
        return 0 < len(refused) == len(self.load) and any(map(self.curable, refused))

    def why(self, i: int) -> tuple[str, str]:
        """Reason code and words of one that is refused; load is named before what is lent."""
        code = int(self.load[i])
        if code in LOAD_WORDS:
            return load_filter.REASONS[code], LOAD_WORDS[code]
        code = int(self.borrow[i])
        return borrow_filter.REASONS[code], BORROW_WORDS[code]

    def curable(self, i: int) -> bool:
        """Whether room would help: who is too loaded stays so when work of less weight goes."""
        loaded = int(self.load[i]) >= load_filter.STALE
        return not loaded and int(self.borrow[i]) == borrow_filter.TOO_LITTLE


def estimate_of(fleet: Fleet, pod: PodRow) -> Ints:
    """What the pod that comes is expected to use [2]."""
    rule = fleet.policy.load_aware
    default = (rule.default_cpu_milli, rule.default_memory_bytes)
    factors = np.array((rule.cpu_factor_percent, rule.memory_factor_percent))
    own = np.array(pod.factors if rule.pods_choose_factors else (ABSENT, ABSENT))
    result: Ints = estimate.estimate(
        np.array([pod.asked]), np.array([pod.allowed]),
        np.array([estimate.fallback(pod.priority_class, default)]), estimate.overlay(factors, own),
    )[0]  # fmt: skip
    return result


def filtered(
    fleet: Fleet, rows: Ints, pod: PodRow, now_ms: int, stale_capacity_ms: int
) -> Verdicts:
    """The verdict on each of ``rows`` [n]; the fleet has been refreshed."""
    return Verdicts(
        by_load(fleet, rows, pod, now_ms), by_offer(fleet, rows, pod, now_ms, stale_capacity_ms)
    )


def by_offer(fleet: Fleet, rows: Ints, pod: PodRow, now_ms: int, stale_capacity_ms: int) -> Ints:
    """The reason of `borrow_filter` on each of ``rows`` [n]; the pod itself is not counted."""
    said_ms = fleet.take("offered_ms", rows)
    return borrow_filter.judge(
        np.array(pod.borrows),
        fleet.take("offered", rows),
        fleet.take("others", rows) + fleet.take("taken", rows),
        (said_ms >= 0) & (now_ms - said_ms < stale_capacity_ms),
        fleet.take("new_work", rows) > 0,
        fleet.listed(rows, pod.workload),
    )


def scored(fleet: Fleet, rows: Ints, pod: PodRow, now_ms: int) -> Ints:
    """0 to 100 for each of ``rows`` [n]; the fleet has been refreshed."""
    rule = fleet.policy.load_aware
    reports, loads = fleet.reports(rows), fleet.loads(rows)
    view = load.plain_view(reports, loads)
    if rule.score_prod_usage and pod.priority_class == "prod":
        view = loads.prod
    elif rule.score_aggregated:
        view = load.aggregated_view(
            reports, loads, fleet.aggregates(rows), rules.aggregation_of(rule),
            rule.aggregation_window_ms,
        )  # fmt: skip
    return load_score.score(
        reports, view, estimate_of(fleet, pod), fleet.take("allocatable", rows),
        (rule.cpu_weight, rule.memory_weight), rule.dominant_weight,
        stale=load.stale(reports, now_ms, rule.expire_after_ms),
        ill=fleet.ill(rows, now_ms, rule.expire_after_ms),
        stale_keep_permille=rule.stale_keep_permille,
        ill_keep_permille=rule.ill_keep_permille,
    ).score  # fmt: skip


def on_the_schedulers_scale(scores: Ints) -> Ints:
    """0 to 100 as 0 to `MOST_SCORE`, fractions dropped."""
    result: Ints = scores * MOST_SCORE // load_score.MOST
    return result


def by_load(fleet: Fleet, rows: Ints, pod: PodRow, now_ms: int) -> Ints:
    """The reason of `load_filter` on each of ``rows`` [n]; the fleet has been refreshed."""
    rule = fleet.policy.load_aware
    reports, loads = fleet.reports(rows), fleet.loads(rows)
    thresholds = rules.thresholds_of(rule, len(rows)).overlaid(fleet.said_bounds(rows))
    bounds, group = load_filter.choose(thresholds, pod.priority_class == "prod")
    plain = load.plain_view(reports, loads)
    by_rank = plain
    if (group == load_filter.AGGREGATED).any():
        by_rank = load.aggregated_view(
            reports, loads, fleet.aggregates(rows), rules.aggregation_of(rule),
            rule.aggregation_window_ms,
        )  # fmt: skip
    return load_filter.judge(
        reports, load_filter.view_of(group, plain, loads.prod, by_rank), estimate_of(fleet, pod),
        fleet.take("allocatable", rows), bounds, pod.daemonset,
        load.stale(reports, now_ms, rule.expire_after_ms), rules.stale_rule_of(rule),
    ).reason  # fmt: skip
