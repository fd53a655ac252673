"""Prediction in the loop: warm-up, what it lends, where models live, and that off is nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.classes import HIGH
from agents.prediction.held import ROW_BYTES, Held
from agents.state import PartitionState
from agents.table import ABSENT
from schemas.policy import Policy
from schemas.records import Capacity, PodFact, PolicyRecord, Reservation
from tests.agents.worlds import (
    CAPACITY_MILLI,
    GIB,
    WARM,
    Node,
    World,
    best_effort,
    of,
    online,
    said,
)

SAID = "capacity: {refresh_ms: 1000, raise_permille_per_min: 60000}\nloop: {report_ms: 1000}\n"
OFF = WARM + SAID
ON = OFF + "prediction: {enabled: true, cold_start_ms: 0}\n"
COLD = OFF + "prediction: {enabled: true, cold_start_ms: 100000}\n"
TWO_MINUTES = 125  # at least one whole minute, and each node's moment after it
RATIO, FIRST_MILLI, FIRST_BYTES = 1.05, 25.0, float(5 << 20)


def edge(value: float, first: float) -> int:
    """The end of the bucket that holds ``value``, counted out bucket by bucket."""
    end, width = first, first
    while end <= value:
        width *= RATIO
        end += width
    return int(end)


def held_of(world: World) -> Held:
    models = world.state.models
    assert models is not None
    return models


def column(world: World, node: Node, name: str) -> Any:
    """A column of the node's models, in pod order."""
    row = world.state.seats[node.name.encode()].row
    slots, _, _ = world.state.slots_of(np.array([row]))
    return held_of(world).table[name][slots].tolist()


def mid(world: World) -> Capacity:
    found: Capacity = of(world.out, "capacity")[-1]
    return found


def reported(world: World) -> Reservation:
    found: Reservation = of(world.out, "reservations")[-1]
    return found


def policy(version: int, text: str) -> tuple[str, int, bytes, Any]:
    return "policies", 0, b"default", PolicyRecord("default", version, "", text)


def pod(uid: str, milli: int = 4000) -> PodFact:
    return online(uid, cpu_request_milli=milli, memory_request_bytes=4 * GIB)


def test_off_is_the_default_and_keeps_nothing() -> None:
    assert not Policy().prediction.enabled
    world = World(OFF, node := Node())
    world.run(node, TWO_MINUTES)
    meta, arrays = world.state.to_arrays()
    assert world.state.models is None
    assert not [name for name in [*arrays, *meta] if "model" in name]


def test_mid_draws_on_what_is_left_above_the_peaks_and_the_report_says_so() -> None:
    node = Node(pods=(pod("a"), online("m", priority_class="mid"), best_effort("b")))
    world = World(ON, node)
    world.run(node, TWO_MINUTES, milli=[1000, 300, 500], system=200)
    peak = edge(1000, FIRST_MILLI), edge(GIB, FIRST_BYTES)
    assert column(world, node, "peak") == [list(peak), [ABSENT] * 2, [ABSENT] * 2]
    left = 4000 - int(peak[0] * 1.1), 4 * GIB - int(peak[1] * 1.1)
    terms, memory = mid(world).mid_cpu_terms, mid(world).mid_memory_terms
    assert (terms["reclaimable"], memory["reclaimable"]) == left
    said_left = reported(world).reclaimable_cpu_milli, reported(world).reclaimable_memory_bytes
    assert said_left == left
    above = CAPACITY_MILLI - terms["margins"] - terms["system"] - terms["long"]
    assert mid(world).computed_mid_cpu_milli == min(left[0], above)


def test_a_cold_pod_gives_nothing_and_keeps_its_request() -> None:
    world = World(COLD, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES, milli=[1000])
    assert column(world, node, "peak")[0][0] > 0
    assert mid(world).mid_cpu_terms["reclaimable"] == 0
    assert reported(world).reclaimable_cpu_milli == 0
    world.run(node, 100, milli=[1000])
    assert mid(world).mid_cpu_terms["reclaimable"] > 2000


