"""Isolation settings in the loop: silent while off, absolute while on, given back at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.state import PartitionState
from schemas.records import (
    Command,
    CpuTopology,
    IsolationSettings,
    PodFact,
    PolicyRecord,
    ResctrlFacts,
)
from tests.agents.worlds import EXPAND, GIB, WARM, Node, World, best_effort, of, online, said

IDENTITY = "group_identity: {be: {enabled: true}, ls: {enabled: true}}\n"
MEMORY = (
    "memory_qos: {be: {enabled: true}, ls: {enabled: true, min_percent: 50, low_percent: 80}}\n"
)
CACHE = "resctrl: {be: {enabled: true, l3_end_percent: 30, mb_percent: 40}}\n"
EVERYTHING = (
    WARM + IDENTITY + MEMORY + CACHE
    + "oom: {be: {enabled: true}}\n"
    + "block_io: {be: {enabled: true, weight: 10, read_iops: 300}}\n"
    + "network: {total_mbit_per_s: 1000, be: {enabled: true, egress_max_percent: 30}}\n"
    + "system_daemons: {enabled: true, cpu_limit_percent: 20}\n"
    + "cpu_burst: {policy: auto}\n"
    + "extended_resources: {cpu: {enabled: true}, memory: {enabled: true}}\n"
)  # fmt: skip
PODS = (
    online("a", cpu_limit_milli=2000, memory_limit_bytes=4 * GIB),
    best_effort("b", memory_limit_bytes=GIB),
)
HARDWARE: dict[str, Any] = {
    "topology": CpuTopology((0, 1, 2, 3), (0, 0, 1, 1), (0,) * 4, (0,) * 4),
    "resctrl": ResctrlFacts(0xFFF, (0, 1), bandwidth=True),
}


def told(outputs: Any) -> list[Command]:
    return of(outputs, "commands", "isolate")


def policy(text: str) -> tuple[str, int, bytes, Any]:
    return "policies", 0, b"default", PolicyRecord("default", 2, "", text)


def living(world: World, node: Node) -> list[Any]:
    """A second of a node that speaks."""
    return world.run(node, 1)


def started(text: str, node: Node | None = None) -> tuple[World, Node, Command]:
    node = Node(pods=PODS) if node is None else node
    world = World(text, node)
    world.know(node, **HARDWARE)
    (command,) = told(living(world, node))
    return world, node, command


def test_switched_off_nothing_is_said() -> None:
    node = Node(pods=PODS)
    world = World(WARM, node)
    world.know(node, **HARDWARE)
    assert told(world.run(node, 130)) == []
    assert of(world.out, "decisions", "isolate") == []


def test_without_a_policy_nothing_is_said() -> None:
    node = Node(pods=PODS)
    world = World(None, node)
    assert told(world.run(node, 3)) == []


def test_a_class_gets_its_knobs_and_the_tiers_theirs() -> None:
    _, _, command = started(WARM + IDENTITY)
    assert command.settings == IsolationSettings(
        classes={"LS": {"bvt": 2}, "BE": {"bvt": -1}},
        tiers={"Guaranteed": {"bvt": 0}, "Burstable": {"bvt": 2}, "BestEffort": {"bvt": -1}},
    )
    assert (command.reason, command.node, command.decider) == ("first", "n0", "isolate")
    assert command.expires_log_ms == command.cause.log_ms + 30_000


def test_memory_is_said_pod_by_pod_and_summed_by_tier() -> None:
    _, _, command = started(WARM + MEMORY)
    assert command.settings is not None
    assert command.settings.pods == ("a", "b")
    knobs = command.settings.pod_knobs
    assert knobs["memory_min_bytes"] == [GIB // 2, 0]
    assert knobs["memory_low_bytes"] == [GIB // 100 * 80 + GIB % 100 * 80 // 100, 0]
    assert knobs["memory_high_bytes"] == [-1, -1]
    assert command.settings.tiers["Burstable"]["memory_min_bytes"] == GIB // 2
    assert command.settings.tiers["Guaranteed"]["memory_min_bytes"] == GIB // 2
    assert command.settings.tiers["BestEffort"]["memory_min_bytes"] == 0


def test_cache_is_divided_where_the_kernel_can_and_nowhere_else() -> None:
    _, _, command = started(WARM + CACHE)
    assert command.settings is not None
    assert command.settings.schemata["BE"] == "L3:0=f;1=f;\nMB:0=40;1=40;"
    assert command.settings.schemata["LS"] == "L3:0=fff;1=fff;\nMB:0=100;1=100;"
    assert command.settings.classes == {"BE": {"resctrl_group": 2}}
    node = Node(pods=PODS)
    world = World(WARM + CACHE, node)
    (command,) = told(living(world, node))
    assert command.settings is not None
    assert command.settings.schemata == {}


def test_every_family_is_there() -> None:
    _, _, command = started(EVERYTHING)
    assert command.settings is not None
    assert set(command.settings.classes["BE"]) == {
        "resctrl_group", "bvt", "oom_score_adj", "oom_priority", "oom_kill_group", "io_weight",
        "io_read_iops", "io_write_iops", "io_read_bytes_per_s", "io_write_bytes_per_s",
        "net_classid", "wmark_ratio_percent", "wmark_scale_permille", "wmark_min_adj",
        "extended_cpu", "extended_memory",
    }  # fmt: skip
    assert command.settings.bandwidths["BE"]["egress_max_bit_per_s"] == 300_000_000
    assert command.settings.bandwidths["ALL"]["egress_max_bit_per_s"] == 1_000_000_000
    assert command.settings.bandwidths.keys() == {"ALL", "BE"}
    assert command.settings.daemons == {"cpu_milli": 1600}
    assert command.settings.pod_knobs["cpu_quota_us"] == [200_000, None]
    assert command.settings.pod_knobs["cpu_burst_us"] == [200_000, None]


def test_core_scheduling_gives_each_class_a_cookie_of_its_own() -> None:
    _, _, command = started(WARM + "core_sched: {enabled: true}\n")
    assert command.settings is not None
    classes = command.settings.classes
    assert classes["LSE"] == classes["LSR"]
    assert classes["SYSTEM"] == {"core_cookie": 0}
    assert len({classes[name]["core_cookie"] for name in ("LSR", "LS", "BE", "SYSTEM")}) == 4


def test_unchanged_it_is_said_again_once_a_refresh_only() -> None:
    world, node, first = started(EVERYTHING)
    again = told(world.run(node, 120))
    assert [command.reason for command in again] == ["refresh", "refresh"]
    assert all(command.settings == first.settings for command in again)


def test_a_new_pod_set_is_told_and_an_inventory_that_says_the_same_is_not() -> None:
    world, node, _ = started(WARM + MEMORY)
    world.know(node, **HARDWARE)
    assert told(living(world, node)) == []
    node.pods, node.rev = (*PODS, best_effort("c")), 2
    world.know(node, **HARDWARE)
    (command,) = told(living(world, node))
    assert command.reason == "changed"
    assert command.settings is not None
    assert command.settings.pods == ("a", "b", "c")


def test_switched_off_again_everything_is_given_back_once() -> None:
    world, node, _ = started(EVERYTHING)
    world.tick(1000, policy(WARM))
    (command,) = told(world.out) or told(living(world, node))
    assert command.settings == IsolationSettings()
    assert command.reason == "released"
    assert told(world.run(node, 130)) == []


def test_one_switch_off_leaves_the_others() -> None:
    world, _, first = started(WARM + IDENTITY + MEMORY)
    world.tick(1000, policy(WARM + IDENTITY))
    (command,) = told(world.out)
    assert first.settings is not None
    assert command.settings is not None
    assert command.settings.pod_knobs == {}
    assert command.settings.pods == ()
    assert command.settings.classes == {"LS": {"bvt": 2}, "BE": {"bvt": -1}}


def test_in_the_observe_stage_and_a_control_group_nothing_is_set() -> None:
    world, _, _ = started(EVERYTHING)
    world.tick(1000, policy(EVERYTHING.replace(EXPAND, "")))
    (command,) = told(world.out)
    assert command.settings == IsolationSettings()
    kept_out = Node(pods=PODS)
    world = World(EVERYTHING + "control_group: {pool: control}\n", kept_out)
    world.know(kept_out, labels={"pool": "control"}, **HARDWARE)
    assert told(world.run(kept_out, 3)) == []


def test_a_silent_node_is_told_when_it_speaks_again() -> None:
    node = Node(pods=PODS)
    world = World(WARM + IDENTITY, node)
    assert told(world.tick(10_000)) == []
    assert len(told(living(world, node))) == 1


def test_one_decision_record_for_all_nodes_of_a_tick() -> None:
    nodes = [Node(f"n{i}", PODS) for i in range(3)]
    world = World(WARM + IDENTITY, *nodes)
    for node in nodes:
        world.say(node.sample(), 10)
    out = world.tick(1000)
    commands = told(out)
    (line,) = of(out, "decisions", "isolate")
    assert line.nodes == ("n0", "n1", "n2")
    assert line.outcome == ("first",) * 3
    assert set(line.command_ids) == {command.id for command in commands}
    assert line.columns["pods"] == [command.terms["pods"] for command in commands]


def test_an_image_goes_on_without_saying_anything_twice() -> None:
    world, node, _ = started(EVERYTHING)
    world.state = PartitionState.from_arrays(*world.state.to_arrays())
    assert told(living(world, node)) == []
    assert told(world.run(node, 60)) != []


FACTS = st.lists(
    st.builds(
        PodFact, st.sampled_from("abcdef"), st.just("x"),
        qos=st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", ""]),
        memory_request_bytes=st.integers(-1, 1 << 62), memory_limit_bytes=st.integers(-1, 1 << 62),
        cpu_limit_milli=st.integers(-1, 1 << 62), cpu_request_milli=st.integers(-1, 1 << 62),
        host_app=st.booleans(),
    ),
    max_size=5, unique_by=lambda pod: pod.uid,
).map(tuple)  # fmt: skip
POLICIES = st.sampled_from([WARM, WARM + IDENTITY, WARM + MEMORY, WARM + CACHE, EVERYTHING])


@settings(max_examples=60, deadline=None)
@given(FACTS, POLICIES, POLICIES, st.randoms())
def test_absolute_settings_of_the_node_s_own_pods(
    pods: tuple[PodFact, ...], first: str, then: str, dice: Any
) -> None:
    ordered = tuple(sorted(pods, key=lambda pod: pod.uid))
    shuffled = list(ordered)
    dice.shuffle(shuffled)
    bytes_of: list[Any] = []
    found: list[IsolationSettings | None] = []
    for order in (ordered, ordered, tuple(shuffled)):
        node = Node(pods=order)
        world = World(first, node)
        world.know(node, **HARDWARE)
        out = living(world, node) + world.tick(1000, policy(then)) + living(world, node)
        bytes_of.append(said(out))
        commands = told(out)
        for command in commands:
            assert command.settings is not None
            assert set(command.settings.pods) <= {pod.uid for pod in order}
            for column in command.settings.pod_knobs.values():
                assert len(column) == len(command.settings.pods)
                assert all(value is None or value >= -1 for value in column)
        found.append(commands[-1].settings if commands else None)
    assert bytes_of[0] == bytes_of[1]
    assert by_uid(found[0]) == by_uid(found[2])
    if then == WARM:
        assert found[0] in (None, IsolationSettings())


def by_uid(one: IsolationSettings | None) -> Any:
    if one is None:
        return None
    each = {
        uid: {name: column[at] for name, column in one.pod_knobs.items()}
        for at, uid in enumerate(one.pods)
    }
    return each, replace(one, pods=(), pod_knobs={})


@pytest.mark.parametrize("text", [WARM + IDENTITY, EVERYTHING])
def test_settings_hang_on_no_neighbour(text: str) -> None:
    _, _, command = started(text)
    nodes = [Node(f"n{i}", (*PODS, best_effort(f"more{i}"))) for i in (2, 1)]
    mine = Node(pods=PODS)
    world = World(text, *nodes, mine)
    world.know(mine, **HARDWARE)
    for node in (*nodes, mine):
        world.say(node.sample(), 10)
    (other,) = [each for each in told(world.tick(1000)) if each.node == "n0"]
    assert other.settings == command.settings
