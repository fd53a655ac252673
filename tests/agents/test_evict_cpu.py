"""Eviction of starved best-effort work: when, who, how many, and never without the fleet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.eviction.node import best_effort_pods
from schemas.records import Ack, Command, CpuTopology, FleetFacts, PodFact
from tests.agents.worlds import GIB, PARTITION, WARM, Node, World, best_effort, of, online

RULE = "window_ms: 3000, cooldown_ms: 4000"
ON = WARM + f"evict_cpu: {{enabled: true, {RULE}}}\n"
QUOTA = 1000
"""Millicores that best-effort work may use; 4000 asked for is a quarter of it."""


def evictions(world: World) -> list[Command]:
    return of(world.out, "commands", "evict_cpu")


def facts(budget: int, ill_permille: int = 0) -> tuple[str, int, bytes, Any]:
    return ("fleet", 0, b"fleet", FleetFacts(1, 1, 9, 0, 0, ill_permille, budget, 100_000))


def starving(*requests: int) -> Node:
    """An online pod, and best-effort pods b0, b1, ... that ask for so much."""
    names = (best_effort(f"b{i}", cpu_request_milli=milli) for i, milli in enumerate(requests))
    return Node(pods=(online("a"), *names))


def starve(
    world: World, node: Node, seconds: int = 8, quota: int | None = QUOTA, used: int = 960,
    side: Any = None, drop: tuple[str, ...] = (),
) -> list[Command]:  # fmt: skip
    """Seconds in which the best-effort pods share ``used``; every order that was given."""
    seen: list[Command] = []
    for _ in range(seconds):
        world.tick(0, *([side] if side else []))
        share = [used // max(len(node.pods) - 1, 1)] * (len(node.pods) - 1)
        world.say(node.sample([1000, *share], quota=quota, drop=drop))
        seen += evictions(world)
    return seen


def test_starved_pods_go_until_the_rest_is_satisfied() -> None:
    node = starving(2000, 1500, 1500)
    world = World(ON, node)
    (command, *later) = starve(world, node, side=facts(100))
    assert later == []  # what goes counts as released
    assert command.pods == ("b1",)  # the most used per request, and enough
    assert command.reason == "cpu_unsatisfied"
    said = {name: command.terms[name] for name in ("used", "request", "limit", "release")}
    assert said == {"used": 960, "request": 5000, "limit": 1000, "release": 1000}


@pytest.mark.parametrize(
    "calm",
    [
        {"quota": 1600},  # 32 percent of what is asked for
        {"quota": None},  # nobody knows the limit
        {"quota": -1},  # none: the node's own CPUs
        {"quota": 1500, "used": 1300},  # starved, but not used up
        {"drop": ("be_cpu_usage_us",)},
        {"drop": ("be_cpu_quota_milli",)},
    ],
)
def test_who_is_not_starved_or_not_measured_stays(calm: dict[str, Any]) -> None:
    world = World(ON, node := starving(2000, 1500, 1500))
    assert starve(world, node, side=facts(100), **calm) == []


def test_a_starved_group_that_uses_what_it_may_is_not_spared_by_a_higher_limit() -> None:
    world = World(ON, node := starving(2000, 1500, 1500))
    (command,) = starve(world, node, side=facts(100), quota=1500, used=1400)
    assert command.terms["release"] == 500


def test_a_moment_is_no_window() -> None:
    world = World(ON.replace("3000", "30000"), node := starving(4000))
    assert starve(world, node, seconds=9, side=facts(100)) == []
    assert starve(world, node, seconds=2, side=facts(100))  # a third of it was seen
    calm = World(ON.replace("3000", "30000"), node := starving(4000))
    starve(calm, node, seconds=20, quota=8000, side=facts(100))
    assert starve(calm, node, seconds=5, side=facts(100)) == []  # the mean is not that low yet


def test_the_last_sample_must_agree_with_the_window() -> None:
    world = World(ON.replace("3000", "9000"), node := starving(4000))
    starve(world, node, seconds=20, side=facts(0))
    assert starve(world, node, seconds=1, quota=4000, side=facts(100)) == []


def test_a_node_that_has_just_begun_is_left_alone_for_a_cool_down() -> None:
    world = World(ON.replace("cooldown_ms: 4000", "cooldown_ms: 20000"), node := starving(4000))
    assert starve(world, node, seconds=20, side=facts(100)) == []
    assert starve(world, node, seconds=2, side=facts(100))


def test_it_is_off_by_default_and_without_a_policy() -> None:
    for policy in (WARM, None):
        world = World(policy, node := starving(2000, 2000))
        assert starve(world, node, side=facts(100)) == []
        assert not any(world.value(node, "starved")[0])


@pytest.mark.parametrize("side", [None, facts(0), facts(9, ill_permille=550)])
def test_r5_without_the_fleets_word_nobody_goes_but_it_is_asked_for(side: Any) -> None:
    world = World(ON, node := starving(2000, 2000))
    assert starve(world, node, side=side) == []
    assert world.value(node, "evictions_wanted") == 1


def test_memory_and_cpu_draw_on_one_budget() -> None:
    world = World(ON, node := starving(2000, 2000, 2000))
    starve(world, node, side=facts(0))
    world.tick(0, facts(1))
    full = node.memory * 26 // 100
    world.say(node.sample([1000, 320, 320, 320], quota=QUOTA, available=full))
    assert [c.decider for c in of(world.out, "commands") if c.decider != "suppress"] == [
        "evict_memory"
    ]
    assert len(world.state.orders_ms) == 1


def test_what_memory_ordered_out_counts_for_cpu() -> None:
    world = World(ON, node := starving(2000, 2000, 2000))
    starve(world, node, side=facts(0))
    world.tick(0, facts(9))
    full = node.memory * 29 // 100
    used = [GIB, 3 * GIB, GIB, GIB]
    world.say(node.sample([1000, 320, 320, 320], quota=QUOTA, available=full, used=used))
    orders = {c.decider: c for c in of(world.out, "commands")}
    assert orders["evict_memory"].pods == ("b0",)
    assert "evict_cpu" not in orders  # 1400 were needed, 2000 go


@pytest.mark.parametrize(("by_allocatable", "count"), [("false", 0), ("true", 1)])
def test_the_limit_may_be_what_is_lent(by_allocatable: str, count: int) -> None:
    policy = ON.replace("enabled: true", f"enabled: true, by_allocatable: {by_allocatable}")
    world = World(policy, node := starving(20_000))
    orders = starve(world, node, seconds=12, quota=-1, used=7900, side=facts(9))
    assert len(orders) == count
    for order in orders:
        assert 0 < order.terms["limit"] < 8000


def test_a_refused_order_is_given_again_after_the_cool_down() -> None:
    world = World(ON, node := starving(4000))
    (command,) = starve(world, node, side=facts(9))
    ack = Ack("n0", node.boot, 1, 1, "evict_cpu", "refused", pods=command.pods)
    world.tick(0, ("acks", PARTITION, b"n0", ack))
    (again,) = starve(world, node, seconds=4, side=facts(9))
    assert again.pods == command.pods == ("b0",)
    assert again.terms["fruitless"] == 1


def test_each_node_follows_its_own_policy() -> None:
    entry = (
        "nodes:\n  - {name: x, match: {pool: x}, evict_cpu: {enabled: true, cooldown_ms: 4000}}\n"
    )
    on, off = starving(4000), starving(4000)
    off.name = "n1"
    world = World(WARM + "evict_cpu: {window_ms: 3000}\n" + entry, on, off)
    world.know(on, labels={"pool": "x"})
    seen: list[Command] = []
    for _ in range(7):
        world.tick(1000, facts(9))
        for node in (on, off):
            world.say(node.sample([1000, 960], quota=QUOTA), after_ms=0)
            seen += evictions(world)
    assert [command.node for command in seen] == ["n0"]


def test_dry_run_says_so_and_credits_nothing() -> None:
    policy = ON.replace("enabled: true", "enabled: true, dry_run: true")
    world = World(policy, node := starving(4000))
    orders = starve(world, node, seconds=12, side=facts(9))
    assert len(orders) > 1
    assert all(order.dry_run for order in orders)
    assert world.state.orders_ms == []


def test_the_window_is_kept_in_an_image() -> None:
    world = World(ON, node := starving(4000))
    starve(world, node, seconds=5)
    again = type(world.state).from_arrays(*world.state.to_arrays())
    assert again.digest() == world.state.digest()
    assert again.nodes["starved"].any()


KINDS = st.builds(
    PodFact,
    uid=st.uuids().map(str),
    name=st.just("p"),
    qos=st.sampled_from(["LSE", "LS", "BE", "BE", "SYSTEM", ""]),
    priority=st.sampled_from([0, 3500, 5500, 7500]),
    cpu_request_milli=st.sampled_from([0, 500, 30_000, 1 << 60]),
    host_app=st.booleans(),
    evictable=st.booleans(),
    terminating=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(KINDS, max_size=8), st.sampled_from([0, 10, 900, 1000, 8000]), st.integers(0, 9))
def test_r6_only_best_effort_pods_that_did_not_opt_out_go(
    pods: list[PodFact], quota: int, budget: int
) -> None:
    world = World(ON, node := Node(pods=tuple(pods)))
    for _ in range(7):
        world.tick(0, facts(budget))
        world.say(node.sample([300] * len(pods), quota=quota))
        chosen = [uid for command in evictions(world) for uid in command.pods]
        assert len(chosen) == len(set(chosen)) <= budget
        assert all(command.pods for command in evictions(world)), "empty never means all"
        allowed = {
            p.uid
            for p in pods
            if p.qos == "BE" and p.evictable and not (p.host_app or p.terminating)
        }
        assert set(chosen) <= allowed
    made = best_effort_pods(world.state, world.state.seats[b"n0"], world.log_ms, "cpu")
    assert {pod.uid for pod in made} == {p.uid for p in pods if p.qos == "BE" and not p.host_app}


def test_bound_to_cpus_they_are_the_limit_for_there_is_no_quota() -> None:
    node = starving(10_000, 10_000)
    cpus = tuple(range(8))
    node.facts = {"topology": CpuTopology(cpus, cpus, (0,) * 8, (0,) * 8)}
    world = World(ON + "suppress: {policy: cpuset}\n", node)
    (command, *_) = starve(world, node, side=facts(100), quota=-1, used=4800)
    assert command.terms["limit"] == 5000
