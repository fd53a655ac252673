"""Pod sets: state is carried over by uid, slots lie in pod order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import classes
from agents.inventory import LARGEST
from agents.table import ABSENT
from schemas.records import PodFact
from tests.agents.worlds import WARM, Node, World, best_effort, online


def test_state_follows_the_uid_when_the_order_changes() -> None:
    node = Node(pods=(online("a"), online("b"), best_effort("c")))
    world = World(WARM, node)
    world.run(node, 3, milli=[100, 200, 300])
    node.pods = (node.pods[2], online("d"), node.pods[0])
    node.cpu_us = [node.cpu_us[2], 0, node.cpu_us[0]]
    node.rev += 1
    world.know(node)
    assert world.pods(node, "milli") == [300, -1, 100]
    assert world.state.seats[b"n0"].uids == ("c", "d", "a")
    world.say(node.sample([310, 50, 110]))
    assert world.pods(node, "milli") == [310, -1, 110]  # no pair for the new one yet


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), unique=True, max_size=40), min_size=1, max_size=8))
def test_no_pod_ever_gets_anothers_state(sets: list[list[int]]) -> None:
    node, other = Node("n0", ()), Node("n1", (online("x"),))
    world = World(WARM, node, other)
    world.run(other, 2, milli=[777])
    lasting: dict[int, int] = {}
    for rev, numbers in enumerate(sets, start=2):
        node.pods, node.rev = tuple(online(f"p{n}") for n in numbers), rev
        node.cpu_us = [lasting.get(n, 0) for n in numbers]
        world.know(node)
        world.run(node, 2, milli=[n * 10 for n in numbers])
        assert world.pods(node, "milli") == [n * 10 for n in numbers]
        lasting = dict(zip(numbers, node.cpu_us, strict=True))
    assert world.pods(other, "milli") == [777]


def test_a_uid_that_comes_twice_cannot_be_ordered_out_by_its_twins_name() -> None:
    node = Node(pods=(online("a"), best_effort("a")))
    world = World(WARM, node)
    assert world.state.seats[b"n0"].uids == ("a", "a#1")
    assert not any(roles & classes.EVICTABLE for roles in world.pods(node, "roles")[1:])


def test_facts_of_a_pod_change_without_touching_its_state() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 3, milli=[100, 200])
    node.pods = (node.pods[0], best_effort("b", terminating=True))
    world.know(node)
    assert world.pods(node, "milli") == [100, 200]
    assert world.pods(node, "roles")[1] & classes.TERMINATING


@pytest.mark.parametrize("extreme", [2**63 - 1, 2**64 - 1, -(2**63), -1])
def test_extreme_facts_are_bounded(extreme: int) -> None:
    node = Node(
        capacity=extreme, memory=extreme, rev=extreme,
        pods=(online("a", cpu_request_milli=extreme, memory_request_bytes=extreme,
                     priority=extreme),),
    )  # fmt: skip
    world = World(WARM, node)
    world.tick(1000)
    known = [LARGEST, LARGEST] if extreme > 0 else [ABSENT, ABSENT]
    assert world.value(node, "capacity") == known


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (PodFact("u", "n"), classes.ONLINE | classes.HIGH | classes.EVICTABLE),
        (PodFact("u", "n", qos="BE"), classes.BEST_EFFORT | classes.EVICTABLE),
        (
            PodFact("u", "n", qos="BE", priority_class="mid"),
            classes.BEST_EFFORT | classes.HIGH | classes.MID | classes.EVICTABLE,
        ),
        (PodFact("u", "n", qos="LS", priority=5100), classes.ONLINE | classes.EVICTABLE),
        (
            PodFact("u", "n", qos="LSE", evictable=False, host_app=True),
            classes.ONLINE | classes.HIGH | classes.LSE | classes.HOST,
        ),
    ],
)
def test_roles_follow_from_qos_and_class(pod: PodFact, expected: int) -> None:
    assert classes.roles_of(pod) == expected
