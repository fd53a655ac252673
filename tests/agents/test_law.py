"""Policies by node: what deciders read for each row, canary, control group, stages, refusals."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import law
from agents.state import PartitionState
from schemas import policy
from schemas.records import Capacity, Command, LedgerEntry, PolicyRecord
from tests.agents.worlds import (
    BASE,
    EXPAND,
    GIB,
    INCARNATION,
    PARTITION,
    WARM,
    Node,
    World,
    of,
    said,
)

POLICY = ("policies", 0, b"default")
EVERYTHING = """
evict_cpu: {enabled: true}
resctrl: {be: {enabled: true}}
memory_qos: {be: {enabled: true}}
cpu_burst: {policy: auto}
oom: {be: {enabled: true}}
block_io: {be: {enabled: true}}
core_sched: {enabled: true}
"""
POOLS = (
    WARM
    + """
suppress: {threshold_percent: 60}
nodes:
  - {name: pilot, match: {pool: pilot}, suppress: {threshold_percent: 50}}
"""
)


def know(world: World, *nodes: Node, **more: Any) -> None:
    world.tick(0, *(("inventory", PARTITION, n.name.encode(), n.inventory(**more)) for n in nodes))


def put(world: World, text: str, **more: Any) -> None:
    world.tick(1000, (*POLICY, PolicyRecord("default", 2, "", text, **more)))


def thresholds(world: World, *nodes: Node) -> list[int]:
    rows = np.array([world.state.seats[node.name.encode()].row for node in nodes])
    return list(map(int, law.column(world.state, rows, "suppress.threshold_percent")))


def said_by(text: str) -> dict[str, str]:
    return {"slackwater.io/policy": text}


def play(world: World, seconds: int, *nodes: Node, **sample: Any) -> list[Any]:
    out: list[Any] = []
    for _ in range(seconds):
        for node in nodes:
            out += world.say(node.sample(**sample), 0)
        out += world.tick(1000)
    return out


def test_columns_follow_entries_annotation_and_labels() -> None:
    nodes = [Node(f"n{i}") for i in range(4)]
    world = World(POOLS, *nodes)
    assert thresholds(world, *nodes) == [60] * 4
    know(world, nodes[1], labels={"pool": "pilot"})
    know(
        world,
        nodes[2],
        annotations=said_by('{"suppress": {"threshold_percent": 7}}'),
    )
    know(world, nodes[3], labels={"pool": "pilot", "slackwater.io/suppress.threshold_percent": "9"})
    assert thresholds(world, *nodes) == [60, 50, 7, 9]
    put(world, WARM + "suppress: {threshold_percent: 61}")
    assert thresholds(world, *nodes) == [61, 61, 7, 9]
    know(world, nodes[2])
    assert thresholds(world, *nodes) == [61, 61, 61, 9]


def test_the_deciders_use_the_value_of_their_own_node() -> None:
    one, other = Node("n0"), Node("n1")
    world = World(POOLS, one, other)
    know(world, other, labels={"pool": "pilot"})
    out = play(world, 3, one, other)
    for node, percent in ((one, 60), (other, 50)):
        last = [c for c in of(out, "commands", "suppress") if c.node == node.name][-1]
        assert last.terms["allow"] + last.terms["online"] == node.capacity * percent // 100


def test_r9_a_bad_annotation_is_counted_said_once_and_changes_nothing() -> None:
    node, calm = Node("n0"), Node("n1")
    world = World(POOLS, node, calm)
    bad = said_by("suppress: {threshold_percent: 300}")
    know(world, node, annotations=bad, labels={"pool": "pilot"})
    (line,) = of(world.out, "decisions", "health")
    assert (line.nodes, line.outcome) == (("n0",), ("node_policy_refused",))
    assert world.state.counts["node_policy_refused"] == 1
    assert thresholds(world, node, calm) == [50, 60]
    know(world, node, annotations=bad, labels={"pool": "pilot"})
    assert world.state.counts["node_policy_refused"] == 1
    assert of(world.out, "decisions", "health") == []
    know(world, node, annotations=said_by("#" * 20_000))
    assert world.state.counts["node_policy_refused"] == 2


def test_a_canary_reaches_exactly_the_chosen_nodes() -> None:
    nodes = [Node(f"n{i}") for i in range(6)]
    world = World(POOLS, *nodes)
    know(world, *nodes[:2], labels={"canary": "yes"})
    know(world, nodes[2], labels={"canary": "no"})
    new = WARM + "suppress: {threshold_percent: 33}"
    put(world, new, canary={"canary": "yes"}, elsewhere=POOLS)
    assert thresholds(world, *nodes) == [33, 33, 60, 60, 60, 60]
    assert world.state.law.suppress.threshold_percent == 60
    put(world, new)
    assert thresholds(world, *nodes) == [33] * 6


def test_r9_a_canary_of_which_one_text_is_bad_leaves_the_last_good_one() -> None:
    node = Node()
    world = World(POOLS, node)
    digest = world.state.policy_digest
    put(world, WARM, canary={"slackwater.io/node": "n0"}, elsewhere="suppress: 3")
    (line,) = of(world.out, "decisions", "health")
    assert line.outcome == ("policy_refused",)
    assert (thresholds(world, node), world.state.policy_digest) == ([60], digest)


def test_the_control_group_gets_no_command_and_no_capacity() -> None:
    node, control = Node("n0"), Node("n1")
    world = World(None)
    put(world, f"{WARM}{EVERYTHING}control_group: {{group: control}}")
    know(world, node)
    know(world, control, labels={"group": "control"})
    out = play(world, 20, node, control)
    addressed = {r.node for o in out if isinstance(r := o.record, Command | Capacity)}
    assert addressed == {"n0"}
    assert {r.node for r in of(out, "reservations")} == {"n0", "n1"}


@pytest.mark.parametrize("fast_only", [False, True], ids=["centre", "node"])
@pytest.mark.parametrize("stage", ["", "rollout: {stage: observe}\n", EXPAND])
def test_observe_is_the_default_and_commands_nothing_in_a_replayed_week(
    stage: str, fast_only: bool
) -> None:
    """A week, one sample and tick an hour, memory full at night: no command and no capacity."""
    node = Node()
    loop = "loop: {withdraw_after_ms: 3600000, silent_after_ms: 3599999, forget_after_ms: 7200000}"
    world = World(None)
    world.state = PartitionState(PARTITION, INCARNATION, fast_only=fast_only)
    put(world, f"{BASE}{EVERYTHING}{stage}{loop}\n")
    know(world, node)
    acted: set[type] = set()
    for hour in range(7 * 24):
        milli = [hour * 37 % 4000, 2000]
        available = GIB if hour % 24 < 6 else 20 * GIB
        sample = node.sample(milli, elapsed_ms=3_599_000, available=available)
        out = [*world.say(sample, 3_599_000), *world.tick(1000)]
        acted |= {type(o.record) for o in out if isinstance(o.record, Command | Capacity)}
    does = {Command} if fast_only else {Command, Capacity}
    assert acted == (does if stage == EXPAND else set())
    assert world.state.seats[b"n0"].seq == 7 * 24


def test_protect_commands_and_lends_nothing() -> None:
    node = Node()
    world = World(BASE + "rollout: {stage: protect}\n", node)
    out = play(world, 20, node)
    assert of(out, "commands", "suppress")
    assert of(out, "capacity") == []


def test_a_node_taken_back_from_expand_is_set_free_and_offered_no_more_than_is_lent() -> None:
    node = Node()
    world = World(WARM, node)
    play(world, 20, node)
    world.tick(0, ("ledger", PARTITION, b"n0", LedgerEntry("n0", "yarn", 300, GIB)))
    put(world, BASE + "rollout: {stage: observe}")
    out = [*world.out, *play(world, 3, node)]
    (free,) = of(out, "commands", "suppress")
    assert (free.reason, free.allow_milli) == ("disabled", node.capacity)
    last = of(out, "capacity")[-1]
    assert (last.batch_cpu_milli, last.new_work, last.reason) == (300, False, "disabled")


def test_the_pilot_lends_cpu_only_and_no_more_than_its_cap() -> None:
    chosen, other = Node("n0"), Node("n1")
    text = (
        BASE
        + """
