"""Prediction in the loop: warm-up, what it lends, where models live, and that off is nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.classes import HIGH
from agents.prediction.held import CLASSES, NODE_BYTES, POD_BYTES, PROD, SYSTEM, Held
from agents.state import PartitionState
from agents.table import ABSENT
from schemas.policy import Policy
from schemas.records import Capacity, PodFact, PolicyRecord, Reservation, Zone
from tests.agents.worlds import (
    CAPACITY_MILLI,
    EXPAND,
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
BY_POD = OFF + "prediction: {enabled: true, cold_start_ms: 0, class_models: false}\n"
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
    return held_of(world).pods[name][slots].tolist()


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
    world = World(BY_POD, node)
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


def test_the_lesser_of_pod_and_class_models_counts() -> None:
    host = online("h", host_app=True)
    world = World(ON, node := Node(pods=(pod("a"), pod("z"), host, best_effort("b"))))
    run = {"milli": [1000, 500, 300, 700], "system": 200, "used": [GIB, GIB, GIB, 7 * GIB]}
    world.run(node, TWO_MINUTES, available=21 * GIB, **run)
    peaks = {SYSTEM: (500, 2 * GIB), PROD: (1500, 2 * GIB)}  # of 11 GiB; hosts are the system's
    edges = [(edge(peaks[k][0], FIRST_MILLI), edge(peaks[k][1], FIRST_BYTES)) for k in (0, 1)]
    row = world.state.seats[b"n0"].row
    held = held_of(world)
    assert held.classes["peak"][CLASSES * row :][:CLASSES].tolist() == [list(e) for e in edges]
    keeps = [int((edges[SYSTEM][unit] + edges[PROD][unit]) * 1.1) for unit in (0, 1)]
    asked = (8000, 8 * GIB)
    left = tuple(have - keep for have, keep in zip(asked, keeps, strict=True))
    terms, memory = mid(world).mid_cpu_terms, mid(world).mid_memory_terms
    assert (terms["reclaimable"], memory["reclaimable"]) == left
    report = reported(world)
    assert (report.reclaimable_cpu_milli, report.reclaimable_memory_bytes) == left
    assert (report.peak_cpu_milli, report.peak_memory_bytes) == tuple(keeps)


def test_without_prediction_no_peak_is_reported() -> None:
    world = World(OFF, node := Node(pods=(pod("a"),)))
    world.run(node, 12)
    assert (reported(world).peak_cpu_milli, reported(world).peak_memory_bytes) == (-1, -1)


def test_r3_while_the_system_is_not_known_its_class_learns_nothing_and_nothing_is_given() -> None:
    world = World(ON, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES, available=None)
    assert column(world, node, "peak")[0][0] > 0
    row = world.state.seats[b"n0"].row
    classes = slice(CLASSES * row, CLASSES * (row + 1))
    assert held_of(world).classes["peak"][classes].tolist() == [[ABSENT] * 2] * 2
    assert held_of(world).nodes["left"][row].tolist() == [0, 0]


def test_r2_a_pod_that_goes_takes_what_it_gave_with_it_at_once() -> None:
    node = Node(pods=(pod("a"), pod("z")))
    world = World(BY_POD, node)
    world.run(node, TWO_MINUTES, milli=[1000, 1000])
    both = mid(world).mid_cpu_terms["reclaimable"]
    node.pods, node.cpu_us, node.rev = (node.pods[0],), [node.cpu_us[0]], 2
    world.know(node)
    world.run(node, 1, milli=[1000])
    assert mid(world).mid_cpu_terms["reclaimable"] == both // 2


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
    world = World(BY_POD, node)
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
    world.run(node, 65, milli=[1000, 1000])
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
    for bank in (held_of(world).pods, held_of(world).classes):
        assert not bank["cpu_cells"].any()
    assert not held_of(world).nodes["left"].any()


def test_the_image_is_exact_and_holds_what_was_trained() -> None:
    nodes = [Node(f"n{i}", (best_effort(f"b{i}"), pod(f"p{i}"))) for i in range(3)]
    world = World(ON, *nodes)
    for node in nodes:
        world.run(node, TWO_MINUTES, milli=[100, 1000])
    world.state.forget(b"n0")
    meta, arrays = world.state.to_arrays()
    assert arrays["model.pod.place"].tolist() == [1, 3]
    assert arrays["model.class.place"].tolist() == [0, 1, 2, 3]
    weight = arrays["model.pod.cpu_weight"]
    assert weight.dtype == np.float32
    assert len(weight) == arrays["model.pod.cpu_filled"].astype(int).sum() <= 8
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
    held_of(world).pods["memory_cells"][world.state.slots_of(world.state.rows())[0][1], 7] += 1
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
    world = World(BY_POD, node := Node(pods=(pod("a"),)))
    world.run(node, TWO_MINUTES)
    rule = "prediction: {enabled: true, cold_start_ms: 0, class_models: false, %s}\n"
    world.tick(1000, policy(2, OFF + rule % "safety_margin_percent: 50"))
    world.run(node, 2)
    assert mid(world).mid_cpu_terms["reclaimable"] == 4000 - int(edge(1000, FIRST_MILLI) * 1.5)
    world.tick(1000, policy(3, OFF + rule % "cpu_half_life_ms: 86400000"))
    assert column(world, node, "peak") == [[ABSENT] * 2]
    assert mid(world).mid_cpu_terms["reclaimable"] == 0


def test_the_observing_stage_learns_already() -> None:
    world = World(ON.replace(EXPAND, ""), node := Node(pods=(pod("a"),)))
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


def test_pods_and_nodes_cost_what_is_said() -> None:
    held = Held((1, 1), 0, 10, 3)
    pods, nodes = (
        sum(table[field.name].nbytes for table in tables for field in table.fields)
        for tables in ([held.pods], [held.classes, held.nodes])
    )
    assert pods == 10 * POD_BYTES == 15_000
    assert nodes == 3 * NODE_BYTES == 3 * 3_017


@pytest.mark.parametrize("key", ["cpu_half_life_ms: 1000", "epsilon_ppm: 0", "cold_start_ms: -1"])
def test_a_rule_that_makes_no_sense_is_refused(key: str) -> None:
    world = World(f"name: default\nprediction: {{{key}}}\n")
    assert world.state.policy is None


SLOW = "loop: {report_ms: 1000, silent_after_ms: 30000, tick_ms: 10000}\n"
SHORT = (
    EXPAND + SLOW + "capacity: {refresh_ms: 1000, raise_permille_per_min: 60000}\n"
    "reservation: {warm_ms: 0, short_model: %s}\n"
    "prediction: {enabled: true, cold_start_ms: %d, short_price: %d}\n"
)
WINDOW_LINE = 4400
"""The spike and a margin."""


def spiky(policy: str, *nodes: Node) -> tuple[World, list[list[int]]]:
    """Ten minutes of samples 10 s apart; one of them in the eighth minute is a spike of 4 cores.

    The needs of the nodes in that sample, and a minute and a half later.
    """
    world, needs = World(policy, *nodes), []
    for sample in range(60):
        spike = sample == 45
        for node in nodes:
            milli = [4000 if spike else 1000] * len(node.pods)
            world.say(node.sample(milli, elapsed_ms=10_000), 10_000 // len(nodes))
        last = {record.node: record for record in of(world.tick(0), "capacity")}
        if sample in (45, 57):
            needs.append([last[node.name].cpu_terms["need"] for node in nodes])
    return world, needs


@pytest.mark.parametrize(("price", "kept"), [(1, (1000, 1200)), (1000, (4000, 4500))])
def test_the_short_reservation_is_the_level_that_is_worth_its_price(
    price: int, kept: tuple[int, int]
) -> None:
    world, ((now,), (later,)) = spiky(SHORT % ("predicted", 0, price), Node(pods=(pod("a"),)))
    assert 4000 <= now <= WINDOW_LINE  # never below what is used in this minute
    assert kept[0] <= later <= kept[1]
    assert reported(world).pod_cpu_milli["short"] == [later]
    assert reported(world).cpu_milli["short"] == later
    assert reported(world).pod_memory_bytes["short"][0] >= GIB


@pytest.mark.parametrize("policy", [SHORT % ("window", 0, 1), SHORT % ("predicted", 10**7, 1)])
def test_by_default_and_while_a_model_is_cold_the_window_says_the_short_reservation(
    policy: str,
) -> None:
    _, needs = spiky(policy, Node(pods=(pod("a"),)))
    assert needs == [[WINDOW_LINE], [WINDOW_LINE]]
    assert Policy().reservation.short_model == "window"


def test_work_of_mid_has_no_model_and_a_node_may_have_its_own_choice() -> None:
    entry = (
        "nodes: [{name: w, match: {slackwater.io/node: n1}, reservation: {short_model: window}}]"
    )
    pods = (pod("a"), online("m", priority_class="mid"))
    world, (_, later) = spiky(
        SHORT % ("predicted", 0, 1) + entry, Node(pods=pods), Node("n1", (pod("c"),))
    )
    assert 1000 + WINDOW_LINE <= later[0] <= 1200 + WINDOW_LINE
    assert later[1] == WINDOW_LINE
    assert column(world, Node("n1"), "short") == [[ABSENT] * 2]


def test_zones_need_what_their_node_needs() -> None:
    zones = (Zone("node0", 4000, 16 * GIB), Zone("node1", 4000, 16 * GIB))
    node = Node(pods=(pod("a"),), facts={"zones": zones})
    world, (_, (later,)) = spiky(SHORT % ("predicted", 0, 1), node)
    last = of(world.tick(10_000), "capacity")[-1]
    assert last.cpu_terms["need"] == later
    half = 4000 - last.cpu_terms["margin"] // 2 - -(-later // 2)
    assert last.zone_cpu_milli == [half, half]


def test_a_pod_that_nobody_reports_is_expected_at_its_request() -> None:
    world, _ = spiky(SHORT % ("predicted", 0, 1), node := Node(pods=(pod("a"),)))
    gone: dict[str, list[int | None]] = {"cpu_usage_us": [None], "memory_used_bytes": [None]}
    for _ in range(40):
        world.say(node.sample([0], elapsed_ms=10_000, more=gone), 10_000)
        world.tick(0)
    assert mid(world).cpu_terms["need"] == 4000
    assert column(world, node, "short")[0][0] > 0