def test_each_node_learns_once_a_minute_at_its_own_moment() -> None:
    nodes = [Node(f"n{i}", pods=(pod(f"p{i}"),)) for i in range(12)]
    world = World(ON, *nodes)
    learnt: dict[str, list[int]] = {node.name: [] for node in nodes}
    before: dict[str, float] = dict.fromkeys(learnt, 0.0)
    for second in range(240):
        for node in nodes:
            world.say(node.sample(), 0)
        world.tick(1000)
        for node in nodes:
            (total,) = column(world, node, "cpu_total")
            if total != before[node.name]:
                learnt[node.name].append(second)
            before[node.name] = total
    for moments in learnt.values():
        assert len(moments) >= 3
        assert set(np.diff(moments).tolist()) == {60}
    assert len({moments[0] % 60 for moments in learnt.values()}) > 6


def test_a_silent_node_learns_nothing() -> None:
    world = World(ON, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    before = column(world, node, "cpu_total")
    for _ in range(200):
        world.tick(1000)
    assert column(world, node, "cpu_total") == before


def test_r3_a_pod_that_nobody_reports_gives_nothing_until_it_is_reported_again() -> None:
    node = Node(pods=(pod("a"), pod("z")))
    world = World(ON, node)
    world.run(node, TWO_MINUTES, milli=[1000, 1000])
    both = mid(world).mid_cpu_terms["reclaimable"]
    gone: dict[str, list[int | None]]
    for second in range(7 * 60):
        node.advance([1000, 1000])
        gone = {"cpu_usage_us": [node.cpu_us[0], None], "memory_used_bytes": [GIB, None]}
        world.say(node.sample([0, 0], elapsed_ms=0, more=gone))
        world.tick(0)
        if second == 4 * 60:  # its window still knows what it used
            assert mid(world).mid_cpu_terms["reclaimable"] == both
    assert mid(world).mid_cpu_terms["reclaimable"] == both // 2
    assert reported(world).reclaimable_cpu_milli == both // 2
    assert column(world, node, "peak")[1][0] > 0  # its history is not lost
    world.run(node, 5, milli=[1000, 1000])
    assert mid(world).mid_cpu_terms["reclaimable"] == both


def test_a_pod_that_stays_keeps_its_model_and_a_new_one_begins_anew() -> None:
    node = Node(pods=(pod("a"), pod("b")))
    world = World(ON, node)
    world.run(node, TWO_MINUTES, milli=[1000, 2000])
    first, second = column(world, node, "cpu_cells")
    assert first != second
    node.pods, node.cpu_us, node.rev = (pod("c"), pod("a")), [0, node.cpu_us[0]], 2
    world.know(node)
    fresh, kept = column(world, node, "cpu_cells")
    assert kept == first
    assert not any(fresh)
    assert column(world, node, "since_ms")[0] == ABSENT
    assert column(world, node, "peak")[0] == [ABSENT] * 2
    node.pods = (pod("a"), *(pod(f"x{i}") for i in range(20)))  # into another span
    node.cpu_us, node.rev = [node.cpu_us[1], *[0] * 20], 3
    world.know(node)
    cells = column(world, node, "cpu_cells")
    assert cells[0] == first
    assert not any(map(any, cells[1:]))


def test_a_forgotten_node_leaves_nothing_to_the_next() -> None:
    world = World(ON, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    world.state.forget(node.name.encode())
    other = Node("n1", pods=(pod("z"),))
    world.know(other)
    assert column(world, other, "peak") == [[ABSENT] * 2]
    assert not held_of(world).table["cpu_cells"].any()


def test_the_image_is_exact_and_holds_what_was_trained() -> None:
    nodes = [Node(f"n{i}", (best_effort(f"b{i}"), pod(f"p{i}"))) for i in range(3)]
    world = World(ON, *nodes)
    for node in nodes:
        world.run(node, TWO_MINUTES, milli=[100, 1000])
    world.state.forget(b"n0")
    meta, arrays = world.state.to_arrays()
    assert arrays["model.place"].tolist() == [1, 3]
    assert arrays["model.cpu_weight"].dtype == np.float32
    assert len(arrays["model.cpu_weight"]) == arrays["model.cpu_filled"].astype(int).sum() <= 8
    restored = PartitionState.from_arrays(orjson.loads(orjson.dumps(meta)), arrays)
    assert restored.digest() == world.state.digest()
    again = restored.to_arrays()[1]
    assert {k: (v.dtype, v.tobytes()) for k, v in again.items()} == {
        k: (v.dtype, v.tobytes()) for k, v in arrays.items()
    }
    other = World(None)
    other.state, other.offset, other.log_ms = restored, world.offset, world.log_ms
    other.side_offsets = dict(world.side_offsets)
    for _ in range(70):
        for node in nodes[1:]:
            sample = node.sample([100, 3000])
            assert said(other.say(sample)) == said(world.say(sample))
        assert said(other.tick(0)) == said(world.tick(0))
    assert restored.digest() == world.state.digest()
    before = world.state.digest()
    held_of(world).table["memory_cells"][world.state.slots_of(world.state.rows())[0][1], 7] += 1
    assert world.state.digest() != before


def test_switched_off_it_forgets_and_the_old_sum_holds() -> None:
    world = World(ON, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    world.tick(1000, policy(2, OFF))
    assert world.state.models is None
    world.run(node, 2)
    terms = mid(world).mid_cpu_terms
    assert terms["reclaimable"] == terms["allocated"] - terms["long"]


def test_another_half_life_begins_anew_and_another_margin_does_not() -> None:
    world = World(ON, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    rule = "prediction: {enabled: true, cold_start_ms: 0, %s}\n"
    world.tick(1000, policy(2, OFF + rule % "safety_margin_percent: 50"))
    world.run(node, 2)
    assert mid(world).mid_cpu_terms["reclaimable"] == 4000 - int(edge(1000, FIRST_MILLI) * 1.5)
    world.tick(1000, policy(3, OFF + rule % "cpu_half_life_ms: 86400000"))
    assert column(world, node, "peak") == [[ABSENT] * 2]
    assert mid(world).mid_cpu_terms["reclaimable"] == 0


def test_the_observing_stage_learns_already() -> None:
    world = World(ON + "rollout: {stage: observe}\n", node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    assert column(world, node, "peak")[0][0] > 0


usages = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 3000)), min_size=1, max_size=4
)  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(usages, st.booleans())
def test_what_is_left_is_bounded_and_knows_no_order(
    milli: list[tuple[int, int]], terminating: bool
) -> None:
    pods = [pod(f"p{i}", request) for i, (request, _) in enumerate(milli)]
    pods[0] = online("p0", cpu_request_milli=milli[0][0], terminating=terminating)
    used = [use for _, use in milli]
    answers = []
    for order in (1, -1):
        world = World(ON, node := Node(pods=tuple(pods[::order])))
        world.run(node, TWO_MINUTES, milli=used[::order])
        row = world.state.seats[b"n0"].row
        assert (world.state.pods["roles"][: len(pods)] & HIGH > 0).all()
        answers.append((mid(world).mid_cpu_terms, mid(world).mid_memory_terms))
        most = world.state.nodes["allocated"][row].tolist()
        for terms, bound in zip(answers[-1], most, strict=True):
            assert 0 <= terms["reclaimable"] <= min(bound, terms["capacity"])
    assert answers[0] == answers[1]


def test_a_pod_costs_what_is_said() -> None:
    held = Held((1, 1), 0, 10)
    size = sum(held.table[field.name].nbytes for field in held.table.fields)
    assert size == 10 * ROW_BYTES == 14_920


@pytest.mark.parametrize("key", ["cpu_half_life_ms: 1000", "epsilon_ppm: 0", "cold_start_ms: -1"])
def test_a_rule_that_makes_no_sense_is_refused(key: str) -> None:
    world = World(f"name: default\nprediction: {{{key}}}\n")
    assert world.state.policy is None
