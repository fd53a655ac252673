"""What pods say of their own eviction: read, kept, carried over, and heard by the orders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.eviction import labels, worth
from agents.eviction.candidate import CHEAP, DEAR, NOTHING_SAID, UNKNOWN
from agents.eviction.node import best_effort_pods
from schemas.records import Command, FleetFacts, PodFact
from tests.agents.worlds import GIB, MEMORY, WARM, Node, World, best_effort, of, online

FULL = MEMORY * 26 // 100
"""Six percent over the lower mark: two pods of 1 GiB are needed."""
SAID: dict[str, Any] = {
    "eviction_priority": -5, "sub_priority": -2, "opted_in": True, "evict_features": ("memory",),
    "recoverable": True, "retries_left": 3,
}  # fmt: skip


def candidates(world: World, resource: Any = "memory") -> list[Any]:
    return best_effort_pods(world.state, world.state.seats[b"n0"], world.log_ms, resource)


def victims(node: Node, sizes: list[int], policy: str = WARM) -> tuple[str, ...]:
    """Who is ordered out of a full node, in order."""
    world = World(policy, node)
    world.tick(1000, ("fleet", 0, b"fleet", FleetFacts(1, 1, 9, 0, 0, 0, 100, 100_000)))
    world.say(node.sample(available=FULL, used=sizes))
    orders: list[Command] = of(world.out, "commands", "evict_memory")
    return orders[0].pods if orders else ()


def test_what_a_pod_says_reaches_the_candidate() -> None:
    world = World(WARM, node := Node(pods=(best_effort("b", **SAID), best_effort("c"))))
    world.say(node.sample())
    world.say(node.sample(), after_ms=4000)
    said, silent = candidates(world)
    assert (said.eviction_priority, said.sub_priority, said.opted_in) == (-5, -2, True)
    assert said.policies == {"memory"}
    assert not said.best_effort  # its list leaves be_memory out
    assert said.work.cost()[0] == CHEAP
    assert (silent.eviction_priority, silent.sub_priority, silent.opted_in) == (0, None, False)
    assert silent.policies is None
    assert silent.best_effort
    assert silent.work is NOTHING_SAID


def test_it_is_carried_over_and_kept_in_an_image() -> None:
    world = World(WARM, node := Node(pods=(best_effort("b", **SAID), best_effort("c"))))
    before = candidates(world)
    again = type(world.state).from_arrays(*world.state.to_arrays())
    assert again.digest() == world.state.digest()
    assert best_effort_pods(again, again.seats[b"n0"], world.log_ms, "memory") == before
    node.pods, node.rev = (node.pods[1], best_effort("d"), node.pods[0]), 2
    world.know(node)
    assert [pod.opted_in for pod in candidates(world)] == [False, False, True]


def test_an_image_from_before_says_nothing_of_any_pod() -> None:
    world = World(WARM, Node(pods=(best_effort("b", **SAID),)))
    meta, arrays = world.state.to_arrays()
    for field in worth.POD_FIELDS:
        del arrays[f"pod.{field.name}"]
    world.state = type(world.state).from_arrays(meta, arrays)
    (pod,) = candidates(world)
    assert (pod.eviction_priority, pod.sub_priority, pod.opted_in, pod.policies) == (
        0, None, False, None,
    )  # fmt: skip
    assert pod.work is NOTHING_SAID


def test_cheap_work_goes_before_what_nobody_knows_and_dear_work_last() -> None:
    node = Node(
        pods=(
            online("a"), best_effort("lost", recoverable=False), best_effort("unknown"),
            best_effort("spent", recoverable=True, retries_left=0),
            best_effort("again", recoverable=True), best_effort("saved", checkpointed=True),
        )
    )  # fmt: skip
    sizes = [GIB, GIB, GIB, GIB, GIB // 2, GIB // 2]
    assert victims(node, sizes) == ("again", "saved", "unknown")  # both just seen: the uid decides
    old = World(WARM, node)
    old.say(node.sample(used=sizes))
    old.say(node.sample(used=sizes), after_ms=60_000)
    old.tick(0, ("fleet", 0, b"fleet", FleetFacts(1, 1, 9, 0, 0, 0, 100, 100_000)))
    old.say(node.sample(available=FULL, used=sizes))
    (order,) = of(old.out, "commands", "evict_memory")
    assert order.pods[:2] == ("saved", "again")  # a second's work is lost with the other


def test_young_work_goes_before_old_of_the_same_kind() -> None:
    node = Node(pods=(online("a"), best_effort("old", recoverable=True)))
    world = World(WARM, node)
    world.run(node, 5)
    node.pods = (*node.pods, best_effort("young", recoverable=True))
    node.rev = 2
    world.know(node)
    world.run(node, 3)
    ages = {pod.uid: pod.work.cost()[1] for pod in candidates(world)}
    assert 0 < ages["young"] < ages["old"]


def test_a_list_that_leaves_the_last_gate_out_is_heard() -> None:
    node = Node(pods=(online("a"), best_effort("b", evict_features=("be_cpu",)), best_effort("c")))
    assert victims(node, [GIB, 3 * GIB, GIB]) == ("c",)
    node = Node(pods=(online("a"), best_effort("b", evict_features=("none",))))
    assert victims(node, [GIB, 3 * GIB]) == ()
    node = Node(pods=(online("a"), best_effort("b", evict_features=("BEMemoryEvict",))))
    assert victims(node, [GIB, 3 * GIB]) == ("b",)


@given(st.lists(st.sampled_from([*labels.FEATURES, *labels.GATES, "none", "disk"]), max_size=4))
def test_bits_say_what_the_list_says(named: list[str]) -> None:
    allowed = worth.policies_of(worth.spared(named))
    wanted = labels.canonical(frozenset(named)) if named else None
    for feature in labels.FEATURES:
        assert labels.allows(allowed, feature) == labels.allows(wanted, feature)


@pytest.mark.parametrize(
    ("fact", "cost"),
    [
        ({}, (UNKNOWN, 0)),
        ({"recoverable": True}, (CHEAP, 700)),
        ({"checkpointed": True}, (CHEAP, 0)),
        ({"checkpointed": True, "recoverable": False}, (CHEAP, 0)),
        ({"recoverable": False}, (DEAR, 700)),
        ({"retries_left": 2}, (CHEAP, 700)),
        ({"recoverable": True, "retries_left": 0}, (DEAR, 700)),
        ({"checkpointed": True, "retries_left": 0}, (DEAR, 0)),
    ],
)
def test_the_cost_of_losing_the_work(fact: dict[str, Any], cost: tuple[int, int]) -> None:
    world = World(WARM, Node(pods=(best_effort("b", **fact),)))
    arena, slot = world.state.pods, int(world.state.nodes["start"][0])
    will, retries = int(arena["will"][slot]), int(arena["retries_left"][slot])
    assert worth.work_of(will, retries, 700).cost() == cost


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_beyond_32_bits_are_cut(number: int, retries: int) -> None:
    said = {"eviction_priority": number, "sub_priority": number, "retries_left": retries}
    (pod,) = candidates(World(WARM, Node(pods=(best_effort("b", **said),))))
    cut = min(max(number, labels.INT32[0]), labels.INT32[-1])
    assert (pod.eviction_priority, pod.sub_priority) == (cut, cut)


def test_facts_of_a_kubernetes_pod() -> None:
    assert PodFact("u", "n", **labels.facts({}, {})) == PodFact("u", "n")
    said = labels.facts(
        {labels.OPTED_IN_LABEL: "true", labels.SUB_PRIORITY_LABEL: "0x10"},
        {
            labels.EVICTION_PRIORITY_ANNOTATION: "-9",
            labels.POLICIES_ANNOTATION: '["CPUEvict", "be_memory"]',
            labels.RECOVERABLE_ANNOTATION: "false",
            labels.CHECKPOINTED_ANNOTATION: "true",
            labels.RETRIES_LEFT_ANNOTATION: "4",
        },
    )
    assert said == {
        "opted_in": True, "sub_priority": 16, "eviction_priority": -9,
        "evict_features": ("be_memory", "cpu"), "recoverable": False, "checkpointed": True,
        "retries_left": 4,
    }  # fmt: skip
    for text in ("[]", "{", '{"a": 1}'):
        assert labels.facts({}, {labels.POLICIES_ANNOTATION: text})["evict_features"] == ("none",)