capacity: {raise_permille_per_min: 60000}
rollout: {stage: protect}
nodes:
  - name: pilot
    match: {pool: pilot}
    rollout: {stage: pilot, cpu_cap_percent: 5, workloads: [etl]}
"""
    )
    world = World(text, other)
    know(world, chosen, labels={"pool": "pilot"})
    out = play(world, 90, chosen, other)
    offers = of(out, "capacity")
    assert {record.node for record in offers} == {"n0"}
    assert offers[-1].batch_cpu_milli == chosen.capacity * 5 // 100
    assert {record.batch_memory_bytes for record in offers} == {0}
    assert {record.mid_memory_bytes for record in offers} == {0}
    assert {record.workloads for record in offers} == {("etl",)}


def test_an_image_keeps_the_layers() -> None:
    nodes = [Node(f"n{i}") for i in range(3)]
    world = World(POOLS, *nodes)
    know(world, nodes[0], labels={"pool": "pilot"})
    know(world, nodes[1], annotations=said_by("suppress: {threshold_percent: 300}"))
    new = WARM + "suppress: {threshold_percent: 33}"
    put(world, new, canary={"slackwater.io/node": "n2"}, elsewhere=POOLS)
    play(world, 3, *nodes)
    twin = World(POOLS)
    twin.state = PartitionState.from_arrays(*world.state.to_arrays())
    twin.offset, twin.log_ms, twin.side_offsets = world.offset, world.log_ms, world.side_offsets
    assert twin.state.digest() == world.state.digest()
    assert thresholds(twin, *nodes) == thresholds(world, *nodes) == [50, 60, 33]
    sample = nodes[2].sample()
    assert said(twin.say(sample)) == said(world.say(sample))
    assert twin.state.digest() == world.state.digest()


LABELS = st.dictionaries(
    st.sampled_from(
        ["pool", "size", "group", "canary", "slackwater.io/suppress.threshold_percent"]
    ),
    st.sampled_from(["pilot", "big", "control", "yes", "12", "400"]),
)
ANNOTATIONS = st.sampled_from(["", "{", "suppress: {threshold_percent: 8}", "loop: {}"])
MANY = (
    POOLS
    + """  - {name: big, match: {size: big}, suppress: {threshold_percent: 45}}
