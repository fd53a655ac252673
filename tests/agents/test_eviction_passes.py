"""Passes over several tasks: nobody too many, nobody twice, nobody for nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.eviction import plan
from agents.eviction.candidate import Candidate
from agents.eviction.passes import Task, run

NAMES = {
    plan.BEST_EFFORT: "be_memory", plan.ALLOCATABLE: "memory_allocatable", plan.USAGE: "memory"
}  # fmt: skip


def task(name: str, goal: dict[str, int], order: str, target: str = "used") -> Task:
    return Task(name, target, goal, list(order))


def test_a_pod_counts_once_for_each_target_with_its_largest_value() -> None:
    releases = {"a": {"t": {"m": 3}, "u": {"m": 5}, "r": {"c": 9}}, "b": {"u": {"m": 1}}}
    tasks = [task("t", {"m": 4}, "ab"), task("u", {"m": 6}, "ab"), task("r", {"c": 9}, "a", "ask")]
    done = run(tasks, releases)
    assert done.evicted == ["a", "b"]
    assert done.task_of == {"a": "t", "b": "u"}
    assert done.released == {"used": {"m": 6}, "ask": {"c": 9}}


def test_nobody_goes_who_releases_nothing_of_what_is_missing() -> None:
    releases = {"a": {"t": {"batch": 0}}, "b": {"t": {"batch": 5}}, "c": {"t": {"batch": 5}}}
    releases |= {"d": {"t": {"mid": 5}}}
    assert run([task("t", {"batch": 4, "mid": 1}, "abcd")], releases).evicted == ["b", "d"]


def test_what_is_going_is_credited_and_not_evicted_again() -> None:
    releases = {"a": {"t": {"m": 5}}, "b": {"t": {"m": 5}}}
    goal = task("t", {"m": 5}, "ab")
    assert run([goal], releases, ["a"]).evicted == []
    assert run([task("t", {"m": 6}, "ab")], releases, ["a", "a", "x"]).evicted == ["b"]


def test_a_goal_of_nothing_is_no_task() -> None:
    done = run([task("t", {"m": 0}, "a")], {"a": {"t": {"m": 5}}}, ["a"])
    assert (done.evicted, done.released) == ([], {})


def test_pods_of_unknown_size_go_one_at_a_time_and_only_alone() -> None:
    unknown: dict[str, dict[str, dict[str, int]]] = {"a": {}, "b": {}}
    assert run([task("t", {"m": 5}, "ab")], unknown).evicted == ["a"]
    assert run([task("t", {"m": 5}, "ab")], unknown, most=0).evicted == []
    assert run([task("t", {"m": 5}, "abc")], unknown | {"c": {"t": {"m": 1}}}).evicted == ["c"]


UIDS = "abcdefg"
RELEASES = st.fixed_dictionaries(
    {
        uid: st.dictionaries(
            st.sampled_from(["t0", "t1", "t2"]),
            st.dictionaries(st.sampled_from(["m", "c"]), st.integers(0, 5), max_size=2),
        )
        for uid in UIDS
    }
)
TASKS = st.lists(
    st.tuples(
        st.sampled_from(["used", "request"]),
        st.dictionaries(st.sampled_from(["m", "c"]), st.integers(0, 12), max_size=2),
        st.permutations(UIDS),
    ),
    max_size=3,
)


@given(TASKS, RELEASES, st.sets(st.sampled_from(UIDS)), st.none() | st.integers(0, 4))
def test_a_pass_is_bounded_and_every_victim_was_needed(
    said: list[Any], releases: Any, going: set[str], most: int | None
) -> None:
    tasks = [Task(f"t{i}", *rest) for i, rest in enumerate(said)]
    done = run(tasks, releases, going, most)
    assert len(done.evicted) == len(set(done.evicted)) <= (len(UIDS) if most is None else most)
    assert not going & set(done.evicted)
    assert done.evicted == run(tasks, dict(reversed(releases.items())), sorted(going), most).evicted
    shorter = run(tasks, releases, going, len(done.evicted) // 2).evicted
    assert shorter == done.evicted[: len(done.evicted) // 2]
    for uid, name in done.task_of.items():
        goal = next(t for t in tasks if t.name == name)
        mine = [t.name for t in tasks if t.target == goal.target and any(t.goal.values())]
        known = [releases[uid][t] for t in mine if t in releases[uid]]
        gives = any(a.get(r, 0) > 0 for a in known for r, n in goal.goal.items() if n > 0)
        assert gives or not known


def pod(uid: str, used: int | None, **more: Any) -> Candidate:
    facts: dict[str, Any] = {"best_effort": True, "opted_in": True, "kind": "batch-memory"}
    return Candidate(uid, 5500, used, **(facts | more))


def swept(
    features: set[str], rule: plan.Rule | None, used: int, *pods: Candidate, capacity: int = 100
) -> list[str]:
    node = plan.Node(capacity, used, {"batch-memory": 10})
    return plan.sweep("memory", features, rule, node, pods, NAMES).evicted


def test_a_sweep_of_all_features_stops_when_every_goal_is_met() -> None:
    rule = plan.Rule(80, 70, 5999, 100, 50, 5999)
    pods = [pod("a", 9, request=2), pod("b", 8, request=2), pod("c", 1, request=9)]
    everything = set(plan.FEATURES)
    assert swept(everything, rule, 80, *pods) == ["a", "b", "c"]
    assert swept({plan.BEST_EFFORT, plan.USAGE}, rule, 80, *pods) == ["a", "b"]
    assert swept({plan.ALLOCATABLE}, rule, 99, *pods) == ["c"]
    assert swept({plan.USAGE}, rule, 80, *[pod("x", 5, policies=frozenset())]) == []
    assert swept({plan.USAGE}, rule, 80, pod("a", 9, going=True), pods[1]) == ["b"]


@pytest.mark.parametrize("capacity", [0, -1])
def test_without_capacity_or_rule_nobody_goes(capacity: int) -> None:
    everything = set(plan.FEATURES)
    rule = plan.Rule(80, 70, 5999, 100, 50, 5999)
    assert swept(everything, rule, 80, pod("a", 90), capacity=capacity) == []
    assert swept(everything, None, 99, pod("a", 90)) == []
    assert swept(everything, plan.Rule(), 99, pod("a", 90)) == []


def test_cpu_for_best_effort_is_freed_by_what_is_requested() -> None:
    pods = [pod("a", 500, request=1000), pod("b", 900, request=1000), pod("c", 10)]
    node = plan.Node(8000, 100, {}, starved_milli=1500)
    rule = plan.Rule(satisfaction_lower_percent=30, satisfaction_upper_percent=40)
    names = {plan.BEST_EFFORT: "be_cpu", plan.ALLOCATABLE: "x", plan.USAGE: "cpu"}
    assert plan.sweep("cpu", set(plan.FEATURES), rule, node, pods, names).evicted == ["b", "a"]
