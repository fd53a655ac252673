"""Eviction by use and by allocatable in the loop: who goes, when, why, and who never."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.eviction import plan
from agents.eviction.node import best_effort_pods
from schemas.records import Ack, Command, Decision, FleetFacts, PodFact, PolicyRecord
from tests.agents.worlds import GIB, MEMORY, PARTITION, WARM, Node, World, best_effort, of, online

FULL = MEMORY * 26 // 100
"""Available memory of a node that is 74 % full: 6 percent over the lower mark, 1.92 GiB."""
BY_USE = WARM + "evict_memory: {best_effort_enabled: false, usage_enabled: true}\n"
LENT = "capacity: {raise_permille_per_min: 60000}\n"
TAKEN_BACK = WARM + LENT + "evict_memory: {allocatable_enabled: true}\n"
CPU = "evict_cpu: {enabled: true, window_ms: 3000, cooldown_ms: 4000"


def facts(budget: int, ill_permille: int = 0) -> tuple[str, int, bytes, Any]:
    return ("fleet", 0, b"fleet", FleetFacts(1, 1, 9, 0, 0, ill_permille, budget, 1_000_000))


def orders(world: World, decider: Any = "evict_memory") -> list[Command]:
    return of(world.out, "commands", decider)


def full(policy: str, *pods: PodFact, used: list[int], budget: int = 100) -> World:
    """A node that is full of these pods, after the sample that shows it."""
    world = World(policy, node := Node(pods=(online("a", opted_in=True), *pods)))
    world.tick(1000, facts(budget))
    world.say(node.sample(available=FULL, used=[9 * GIB, *used]))
    return world


def offering(uid: str, **more: Any) -> PodFact:
    return best_effort(uid, **({"opted_in": True} | more))


def test_by_use_those_that_offer_themselves_go_in_the_order_they_say() -> None:
    pods = (
        best_effort("silent"), offering("last", eviction_priority=9), offering("mine"),
        offering("first", eviction_priority=-1), offering("not_so", evict_features=("be_memory",)),
    )  # fmt: skip
    world = full(BY_USE, *pods, used=[9 * GIB, GIB, GIB, GIB, 9 * GIB])
    (command,) = orders(world)
    assert command.pods == ("first", "mine")
    assert command.reason == "memory_in_use"
    assert command.release_bytes == MEMORY * 6 // 100


def test_sub_priority_and_cost_decide_within_a_priority() -> None:
    pods = (
        offering("b"), offering("c", sub_priority=1), offering("d", sub_priority=1),
        offering("e", sub_priority=1, checkpointed=True), offering("f", priority=3500),
    )  # fmt: skip
    world = full(BY_USE, *pods, used=[GIB // 2, GIB // 2, GIB, GIB // 8, GIB // 8])
    assert orders(world)[0].pods == ("f", "e", "d", "c", "b")


def test_nobody_above_the_priority_and_no_online_pod_goes_by_use() -> None:
    mid = offering("mid", priority_class="mid", priority=7500)
    online_mid = online("online_mid", priority_class="mid", priority=7500, opted_in=True)
    assert orders(full(BY_USE, mid, online_mid, used=[3 * GIB, 3 * GIB])) == []
    higher = BY_USE.replace("usage_enabled: true", "usage_enabled: true, usage_priority_most: 7999")
    (command,) = orders(full(higher, mid, online_mid, used=[3 * GIB, 9 * GIB]))
    assert command.pods == ("mid",)


def test_what_best_effort_releases_counts_for_the_task_by_use() -> None:
    both = BY_USE.replace("best_effort_enabled: false, ", "")
    world = full(both, best_effort("big"), offering("small"), used=[2 * GIB, GIB])
    (command,) = orders(world)
    assert command.pods == ("big",)  # the goal is the same, and it is met
    assert command.terms["release"] == MEMORY * 6 // 100


def test_r5_without_the_fleets_word_only_the_last_gate_takes_one() -> None:
    def alone(policy: str) -> list[Command]:
        world = World(policy, node := Node(pods=(online("a"), offering("b"), offering("c"))))
        world.say(node.sample(available=FULL, used=[9 * GIB, GIB, GIB]))
        return orders(world)

    assert alone(BY_USE) == []
    (command,) = alone(BY_USE.replace("best_effort_enabled: false, ", ""))
    assert len(command.pods) == 1


def overdrawn(policy: str, *pods: PodFact, seconds: int, milli: int = 100) -> list[Command]:
    """Orders of a node that lends what it has, over so many seconds of samples and ticks."""
    world = World(policy, node := Node(pods=(online("a"), *pods)))
    seen: list[Command] = []
    for _ in range(seconds):
        world.tick(0, facts(100))
        world.say(node.sample([milli] + [10] * len(pods)))
        seen += of(world.out, "commands")
    return [command for command in seen if command.decider != "suppress"]


def big(uid: str, **more: Any) -> PodFact:
    """Two of them ask for more than is lent, one does not."""
    return offering(uid, memory_request_bytes=8 * GIB, cpu_request_milli=4000, **more)


def test_requests_beyond_what_is_lent_are_taken_back_after_a_while() -> None:
    pods = (big("b"), big("c", eviction_priority=-1), best_effort("silent"))
    (command,) = overdrawn(TAKEN_BACK, *pods, seconds=20)
    assert command.pods == ("c",)  # what is left fits
    assert command.reason == "memory_overdrawn"
    assert 0 < command.terms["release"] <= 8 * GIB


def test_an_overdraft_must_stand_for_a_cool_down() -> None:
    slow = TAKEN_BACK.replace(
        "allocatable_enabled: true", "allocatable_enabled: true, cooldown_ms: 15000"
    )
    assert overdrawn(slow, big("b"), big("c"), seconds=15) == []
    assert overdrawn(slow, big("b"), big("c"), seconds=19)


def test_an_offer_of_nothing_evicts_nobody() -> None:
    policy = WARM + LENT + CPU + ", allocatable_enabled: true}\n"
    assert overdrawn(policy, big("b"), big("c"), seconds=20, milli=7900) == []
    assert overdrawn(policy, big("b"), big("c"), seconds=20)
    off = policy.replace(LENT, "capacity: {enabled: false}\n")
    assert overdrawn(off, big("b"), big("c"), seconds=20) == []


def test_requests_are_counted_anew_with_other_pods_and_another_policy() -> None:
    world = World(WARM + LENT, node := Node(pods=(online("a"), big("b"), big("c"))))
    assert not any(world.value(node, "asked"))  # nobody asks
    policy = TAKEN_BACK + CPU + "}\n"
    world.tick(0, ("policies", 0, b"default", PolicyRecord("default", 2, "", policy)))
    assert world.value(node, "asked") == [8000, 0, 16 * GIB, 0, 8000]
    lower = policy.replace("_enabled: true}", "_enabled: true, allocatable_priority_most: 10}")
    world.tick(0, ("policies", 0, b"default", PolicyRecord("default", 3, "", lower)))
    assert world.value(node, "asked") == [8000, 0, 0, 0, 8000]
    world.tick(0, ("policies", 0, b"default", PolicyRecord("default", 4, "", policy)))
    node.pods, node.rev = (online("a"), big("b"), big("m", priority=7500)), 2
    world.know(node)
    assert world.value(node, "asked") == [4000, 0, 8 * GIB, 0, 8000]  # mid is above the rule


def test_mid_work_draws_on_mid_and_is_not_booked_as_batch() -> None:
    mid = {"priority_class": "mid", "priority": 7500}
    policy = TAKEN_BACK.replace("true}", "true, allocatable_priority_most: 7999}")
    assert (
        overdrawn(policy, big("b"), big("m", **mid), seconds=20) == []
    )  # 20 GiB fit, mid has none


def test_for_cpu_those_that_offer_themselves_go_where_the_node_is_busy() -> None:
    policy = WARM + CPU + ", best_effort_enabled: false, usage_enabled: true}\n"
    pods = (best_effort("b"), offering("c"), offering("d", eviction_priority=1))
    world = World(policy, node := Node(pods=(online("a"), *pods)))
    world.tick(0, facts(100))
    seen: list[Command] = []
    for second in range(12):
        busy = 4000 if second < 6 else 7700
        world.say(node.sample([busy - 300, 100, 100, 100]))
        seen += orders(world, "evict_cpu")
        world.tick(0)
    command = seen[0]
    assert command.pods == ("c", "d")
    assert command.reason == "cpu_in_use"
    assert command.terms["capacity"] == 8000
    assert command.terms["busy"] == 7700


def test_one_cool_down_a_node_whichever_decider_ordered() -> None:
    policy = WARM + CPU.replace("cooldown_ms: 4000", "cooldown_ms: 20000") + "}\n"
    pods = [best_effort(f"b{i}", cpu_request_milli=2000) for i in range(4)]
    world = World(policy, node := Node(pods=(online("a"), *pods)))
    given: list[tuple[int, str]] = []
    for second in range(70):
        world.tick(0, facts(100))
        available = FULL if second == 25 else 20 * GIB
        world.say(node.sample([1000, *[240] * 4], quota=1000, available=available))
        given += [(second, c.decider) for c in of(world.out, "commands") if c.decider != "suppress"]
        for command in of(world.out, "commands"):
            if command.pods:
                said = Ack("n0", node.boot, 1, 1, command.decider, "refused", pods=command.pods)
                world.tick(0, ("acks", PARTITION, b"n0", said))
    assert given == [(20, "evict_cpu"), (25, "evict_memory"), (45, "evict_cpu"), (65, "evict_cpu")]


def test_a_dry_run_of_one_decider_does_not_hold_the_other_back() -> None:
    policy = WARM + CPU + ", dry_run: true}\n"
    world = World(
        policy, node := Node(pods=(online("a"), best_effort("b", cpu_request_milli=4000)))
    )
    world.tick(0, facts(100))
    for _ in range(5):
        world.say(node.sample([1000, 960], quota=1000))
    assert orders(world, "evict_cpu")
    world.say(node.sample([1000, 960], quota=1000, available=FULL))
    assert orders(world)


def test_the_audit_log_says_why_it_and_not_another() -> None:
    pods = (best_effort("b", recoverable=True), best_effort("c"), best_effort("d"))
    world = full(WARM, *pods, used=[GIB, 2 * GIB, GIB])
    (command,) = orders(world)
    assert command.pods == ("b", "c")
    decided: Decision = of(world.out, "decisions", "evict_memory")[0]
    told = {name: value for name, (value,) in decided.columns.items()}
    assert command.terms.items() <= told.items()
    assert (told["pod0_place"], told["pod1_place"], told["next_place"]) == (1, 2, 3)
    assert [told[f"{who}_cost"] for who in ("pod0", "pod1", "next")] == [0, 1, 1]
    assert [told[f"{who}_used"] for who in ("pod1", "next")] == [2 * GIB, GIB]
    assert told["pod0_feature"] == plan.FEATURES.index(plan.BEST_EFFORT)
    assert told["pod0_priority"] == told["pod0_sub_priority"] == 5500


def test_many_victims_are_told_up_to_a_bound() -> None:
    pods = [best_effort(f"b{i:02}") for i in range(30)]
    world = full(WARM, *pods, used=[GIB // 15] * 30)
    decided: Decision = of(world.out, "decisions", "evict_memory")[0]
    (command,) = orders(world)
    assert len(command.pods) == 29
    assert decided.columns["untold"] == [13]
    assert "pod15_place" in decided.columns
    assert "pod16_place" not in decided.columns
    assert decided.columns["next_place"] == [30]


KINDS = st.builds(
    PodFact,
    uid=st.uuids().map(str),
    name=st.just("p"),
    qos=st.sampled_from(["LSE", "LS", "BE", "BE", "BE", ""]),
    priority=st.sampled_from([0, 3500, 5500, 7500]),
    memory_request_bytes=st.sampled_from([0, GIB, 30 * GIB]),
    host_app=st.booleans(),
    evictable=st.sampled_from([True, True, False]),
    terminating=st.sampled_from([False, False, True]),
    eviction_priority=st.integers(-1, 1),
    sub_priority=st.none() | st.integers(0, 2),
    opted_in=st.booleans(),
    evict_features=st.sampled_from([(), ("memory",), ("be_memory", "cpu"), ("none",)]),
    recoverable=st.sampled_from([None, True, False]),
    checkpointed=st.booleans(),
    retries_left=st.integers(-1, 1),
)
SWITCHES = ("best_effort", "usage", "allocatable")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(KINDS, max_size=8), st.tuples(*[st.booleans()] * 3), st.integers(0, 9),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_r6_only_best_effort_pods_go_by_any_feature_and_in_any_order_of_rows(
    pods: list[PodFact], on: tuple[bool, ...], budget: int, random: Any
) -> None:
    switches = ", ".join(
        f"{name}_enabled: {str(value).lower()}" for name, value in zip(SWITCHES, on, strict=True)
    )
    policy = WARM + LENT + f"evict_memory: {{{switches}, usage_priority_most: 7999}}\n"
    found = []
    for _ in range(2):
        world = World(policy, node := Node(pods=tuple(pods)))
        for second in range(7):
            world.tick(0, facts(budget))
            sizes: list[int | None] = [GIB] * len(pods)
            available = GIB if second == 6 else 20 * GIB
            world.say(node.sample([100] * len(pods), available=available, used=sizes))
        found.append([uid for command in orders(world) for uid in command.pods])
        random.shuffle(pods)
    chosen = found[0]
    assert found[1] == chosen
    assert len(chosen) == len(set(chosen)) <= budget
    by_uid = {pod.uid: pod for pod in pods}
    for uid in chosen:
        pod = by_uid[uid]
        assert pod.qos == "BE"
        assert pod.evictable
        assert not (pod.host_app or pod.terminating)
        assert "none" not in pod.evict_features
        assert on[0] or pod.opted_in


@settings(max_examples=30, deadline=None)
@given(st.lists(KINDS, max_size=8))
def test_the_loop_evicts_whom_a_sweep_of_the_same_node_evicts(pods: list[PodFact]) -> None:
    both = BY_USE.replace("best_effort_enabled: false, ", "")
    world = World(both, node := Node(pods=tuple(pods)))
    world.tick(0, facts(100))
    world.say(node.sample([100] * len(pods), available=20 * GIB))
    world.say(node.sample([100] * len(pods), available=FULL))
    seen = orders(world)
    for command in seen:
        assert command.terms["wanted"] == len(command.pods)
    fresh = World(both, again := Node(pods=tuple(pods)))
    fresh.say(again.sample([100] * len(pods), available=20 * GIB))
    fresh.say(again.sample([100] * len(pods), available=20 * GIB))
    made = best_effort_pods(fresh.state, fresh.state.seats[b"n0"], fresh.log_ms, "memory")
    swept = plan.sweep(
        "memory", {plan.BEST_EFFORT, plan.USAGE}, plan.Rule(70, 68, 5999),
        plan.Node(MEMORY, MEMORY - FULL, {}), made,
        {plan.BEST_EFFORT: "be_memory", plan.USAGE: "memory"},
    )  # fmt: skip
    assert [uid for command in seen for uid in command.pods] == swept.evicted


@pytest.mark.parametrize("feature", ["usage", "allocatable"])
def test_both_are_off_by_default(feature: str) -> None:
    world = full(WARM, offering("b"), used=[3 * GIB])
    assert getattr(world.state.law.evict_memory, f"{feature}_enabled") is False
    assert getattr(world.state.law.evict_cpu, f"{feature}_enabled") is False
