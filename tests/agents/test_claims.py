"""Pods that claim what no pod may: named, counted and reported, and treated as before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agents.claims import broken
from agents.pod_rules import RULES
from agents.state import PartitionState
from schemas.records import Decision, PodFact, PolicyRecord
from tests.agents.worlds import WARM, Node, World, best_effort, of, online

POLICY = WARM + "loop: {report_ms: 1000}\n"
ODD = best_effort("odd", priority_class="prod", priority=9500)
HALF = online("half", qos="LSR", qos_said=True, cpu_request_milli=1500)


@pytest.mark.parametrize(
    ("pod", "rules"),
    [
        (online("a"), ()),
        (best_effort("b"), ()),
        (PodFact("c", "c", priority_class="batch"), ()),  # says no QoS: bound by nothing
        (best_effort("d", priority_class=""), ()),  # then it is batch
        (ODD, ("qos_priority_combination",)),
        (online("e", qos="LSR", priority_class="mid"), ("qos_priority_combination",)),
        (HALF, ("cpu_request_integer",)),
        (replace(HALF, cpu_request_milli=0), ("cpu_request_required",)),
        (replace(HALF, qos_said=False), ()),  # what Kubernetes takes for guaranteed
        (replace(HALF, priority_class="free"), ("cpu_request_integer", "qos_priority_combination")),
    ],
)  # fmt: skip
def test_rules_that_a_pod_breaks(pod: PodFact, rules: tuple[str, ...]) -> None:
    assert broken(pod) == rules


def health(world: World) -> list[Decision]:
    return of(world.out, "decisions", "health")


def test_they_are_told_when_they_come_and_when_they_go() -> None:
    node = Node(pods=(online("a"), ODD, HALF))
    world = World(POLICY, node, Node("n1"))
    (said,) = health(world)
    assert said.nodes == ("", "n0")
    assert said.outcome == ("policy_accepted", "pods_break_rules")
    assert {name: values[1] for name, values in said.columns.items()} == {
        "version": -1, "pods": 2, "qos_priority_combination": 1, "cpu_request_integer": 1,
        "cpu_request_required": 0,
    }  # fmt: skip
    assert of(world.out, "fleet")[0].pods_against_rules == 2
    world.know(node)
    assert health(world) == []
    node.pods = (online("a"), HALF)
    world.know(node)
    assert health(world)[0].columns["pods"] == [1]
    node.pods = (online("a"),)
    world.know(node)
    assert (health(world)[0].nodes, health(world)[0].outcome) == (("n0",), ("pods_keep_rules",))
    world.tick(1000)
    assert of(world.out, "fleet")[0].pods_against_rules == 0


def test_a_report_names_them_by_rule() -> None:
    node = Node(pods=(online("a"), ODD, HALF))
    world = World(POLICY, node)
    world.run(node, 12)
    report = of(world.out, "reservations")[-1]
    assert report.pods_against_rules == {
        "qos_priority_combination": ["odd"], "cpu_request_integer": ["half"],
    }  # fmt: skip


def off(version: int, text: str) -> tuple[str, int, bytes, Any]:
    return "policies", 0, b"default", PolicyRecord("default", version, "", text)


def test_the_policy_says_whether_anybody_asks() -> None:
    node = Node(pods=(ODD,))
    world = World(POLICY + "pod_rules: {enabled: false}\n", node)
    world.run(node, 12)
    assert of(world.out, "reservations")[-1].pods_against_rules == {}
    world.tick(1000, off(2, POLICY))
    assert health(world)[0].outcome == ("policy_accepted", "pods_break_rules")
    world.tick(1000, off(3, POLICY + "pod_rules: {enabled: false}\n"))
    assert health(world)[0].outcome == ("policy_accepted", "pods_keep_rules")


def test_such_a_pod_is_treated_by_its_qos_and_class_as_any_other() -> None:
    outputs = []
    for enabled in ("true", "false"):
        node = Node(pods=(online("a"), ODD))
        world = World(POLICY + f"pod_rules: {{enabled: {enabled}}}\n", node)
        world.run(node, 5, milli=[1000, 700])
        (record,) = of(world.tick(300_000), "capacity")
        commands = of(world.say(node.sample([3000, 0])), "commands")
        outputs.append((record.cpu_terms, record.mid_cpu_terms, [c.allow_milli for c in commands]))
    assert outputs[0] == outputs[1]


def test_a_nodes_own_law_judges_nobody() -> None:
    world = World(None)
    world.state = PartitionState(world.state.partition, 1, fast_only=True)
    world.know(Node(pods=(ODD, HALF)))
    assert not world.state.pods["broken"].any()
    assert health(world) == []


def test_two_lines_of_one_tick_are_one_record() -> None:
    bad = Node("n0", facts={"annotations": {"slackwater.io/policy": "{"}})
    world = World(POLICY, bad, Node("n1", pods=(ODD,)))
    (said,) = health(world)
    assert said.outcome == ("policy_accepted", "node_policy_refused", "pods_break_rules")
    assert said.nodes == ("", "n0", "n1")
    assert said.columns["version"] == [1, -1, -1]


def test_rules_fit_their_bits() -> None:
    assert len(RULES) <= 8
