"""Gangs: who may go, by members and by room; none of it depends on the order of anything."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scheduler_bridge.admission.gang import Member, Membership, decide, gated, membership
from scheduler_bridge.admission.room import NodeView, Room, Wants, node_of, wants_of
from tests.scheduler_bridge.admission.pods import pod

NAME = "gang.scheduling.koordinator.sh/name"
LEAST = "gang.scheduling.koordinator.sh/min-available"
WAIT = "gang.scheduling.koordinator.sh/waiting-time"


def member(uid: str, gang: str = "g", least: int = 2, cpu: int = 1, **more: Any) -> Member:
    fields: dict[str, Any] = {"state": "waiting", "seen_ms": 0, **more}
    return Member(uid, "n", uid, Membership(gang, least, 0), Wants({"cpu": cpu}), **fields)


def room(*cpus: int, **more: Any) -> Room:
    return Room(NodeView(f"n{i}", {"cpu": c, "pods": 10}, **more) for i, c in enumerate(cpus))


def acts(members: list[Member], place: Room, now_ms: int = 0) -> dict[str, str]:
    return {one.gang[1]: one.act for one in decide(members, place, now_ms, 60)}


def test_a_gang_goes_when_all_are_there_and_each_has_a_place() -> None:
    five = [member(f"m{i}", least=5) for i in range(5)]
    assert acts(five[:4], room(9)) == {"g": "wait"}
    assert acts(five, room(2, 2)) == {"g": "wait"}
    assert acts(five, room(2, 2, 1)) == {"g": "release"}
    assert acts([member("a", cpu=3), member("b", cpu=3)], room(5, 1)) == {"g": "wait"}, "no sums"


def test_a_second_gang_gets_what_the_first_leaves_the_older_goes_first() -> None:
    first = [member(f"a{i}", "a", seen_ms=5) for i in range(2)]
    second = [member(f"b{i}", "b", seen_ms=4) for i in range(2)]
    assert acts(first + second, room(3)) == {"b": "release", "a": "wait"}
    assert acts(first + second, room(4)) == {"b": "release", "a": "release"}


def test_members_that_run_count_and_those_held_by_others_do_not() -> None:
    assert acts([member("a", least=3), member("b", least=3, state="held")], room(9)) == {
        "g": "wait"
    }
    ran = [member("a", least=3, state="bound"), member("b", least=3, state="released")]
    assert acts([*ran, member("c", least=3)], room(9)) == {"g": "release"}
    assert decide(ran, room(9), 0, 60) == []


def test_a_gang_is_rejected_when_its_first_member_has_waited_too_long() -> None:
    waiting = [member("a", least=3, seen_ms=0), member("b", least=3, seen_ms=59_000)]
    assert acts(waiting, room(9), 59_999) == {"g": "wait"}
    decided = decide(waiting, room(9), 60_000, 60)[0]
    assert (decided.act, len(decided.members)) == ("reject", 2)
    assert decided.why == "2 of 3 members are there after 60 s"
    whole = [member("a"), member("b")]
    assert acts(whole, room(9), 99_000) == {"g": "release"}, "whole and with room: it goes at once"


@settings(deadline=None)
@given(
    some.lists(some.tuples(some.integers(1, 4), some.sampled_from("abc")), min_size=1, max_size=9),
    some.lists(some.integers(0, 6), max_size=4),
    some.randoms(),
)
def test_the_order_of_pods_and_nodes_changes_nothing(
    asks: list[tuple[int, str]], cpus: list[int], chance: random.Random
) -> None:
    members = [member(f"m{i}", gang, cpu=cpu) for i, (cpu, gang) in enumerate(asks)]
    nodes = [NodeView(f"n{i}", {"cpu": cpu, "pods": 10}) for i, cpu in enumerate(cpus)]
    decided = decide(members, Room(nodes), 0, 60)
    chance.shuffle(members)
    chance.shuffle(nodes)
    assert decide(members, Room(nodes), 0, 60) == decided
    free = sum(cpus)
    gone = [one for each in decided if each.act == "release" for one in each.members]
    assert sum(one.wants.amounts["cpu"] for one in gone) <= free


@pytest.mark.parametrize(
    ("labels", "notes", "wanted"),
    [
        ({}, {NAME: "g", LEAST: "5"}, Membership("g", 5)),
        ({}, {NAME: "g", LEAST: "5", WAIT: "10m"}, Membership("g", 5, 600)),
        ({"pod-group.scheduling.sigs.k8s.io": "p"}, {NAME: "g", LEAST: "2"}, Membership("p", 2)),
        ({"pod-group.scheduling.sigs.k8s.io/name": "q",
          "pod-group.scheduling.sigs.k8s.io/min-available": "3"}, {}, Membership("q", 3)),
        ({}, {LEAST: "5"}, None),
    ],
)  # fmt: skip
def test_what_a_pod_says_of_its_gang(
    labels: dict[str, str], notes: dict[str, str], wanted: Membership | None
) -> None:
    assert membership(labels, notes) == wanted


@pytest.mark.parametrize(
    ("least", "wait", "why"),
    [("0", "1s", "allowed: 1 to 10000"), ("x", "1s", "'x'"), ("10001", "1s", "10001"),
     ("2", "soon", "such as 30s"), ("2", "-1s", "'-1s'"), ("2", "", "''")],
)  # fmt: skip
def test_what_a_pod_may_not_say_of_its_gang(least: str, wait: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        membership({}, {NAME: "g", LEAST: least, WAIT: wait})


def test_gates() -> None:
    assert gated([]) == gated(["other"]) == "released"
    assert gated(["slackwater.io/gang"]) == "waiting"
    assert gated(["slackwater.io/gang", "other"]) == "held"


def test_a_node_that_would_not_take_a_pod_has_no_room_for_it() -> None:
    one = [Wants({"cpu": 1})]
    assert room(1).take(one) == ""
    assert "no node is left for a pod of cpu 1" in room(1, open=False).take(one)
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    for toleration, takes in (
        ({}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "a", "value": "b"}, True),
        ({"key": "a", "value": "c"}, False),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, False),
    ):
        bears = [Wants({"cpu": 1}, {}, (toleration,))]
        assert (room(1, taints=(taint,)).take(bears) == "") == takes, toleration
    chosen = [Wants({"cpu": 1}, {"zone": "x"})]
    assert room(1).take(chosen)
    assert not room(1, labels={"zone": "x"}).take(chosen)
    full = Room([NodeView("n", {"cpu": 9, "pods": 1})])
    full.put("n", {"cpu": 1})
    assert full.take(one), "places for pods are counted too"


def test_what_is_read_of_nodes_and_pods() -> None:
    node = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "1500m", "pods": "110", "example.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    read = node_of(node)
    assert read == NodeView(
        "n", {"cpu": 1500, "pods": 110, "example.com/gpu": 2}, {"a": "b"}, (), True
    )
    assert not node_of({**node, "spec": {"unschedulable": True}}).open
    document = pod({"cpu": "1", "example.com/gpu": "1"}, overhead={"cpu": "100m"})
    document["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"cpu": "3"}}}]
    assert wants_of(document["spec"]).amounts == {"cpu": 3100, "example.com/gpu": 1}
