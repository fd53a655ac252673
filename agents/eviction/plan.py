"""A whole pass for one resource of one node: which features are on, their goals, their victims.

Features run in a fixed order: best effort, allocatable, usage. Source: koordinator
`qosmanager/plugins/memoryevict/memory_evict.go`, `cpuevict/cpu_evict.go`. Thresholds come in as a
`Rule`; a feature whose part of it is not valid is off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agents.eviction import order, release
from agents.eviction.candidate import Candidate
from agents.eviction.passes import Amounts, Outcome, Task, run
from agents.table import Array
from schemas.policy import EvictCpu, EvictMemory

BEST_EFFORT, ALLOCATABLE, USAGE = "best_effort", "allocatable", "usage"
FEATURES = (BEST_EFFORT, ALLOCATABLE, USAGE)
USED, REQUEST = "used", "request"
DEFAULT_GAP_PERCENT = 2
"""The lower mark lies so far below the threshold where none is set."""
PRIORITY_MOST = 7999
"""By allocatable nobody above mid goes: prod work is not lent to."""
LOWER_MOST_PERCENT = 60
"""Satisfaction above this hurts too little to kill for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Thresholds of one resource, in percent and priorities; None: not set."""

    usage_percent: int | None = None
    usage_lower_percent: int | None = None
    usage_priority: int | None = None
    allocatable_percent: int | None = None
    allocatable_lower_percent: int | None = None
    allocatable_priority: int | None = None
    satisfaction_lower_percent: int | None = None
    satisfaction_upper_percent: int | None = None

    @classmethod
    def of(
        cls,
        section: EvictMemory | EvictCpu,
        usage: tuple[int, int],
        satisfaction: tuple[int | None, int | None] = (None, None),
    ) -> Rule:
        """What the policy's sections say alike; ``usage``: (threshold, lower mark) in percent,
        ``satisfaction``: (lower, upper), which only CPU has.
        """
        return cls(
            *usage,
            section.usage_priority_most,
            section.allocatable_threshold_percent,
            section.allocatable_lower_percent,
            section.allocatable_priority_most,
            *satisfaction,
        )


def usage_marks(rule: Rule) -> tuple[int, int] | None:
    """(threshold, lower mark) of eviction by usage; None where they are not valid."""
    threshold, lower = rule.usage_percent, rule.usage_lower_percent
    if threshold is None or threshold < 0:
        return None
    lower = threshold - DEFAULT_GAP_PERCENT if lower is None else lower
    return (threshold, lower) if lower < threshold else None


def allocatable_marks(rule: Rule) -> tuple[int, int, int] | None:
    """(threshold, lower mark, highest priority) by allocatable; None where they are not valid."""
    threshold, lower = rule.allocatable_percent, rule.allocatable_lower_percent
    most = rule.allocatable_priority
    if threshold is None or lower is None or most is None:
        return None
    valid = threshold >= 0 and lower < threshold and most <= PRIORITY_MOST
    return (threshold, lower, most) if valid else None


def satisfaction_marks(rule: Rule) -> tuple[int, int] | None:
    """(lower, upper) percent of best-effort satisfaction; None where they are not valid."""
    lower, upper = rule.satisfaction_lower_percent, rule.satisfaction_upper_percent
    if lower is None or upper is None:
        return None
    valid = 0 < lower <= LOWER_MOST_PERCENT and lower <= upper < release.PERCENT
    return (lower, upper) if valid else None


def is_valid(resource: str, feature: str, rule: Rule | None) -> bool:
    """Whether ``feature`` can run for ``resource`` ("cpu", "memory") under this rule."""
    if rule is None:
        return False
    if feature == ALLOCATABLE:
        return allocatable_marks(rule) is not None
    if feature == USAGE:
        return usage_marks(rule) is not None and rule.usage_priority is not None
    marks = satisfaction_marks(rule) if resource == "cpu" else usage_marks(rule)
    return marks is not None


def overdrawn(
    resource: str, rule: Rule, allocatable: Amounts, pods: Sequence[Candidate]
) -> dict[str, int]:
    """Requests to take back by kind, for the pods up to the rule's priority; only above 0."""
    marks = allocatable_marks(rule)
    requested: dict[str, int] = {}
    for pod in pods:
        if marks is not None and pod.priority <= marks[2]:
            requested[pod.kind] = requested.get(pod.kind, 0) + pod.request
    if marks is None or not requested:
        return {}
    kinds = sorted(requested)
    goal = release.by_allocatable(
        _column(requested[kind] for kind in kinds),
        _column(allocatable.get(kind, 0) for kind in kinds),
        marks[0], marks[1], by_ratio=resource == "memory",
    )  # fmt: skip
    return {kind: amount for kind, amount in zip(kinds, goal.tolist(), strict=True) if amount > 0}