control_group: {group: control}
"""
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(LABELS, ANNOTATIONS), min_size=1, max_size=6), st.randoms())
def test_columns_are_what_each_node_would_get_alone_in_any_order(
    said: list[tuple[dict[str, str], str]], random: Random
) -> None:
    record = PolicyRecord("default", 2, "", WARM, canary={"canary": "yes"}, elsewhere=MANY)
    both = policy.published(record)
    nodes = {f"n{i}": layers for i, layers in enumerate(said)}
    expected = {}
    for name, (labels, annotation) in nodes.items():
        whole = both.on(policy.named(name, labels))
        found = policy.reach(whole, policy.named(name, labels), annotation)
        rule = policy.effective(whole, found).policy.suppress
        expected[name] = (rule.threshold_percent, int(rule.enabled))
    world = World(None)
    order = random.sample(sorted(nodes), len(nodes))
    before, after = order[: len(order) // 2], order[len(order) // 2 :]
    for part in (before, after):
        for name in part:
            labels, annotation = nodes[name]
            know(world, Node(name), labels=labels, annotations=said_by(annotation))
        if part is before:
            put(world, WARM, canary=record.canary, elsewhere=MANY)
    rows = np.array([world.state.seats[name.encode()].row for name in order])
    columns = [
        law.column(world.state, rows, f"suppress.{key}") for key in ("threshold_percent", "enabled")
    ]
    got = dict(zip(order, zip(*(map(int, each) for each in columns), strict=True), strict=True))
    assert got == expected


def test_policies_that_nodes_left_behind_are_dropped() -> None:
    node = Node()
    world = World(POOLS, node)
    for percent in range(100):
        label = {"slackwater.io/suppress.threshold_percent": str(percent)}
        know(world, node, labels=label)
        assert thresholds(world, node) == [percent]
        assert len(world.state.laws) <= law.SPARE + 3
