"""Memory's last gate: who goes, how many, and who never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.eviction.node import best_effort_pods
from agents.eviction.release import by_limit, mark_below
from schemas.policy import Policy
from schemas.records import Ack, Command, FleetFacts, PodFact, PolicyRecord
from tests.agents.worlds import (
    GIB,
    MEMORY,
    PARTITION,
    WARM,
    Node,
    World,
    best_effort,
    of,
    online,
)

FULL = MEMORY * 26 // 100
"""Available memory of a node that is 74 % full: 6 percent over the lower mark."""
RELEASE = MEMORY * 6 // 100


def evictions(world: World) -> list[Command]:
    return of(world.out, "commands", "evict_memory")


def facts(budget: int, ill_permille: int = 0) -> tuple[str, int, bytes, Any]:
    return ("fleet", 0, b"fleet", FleetFacts(1, 1, 9, 0, 0, ill_permille, budget, 10_000))


def crowded(*pods: PodFact) -> Node:
    return Node(pods=(online("a"), *pods))


def test_at_the_threshold_pods_go_until_the_lower_mark_is_reached() -> None:
    node = crowded(best_effort("b"), best_effort("c"), best_effort("d"))
    world = World(WARM, node)
    world.tick(1000, facts(10))
    world.say(node.sample(available=FULL, used=[9 * GIB, GIB, 3 * GIB, GIB // 2]))
    (command,) = evictions(world)
    assert command.pods == ("c",)
    assert command.release_bytes == RELEASE
    assert command.terms["percent"] == 74
    assert command.reason == "memory_full"


def test_below_the_threshold_nobody_goes() -> None:
    node = crowded(best_effort("b"))
    world = World(WARM, node)
    world.say(node.sample(available=MEMORY * 3001 // 10_000))
    assert evictions(world) == []
    world.say(node.sample(available=MEMORY * 30 // 100))
    assert len(evictions(world)) == 1  # 70 percent is at the threshold


@pytest.mark.parametrize("available", [None, 0, MEMORY + 1, -5])
def test_r3_an_absent_or_transient_zero_figure_never_evicts(available: int | None) -> None:
    node = crowded(best_effort("b"))
    world = World(WARM, node)
    world.say(node.sample(available=available))
    assert evictions(world) == []
    world.say(node.sample(available=FULL, drop=["memory_total_bytes"]))
    assert evictions(world) == []


def test_r3_a_column_of_zeros_does_not_clear_a_node() -> None:
    node = crowded(*(best_effort(f"b{i}") for i in range(9)))
    world = World(WARM, node)
    world.tick(1000, facts(100))
    world.say(node.sample(available=FULL, used=[0] * 10))
    assert len(evictions(world)[0].pods) == 1


def test_r6_without_a_policy_or_an_inventory_nobody_goes() -> None:
    node = crowded(best_effort("b"))
    for world in (World(None, node), World(WARM)):
        world.say(node.sample(available=FULL))
        assert evictions(world) == []
    unknown = World(WARM, node)
    node.rev += 1
    unknown.say(node.sample(available=FULL))
    assert evictions(unknown) == []


def test_what_is_going_counts_as_released_until_it_has_gone() -> None:
    node = crowded(best_effort("b"), best_effort("c", terminating=True))
    world = World(WARM, node)
    world.tick(1000, facts(10))
    world.say(node.sample(available=FULL, used=[GIB, GIB, 3 * GIB]))
    assert evictions(world) == []  # the dying pod frees enough
    node.pods = (node.pods[0], node.pods[1])
    node.cpu_us = node.cpu_us[:2]
    node.rev += 1
    world.know(node)
    world.say(node.sample(available=FULL, used=[GIB, GIB]))
    assert evictions(world)[0].pods == ("b",)


def test_r4_who_was_ordered_out_is_not_ordered_out_again_while_the_order_stands() -> None:
    node = crowded(best_effort("b"), best_effort("c"))
    world = World(WARM, node)
    used = [GIB, 3 * GIB, 2 * GIB]
    world.say(node.sample(available=FULL, used=used))
    assert evictions(world)[0].pods == ("b",)
    for _ in range(29):
        world.say(node.sample(available=FULL, used=used))
        assert evictions(world) == []
    world.say(node.sample(available=FULL, used=used))  # 30 s: the order has expired unheard
    assert evictions(world)[0].pods == ("b",)


@pytest.mark.parametrize(("outcome", "chosen"), [("refused", "b"), ("failed", "b")])
def test_a_refused_order_no_longer_counts(outcome: Any, chosen: str) -> None:
    node = crowded(best_effort("b"))
    world = World(WARM, node)
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB]))
    ack = Ack("n0", node.boot, 1, 1, "evict_memory", outcome, pods=("b", "a", "gone"))
    world.tick(1000, ("acks", PARTITION, b"n0", ack))
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB]), after_ms=4000)
    assert evictions(world)[0].pods == (chosen,)


def test_what_the_node_evicted_by_itself_counts_as_released() -> None:
    node = crowded(best_effort("b"), best_effort("c"))
    world = World(WARM, node)
    ack = Ack("n0", node.boot, 1, 1, "evict_memory", "local", pods=("b",))
    world.tick(1000, ("acks", PARTITION, b"n0", ack))
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB, 3 * GIB]))
    assert evictions(world) == []


def test_the_cool_down_is_in_milliseconds() -> None:
    node = crowded(best_effort("b"), best_effort("c"))
    world = World(WARM, node)
    sizes: list[int | None] = [GIB, GIB, GIB]
    world.say(node.sample(available=FULL, used=sizes))
    assert evictions(world)[0].pods == ("b",)
    world.say(node.sample(available=FULL, used=sizes), after_ms=3999)
    assert evictions(world) == []
    world.say(node.sample(available=FULL, used=sizes), after_ms=1)
    assert evictions(world)[0].pods == ("c",)


def crowd(count: int) -> list[Node]:
    return [
        Node(f"n{i}", (online(f"a{i}"), best_effort(f"b{i}"), best_effort(f"c{i}")))
        for i in range(count)
    ]


def ordered(world: World, nodes: list[Node], after_ms: int = 0) -> list[int]:
    """Pods ordered out on each node, all of which are full of small pods."""
    counts = []
    for node in nodes:
        world.say(node.sample(available=FULL, used=[GIB, GIB, GIB]), after_ms)
        counts.append(sum(len(command.pods) for command in evictions(world)))
    return counts


def test_r5_the_partitions_budget_bounds_all_its_nodes_in_one_cool_down() -> None:
    nodes = crowd(5)
    world = World(WARM, *nodes)
    world.tick(1000, facts(3))
    assert ordered(world, nodes) == [2, 1, 0, 0, 0]
    world.tick(4000, facts(3))
    assert sum(ordered(world, nodes)) == 3


@pytest.mark.parametrize("kind", ["absent", "stale"])
def test_r5_with_absent_or_stale_facts_one_pod_a_node_a_cool_down(kind: str) -> None:
    nodes = crowd(3)
    world = World(WARM, *nodes)
    if kind == "stale":
        world.tick(1000, facts(100))
        world.tick(10_001)
    assert ordered(world, nodes) == [1, 1, 1]
    assert evictions(world)[0].reason == "memory_full_fleet_unknown"


@pytest.mark.parametrize("side", [facts(0), facts(100, ill_permille=550)])
def test_r5_a_fleet_that_is_ill_evicts_nobody(side: tuple[str, int, bytes, Any]) -> None:
    nodes = crowd(2)
    world = World(WARM, *nodes)
    world.tick(1000, side)
    assert ordered(world, nodes) == [0, 0]
    world.tick(0)
    assert world.value(nodes[0], "evictions_wanted") == 2


def test_evictions_wanted_are_counted_for_the_fleet() -> None:
    nodes = crowd(2)
    world = World(WARM, *nodes)
    world.tick(1000, facts(0))
    ordered(world, nodes)
    world.tick(1000)
    assert of(world.out, "fleet")[0].evictions_wanted == 4


def test_dry_run_says_so_and_credits_nothing() -> None:
    node = crowded(best_effort("b"))
    world = World(WARM + "evict_memory: {dry_run: true}\n", node)
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB]))
    assert evictions(world)[0].dry_run
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB]), after_ms=4000)
    assert evictions(world)[0].pods == ("b",)


def test_disabled_means_nobody() -> None:
    node = crowded(best_effort("b"))
    world = World(WARM, node)
    off = PolicyRecord("default", 2, "", WARM + "evict_memory: {enabled: false}\n")
    world.tick(1000, ("policies", 0, b"default", off))
    world.say(node.sample(available=FULL))
    assert evictions(world) == []


KINDS = st.builds(
    PodFact,
    uid=st.uuids().map(str),
    name=st.just("p"),
    qos=st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", ""]),
    priority_class=st.sampled_from(["prod", "mid", "batch", "free", ""]),
    priority=st.sampled_from([0, 3500, 5500, 9500]),
    host_app=st.booleans(),
    evictable=st.booleans(),
    terminating=st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(KINDS, max_size=12), st.data())
def test_r6_an_online_pod_is_never_chosen(pods: list[PodFact], data: st.DataObject) -> None:
    node = Node(pods=tuple(pods))
    world = World(WARM, node)
    world.tick(1000, facts(100))
    sizes = [data.draw(st.sampled_from([None, 0, GIB, 5 * GIB])) for _ in pods]
    world.say(node.sample(available=GIB, used=sizes))
    allowed = {
        p.uid for p in pods if p.qos == "BE" and p.evictable and not (p.host_app or p.terminating)
    }
    chosen = [uid for command in evictions(world) for uid in command.pods]
    assert set(chosen) <= allowed
    assert all(command.pods for command in evictions(world)), "empty never means all"
    made = best_effort_pods(world.state, world.state.seats[b"n0"], world.log_ms, "memory")
    assert {pod.uid for pod in made} == {p.uid for p in pods if p.qos == "BE" and not p.host_app}


def stubborn(world: World, node: Node, rounds: int) -> list[Command]:
    """The node stays as full as it is, and says that it refuses what it is told."""
    seen: list[Command] = []
    for _ in range(rounds):
        world.say(node.sample(available=FULL, used=[GIB, 3 * GIB, 2 * GIB, GIB]), after_ms=4000)
        (command,) = evictions(world)
        ack = Ack("n0", node.boot, 1, 1, "evict_memory", "refused", pods=command.pods)
        world.tick(0, ("acks", PARTITION, b"n0", ack))
        seen.append(command)
    return seen


def test_orders_that_free_nothing_escalate_to_others_with_a_reason() -> None:
    mid = best_effort("m", priority_class="mid", priority=7500)
    node = crowded(best_effort("b"), best_effort("c"), mid)
    world = World(WARM, node)
    world.tick(0, facts(100))
    commands = stubborn(world, node, 8)
    assert [command.pods[0] for command in commands[:5]] == ["b", "b", "b", "c", "m"]
    assert [command.terms["fruitless"] for command in commands] == list(range(8))
    kinds = [command.reason.partition("_escalated")[2] for command in commands]
    assert kinds == ["", "", "", "_to_mid", "_to_mid", "_to_mid", "_to_all", "_to_all"]
    world.say(node.sample(available=20 * GIB))
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB, 2 * GIB, GIB]), after_ms=40_000)
    assert evictions(world)[0].pods == ("b",)  # relief ends the escalation
    assert evictions(world)[0].terms["fruitless"] == 0


def test_escalation_can_be_switched_off() -> None:
    node = crowded(best_effort("b"), best_effort("c"), best_effort("d"))
    world = World(WARM + "evict_memory: {escalate_after_orders: 0}\n", node)
    world.tick(0, facts(100))
    commands = stubborn(world, node, 5)
    assert [command.pods[0] for command in commands] == ["b"] * 5
    assert not any("escalated" in command.reason for command in commands)


MIB = 1 << 20
LIMIT = 4 * GIB
RULE = Policy().evict_memory


def near_a_limit(used: int | None, limit: int = LIMIT) -> dict[str, Any]:
    return {"be_memory_limit_bytes": limit, "be_memory_used_bytes": used}


def test_before_a_memory_limit_above_them_pods_go_although_the_node_is_not_full() -> None:
    node = crowded(best_effort("b"), best_effort("c"))
    world = World(WARM, node)
    world.tick(1000, facts(10))
    mark = LIMIT - RULE.limit_margin_bytes
    sizes = [GIB, 100 * MIB, 3 * GIB]
    world.say(node.sample(used=sizes, more=near_a_limit(mark - 1)))
    assert evictions(world) == []
    world.say(node.sample(used=sizes, more=near_a_limit(mark)))
    (command,) = evictions(world)
    assert (command.pods, command.reason) == (("c",), "memory_limit")
    assert command.release_bytes == RULE.limit_lower_bytes - RULE.limit_margin_bytes
    assert (command.terms["limit"], command.terms["limited"]) == (LIMIT, mark)


def test_without_the_fleets_word_one_pod_goes_before_a_limit() -> None:
    node = crowded(*(best_effort(f"b{i}") for i in range(5)))
    world = World(WARM, node)
    world.say(node.sample(used=[10 * MIB] * 6, more=near_a_limit(LIMIT - MIB)))
    (command,) = evictions(world)
    assert len(command.pods) == 1
    assert command.reason == "memory_limit_fleet_unknown"


def test_a_full_node_with_a_limit_nearly_reached_frees_the_larger_of_both() -> None:
    node = crowded(best_effort("b"), best_effort("c"))
    world = World(WARM, node)
    world.tick(1000, facts(10))
    beyond = near_a_limit(MEMORY, limit=MEMORY)  # its goal is smaller than that of the full node
    world.say(node.sample(available=FULL, used=[GIB, 3 * GIB, 5 * GIB], more=beyond))
    (command,) = evictions(world)
    assert (command.reason, command.release_bytes) == ("memory_full", RELEASE)


@pytest.mark.parametrize(
    "more",
    [near_a_limit(None), near_a_limit(0), near_a_limit(-1), near_a_limit(GIB, -1),
     near_a_limit(GIB, 0)],
)  # fmt: skip
def test_r3_no_limit_or_an_absent_figure_evicts_nobody(more: dict[str, Any]) -> None:
    node = crowded(best_effort("b"))
    world = World(WARM, node)
    world.say(node.sample(more=more))
    assert evictions(world) == []


def test_the_gate_at_limits_has_a_switch_of_its_own() -> None:
    node = crowded(best_effort("b"))
    world = World("evict_memory: {limit_enabled: false}", node)
    world.say(node.sample(more=near_a_limit(LIMIT)))
    assert evictions(world) == []


@given(
    limit=st.integers(1, 1 << 50),
    used=st.integers(0, 1 << 50),
    margin=st.integers(0, 1 << 50),
    more=st.integers(1, 1 << 50),
)
def test_under_any_limit_a_quarter_is_left_to_use_and_half_is_kept(
    limit: int, used: int, margin: int, more: int
) -> None:
    one = np.array([limit], dtype=np.int64)
    mark = int(mark_below(one, margin)[0])
    assert limit - limit // 4 <= mark <= limit
    release = int(by_limit(one, np.array([used], dtype=np.int64), margin, margin + more)[0])
    assert (release > 0) <= (used >= mark)
    assert release <= max(used - (limit - limit // 2), 0)