def best_effort_task(resource: str, amount: int, pods: Sequence[Candidate], start: int = 0) -> Task:
    """Memory is freed by what pods use, CPU by what they request."""
    if resource == "memory":
        victims = order.by_size(pods, start)
        return Task(BEST_EFFORT, USED, {resource: amount}, [pod.uid for pod in victims])
    victims = order.by_share(pods, start)
    return Task(BEST_EFFORT, REQUEST, {f"batch-{resource}": amount}, [pod.uid for pod in victims])


def releases_of(
    resource: str, pods: Sequence[Candidate]
) -> dict[str, dict[str, Mapping[str, int]]]:
    """What each pod would release for each feature; without a sample its use is unknown."""
    result: dict[str, dict[str, Mapping[str, int]]] = {}
    for pod in pods:
        by_feature: dict[str, Mapping[str, int]] = {
            ALLOCATABLE: {pod.kind: pod.request},
            BEST_EFFORT: {f"batch-{resource}": pod.request},
        }
        if pod.used is not None:
            by_feature[USAGE] = {resource: pod.used}
        if resource == "memory":
            by_feature.pop(BEST_EFFORT)
            if pod.used is not None:
                by_feature[BEST_EFFORT] = by_feature[USAGE]
        result[pod.uid] = by_feature
    return result


@dataclass(frozen=True, slots=True)
class Node:
    """What one node has of the resource.

    ``starved_milli``: by satisfaction, of CPU only; ``beyond_bytes``: what a memory limit asks for.
    """

    capacity: int
    used: int
    allocatable: Amounts
    starved_milli: int = 0
    beyond_bytes: int = 0


def goals_of(
    resource: str, features: Collection[str], rule: Rule | None, node: Node,
    pods: Sequence[Candidate],
) -> dict[str, Amounts]:  # fmt: skip
    """What each of ``features`` that is on and valid has to release; nothing without capacity."""
    goals: dict[str, Amounts] = {}
    for feature in FEATURES if node.capacity > 0 else ():
        if rule is None or feature not in features or not is_valid(resource, feature, rule):
            continue
        if feature == ALLOCATABLE:
            goals[feature] = overdrawn(resource, rule, node.allocatable, pods)
        elif feature == USAGE:
            goals[feature] = {resource: _by_usage(rule, node)}
        elif resource == "memory":
            goals[feature] = {resource: max(_by_usage(rule, node), node.beyond_bytes)}
        else:
            goals[feature] = {f"batch-{resource}": node.starved_milli}
    return goals


def need_of(goals: Mapping[str, Amounts]) -> int:
    """All that is to be released: goals for one resource are met by the same pods."""
    largest: dict[str, int] = {}
    for goal in goals.values():
        for name, amount in goal.items():
            largest[name] = max(largest.get(name, 0), amount)
    return sum(largest.values())


def tasks_of(
    resource: str, goals: Mapping[str, Amounts], rule: Rule, pods: Sequence[Candidate],
    policy_names: Mapping[str, str], start: int = 0,
) -> list[Task]:  # fmt: skip
    """A task a goal, with its victims in order; ``start`` is the rung that best effort starts at.

    ``policy_names``: what pods call a feature in their list of allowed policies.
    """
    tasks: list[Task] = []
    for feature, goal in goals.items():
        name = policy_names[feature]
        if feature == BEST_EFFORT:
            (amount,) = goal.values()
            tasks.append(best_effort_task(resource, amount, pods, start))
            continue
        by_request = feature == ALLOCATABLE
        most = rule.allocatable_priority if by_request else rule.usage_priority
        victims = order.by_priority(pods, name, most or 0, by_request=by_request)
        target = REQUEST if by_request else USED
        tasks.append(Task(feature, target, goal, [pod.uid for pod in victims]))
    return tasks


def sweep(
    resource: str, features: Collection[str], rule: Rule | None, node: Node,
    pods: Sequence[Candidate], policy_names: Mapping[str, str],
) -> Outcome:  # fmt: skip
    """Victims of all ``features`` that are on and valid, as many as it takes."""
    goals = goals_of(resource, features, rule, node, pods)
    tasks = tasks_of(resource, goals, rule or Rule(), pods, policy_names)
    going = [pod.uid for pod in pods if pod.going]
    return run(tasks, releases_of(resource, pods), going)


def _by_usage(rule: Rule, node: Node) -> int:
    marks = usage_marks(rule)
    if marks is None:
        return 0
    return int(release.by_usage(np.array(node.capacity), np.array(node.used), *marks))


def _column(values: Iterable[int]) -> Array:
    return np.array(list(values), dtype=np.int64)
