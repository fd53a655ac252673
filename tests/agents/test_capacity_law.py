"""The whole law in the loop: mid, margins by name, zones, normalisation, what others gave away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.capacity_terms import MARGINS, MID_TERMS, TERMS
from agents.lending.margins import minute_of_week
from agents.lending.shares import share_out
from agents.lending.zones import Zones
from agents.table import Ints
from schemas.records import Capacity, LedgerEntry, PolicyRecord, Zone
from tests.agents.lending.strategies import fleets, pairs
from tests.agents.worlds import (
    CAPACITY_MILLI,
    GIB,
    MEMORY,
    PARTITION,
    START_MS,
    WARM,
    Node,
    World,
    best_effort,
    of,
    online,
    said,
)

RATE = "raise_permille_per_min: 60000"


def text(capacity: str = "", more: str = "") -> str:
    inner = f"{RATE}, {capacity}" if capacity else RATE
    return f"{WARM}capacity: {{{inner}}}\n{more}"


def last(world: World, node: Node, seconds: int = 5, **sample: Any) -> Capacity:
    """What was said last, in a world where every second is worth a word."""
    found: list[Capacity] = of(world.out, "capacity") + of(
        world.run(node, seconds, **sample), "capacity"
    )
    return found[-1]


def mid_pod(uid: str, **more: Any) -> Any:
    return online(uid, priority_class="mid", **more)


def test_mid_is_what_prod_asked_for_and_will_not_use() -> None:
    node = Node(pods=(online("a", cpu_request_milli=4000), mid_pod("m"), best_effort("b")))
    world = World(text(), node)
    seen = last(world, node, milli=[1000, 300, 500], system=200)
    terms = seen.mid_cpu_terms
    assert tuple(terms) == MID_TERMS
    assert (terms["allocated"], terms["long"]) == (4000, 1200)
    assert terms["reclaimable"] == 4000 - 1200
    above = CAPACITY_MILLI - terms["margins"] - 200 - 1200
    assert seen.mid_cpu_milli == seen.computed_mid_cpu_milli == min(2800, above)
    assert seen.mid_reason in {"first", "raise", "steady"}
    # What mid work uses is need of batch, not of mid.
    assert seen.cpu_terms["need"] == 1100 + 330


def test_mid_never_reaches_below_the_long_reservation() -> None:
    node = Node(pods=(online("a", cpu_request_milli=8000),))
    world = World(text(), node)
    seen = last(world, node, milli=[2500], system=1000)
    margin = CAPACITY_MILLI * 40 // 100
    assert seen.mid_cpu_terms["reclaimable"] == 8000 - 3000
    assert seen.mid_cpu_milli == CAPACITY_MILLI - margin - 1000 - 3000


def test_a_spike_is_remembered_longer_by_mid_than_by_batch() -> None:
    node = Node(pods=(online("a", cpu_request_milli=4000),))
    world = World(text(), node)
    world.run(node, 5, milli=[2000])
    seen = last(world, node, 500, milli=[500])
    assert seen.cpu_terms["need"] == 550
    assert seen.mid_cpu_terms["long"] == 2400


def test_where_the_newest_use_is_the_need_it_follows_each_sample() -> None:
    newest = text().replace("reservation: {", "reservation: {short_model: newest, ")
    assert newest != text()
    node = Node(pods=(online("a", cpu_request_milli=4000),))
    world = World(newest, node)
    world.run(node, 5, milli=[2000])
    seen = last(world, node, 1, milli=[500])
    assert (seen.cpu_terms["need"], seen.mid_cpu_terms["long"]) == (550, 2400)
    assert last(world, node, 1, milli=[3000]).cpu_terms["need"] == 3300


def test_r3_a_use_that_nobody_tells_any_more_is_not_the_newest() -> None:
    newest = text().replace("reservation: {", "reservation: {short_model: newest, ")
    node = Node(pods=(online("a", cpu_request_milli=4000),))
    world = World(newest, node)
    world.run(node, 3, milli=[2000])
    assert last(world, node, 1, milli=[500]).cpu_terms["need"] == 550
    world.run(node, 3, milli=[0], more={"cpu_usage_us": [None]})
    assert world.value(node, "sums")[7] == 2200, "the window stands for it"


def test_unallocated_and_fixed_shares_of_mid() -> None:
    node = Node(pods=(online("a", cpu_request_milli=2000), best_effort("b")))
    world = World(text(more="mid: {unallocated_percent: 25}\n"), node)
    seen = last(world, node, milli=[1000, 0])
    assert seen.mid_cpu_milli == 2000 - 1200 + (CAPACITY_MILLI - 2000) // 4
    fixed = "mid: {mode: static, static_cpu_percent: 20, cpu_cap_percent: 10}\n"
    world = World(text(more=fixed), node := Node())
    assert last(world, node, milli=[100, 0]).mid_cpu_milli == CAPACITY_MILLI // 10


def test_mid_that_is_off_keeps_what_was_lent_of_it() -> None:
    node = Node(pods=(online("a", cpu_request_milli=4000),))
    world = World(text(), node)
    lent = LedgerEntry("n0", "k8s", 0, 0, mid_cpu_milli=600, mid_memory_bytes=GIB)
    world.tick(1000, ("ledger", PARTITION, b"n0", lent))
    assert last(world, node, milli=[500]).mid_cpu_milli > 600
    off = PolicyRecord("default", 2, "", text(more="mid: {enabled: false}\n"))
    (seen,) = of(world.tick(1000, ("policies", 0, b"default", off)), "capacity")
    assert (seen.mid_cpu_milli, seen.mid_reason) == (600, "disabled")
    assert seen.new_work


def test_r3_mid_holds_when_silent_and_is_withdrawn_to_what_is_lent() -> None:
    node = Node(pods=(online("a", cpu_request_milli=4000),))
    world = World(text(), node)
    held = last(world, node, milli=[500]).mid_cpu_milli
    lent = LedgerEntry("n0", "k8s", 0, 0, mid_cpu_milli=600)
    world.tick(1000, ("ledger", PARTITION, b"n0", lent))
    found: list[Capacity] = []
    for _ in range(4):
        found += of(world.tick(1000), "capacity")
    assert [(c.mid_cpu_milli, c.mid_reason) for c in found] == [(held, "silent")]
    (gone,) = of(world.tick(900_000), "capacity")
    assert (gone.mid_cpu_milli, gone.mid_reason) == (600, "withdrawn")


@pytest.mark.parametrize("name", MARGINS)
def test_each_margin_is_a_term_of_its_own(name: str) -> None:
    plain, kept = Node(), Node()
    before = last(World(text(), plain), plain, milli=[1000, 0])
    policy = text(more=f"margins: {{{name}_permille: 100}}\n")
    after = last(World(policy, kept), kept, milli=[1000, 0])
    assert tuple(after.cpu_terms) == TERMS
    assert after.cpu_terms[name] == CAPACITY_MILLI // 10
    assert after.batch_cpu_milli == before.batch_cpu_milli - CAPACITY_MILLI // 10
    assert after.mid_cpu_terms["margins"] == before.mid_cpu_terms["margins"] + CAPACITY_MILLI // 10
    assert after.batch_memory_bytes == before.batch_memory_bytes - MEMORY // 10


def test_a_peak_of_the_calendar_is_kept_back_at_once_and_given_up_slowly() -> None:
    minute = minute_of_week(START_MS) + 1
    peak = f"{{start_minute: {minute}, end_minute: {minute + 1}, permille: 250}}"
    node = Node()
    world = World(text(more=f"margins: {{peaks: [{peak}]}}\n"), node)
    seen = {c.cause.log_ms: c for c in of(world.run(node, 150, milli=[1000, 0]), "capacity")}
    opened = [at for at, c in seen.items() if c.cpu_terms["expected_peak"] > 0]
    assert {minute_of_week(at) for at in opened} == {minute}
    first = min(opened)
    assert first // 60_000 * 60_000 == first - first % 60_000
    assert seen[first].batch_cpu_milli == seen[first].computed_cpu_milli
    assert seen[first].reason == "fall"
    assert world.value(node, "offer")[0] == CAPACITY_MILLI - CAPACITY_MILLI * 40 // 100 - 1100


def test_the_largest_of_usage_and_request_by_policy() -> None:
    node = Node(pods=(online("a", cpu_request_milli=2000), best_effort("b")))
    policy = text("cpu_policy: max_usage_request, memory_policy: request")
    seen = last(World(policy, node), node, milli=[1000, 0], system=700)
    assert seen.cpu_terms["need"] == 2000
    assert seen.memory_terms["need"] == GIB
    assert seen.memory_terms["system"] == 0  # requests stand beside the reserve only
    assert seen.cpu_terms["system"] == 700


def test_a_cap_is_a_term_and_holds() -> None:
    node = Node()
    seen = last(World(text("cpu_cap_percent: 10"), node), node, milli=[500, 0])
    assert (seen.cpu_terms["cap"], seen.batch_cpu_milli) == (800, 800)


def test_reserved_cpus_normalisation_and_third_parties() -> None:
    node = Node()
    world = World(text(), node)
    world.know(
        node, reserved_cpus="0,2", cpu_ratio_permille=1250, third_party_cpu_milli=300,
        third_party_memory_bytes=GIB,
    )  # fmt: skip
    seen = last(world, node, milli=[1000, 0], system=300)
    plain = CAPACITY_MILLI - CAPACITY_MILLI * 40 // 100 - 2000 - 1100
    assert seen.cpu_terms["reserved"] == 2000
    assert seen.cpu_terms["normalised"] == plain // 4
    assert seen.batch_cpu_milli == plain + plain // 4 - 300
    assert seen.memory_terms["third_party"] == GIB


def test_what_an_inventory_says_badly_is_counted_and_not_believed() -> None:
    node = Node()
    world = World(text(), node)
    zones = tuple(Zone(f"z{i}", 1000, GIB) for i in range(9))
    world.know(node, reserved_cpus="x", cpu_ratio_permille=9000, zones=zones)
    for name in ("bad_reserved_cpus", "bad_cpu_ratio", "too_many_zones"):
        assert world.state.counts[name] == 1
    seen = last(world, node, milli=[1000, 0])
    assert (seen.cpu_terms["reserved"], seen.cpu_terms["normalised"]) == (0, 0)
    assert seen.zone_cpu_milli == []


def test_free_work_draws_on_what_nobody_was_lent() -> None:
    node = Node()
    world = World(text(), node)
    world.tick(1000, ("ledger", PARTITION, b"n0", LedgerEntry("n0", "yarn", 1500, GIB)))
    seen = last(world, node, milli=[1000, 0])
    assert seen.cpu_terms["lent"] == 1500
    assert seen.cpu_terms["free"] == seen.batch_cpu_milli - 1500
    found: list[Capacity] = []
    for _ in range(5):
        found += of(world.tick(1000), "capacity")
    assert [(c.reason, c.cpu_terms["free"]) for c in found] == [("silent", 0)]


ZONES = (Zone("node0", 4000, MEMORY // 2), Zone("node1", 4000, MEMORY // 2))


def test_zones_lend_where_the_pods_are_not() -> None:
    node = Node(pods=(online("a", numa_nodes=(1,)), online("c"), best_effort("b")))
    world = World(text(), node)
    world.know(node, zones=ZONES)
    seen = last(world, node, milli=[1000, 500, 0], system=200)
    margin = 4000 * 40 // 100
    first, second = 4000 - margin - 100 - 275, 4000 - margin - 100 - 275 - 1100
    assert seen.zone_cpu_milli == [first, second]
    assert sum(seen.zone_cpu_milli) <= seen.batch_cpu_milli
    assert sum(seen.zone_memory_bytes) <= seen.batch_memory_bytes


def test_zones_are_said_anew_with_other_pods() -> None:
    node = Node(pods=(online("a", numa_nodes=(1,)), best_effort("b")))
    world = World(text(), node)
    world.know(node, zones=ZONES)
    before = last(world, node, milli=[1000, 0]).zone_cpu_milli
    node.rev += 1
    node.pods = (replace(node.pods[0], numa_nodes=(0,)), node.pods[1])
    world.know(node, zones=ZONES)
    assert last(world, node, 2, milli=[1000, 0]).zone_cpu_milli == before[::-1]


def test_r3_zones_of_a_silent_node_still_come_to_what_it_offers() -> None:
    node = Node()
    world = World(text(), node)
    world.know(node, zones=ZONES)
    last(world, node, milli=[1000, 0])
    found: list[Capacity] = []
    for _ in range(4):
        found += of(world.tick(1000), "capacity")
    (held,) = found
    assert held.reason == "silent"
    assert held.batch_cpu_milli - 2 <= sum(held.zone_cpu_milli) <= held.batch_cpu_milli


@given(fleets(), st.lists(st.integers(1, 5), min_size=4, max_size=4), st.data())
def test_shares_of_zones_never_exceed_the_offer_nor_themselves(
    fleet: Any, counts: list[int], data: st.DataObject
) -> None:
    zones = Zones.of(np.array(counts[: len(fleet.capacity)], dtype=np.int64))
    amount: Ints = data.draw(pairs(len(zones.node)))
    held = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4)))
    held = held[: len(fleet.capacity)]
    shared = share_out(amount, fleet.capacity, zones, held)
    assert (shared >= 0).all()
    for node in range(len(fleet.capacity)):
        mine = zones.node == node
        whole = shared[mine].sum(axis=0)
        assert (whole <= fleet.capacity[node]).all()
        if held[node]:
            assert (whole >= fleet.capacity[node] - 1 - (fleet.capacity[node] >> 50)).all()
        else:
            assert (shared[mine] <= amount[mine]).all()


USES = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 2000)), min_size=1, max_size=3)


def fleet_of(uses: list[tuple[int, int]], names: list[str]) -> list[Capacity]:
    nodes = [Node(name) for name in names]
    world = World(text(more="mid: {unallocated_percent: 30}\n"), *nodes)
    found: dict[str, Capacity] = {}
    for _ in range(4):
        for node, milli in zip(nodes, uses, strict=True):
            world.say(node.sample(list(milli)), after_ms=0)
        found |= {c.node: c for c in of(world.tick(1000), "capacity")}
    return [found[name] for name in names]


def figures(one: Capacity) -> tuple[int, ...]:
    return (
        one.batch_cpu_milli, one.batch_memory_bytes, one.mid_cpu_milli, one.mid_memory_bytes,
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(USES, st.randoms(use_true_random=False))
def test_order_of_nodes_changes_nothing_and_more_use_lends_no_more(
    uses: list[tuple[int, int]], random: Any
) -> None:
    names = [f"n{i}" for i in range(len(uses))]
    straight = fleet_of(uses, names)
    order = list(range(len(uses)))
    random.shuffle(order)
    shuffled = fleet_of([uses[i] for i in order], [names[i] for i in order])
    assert [figures(one) for one in shuffled] == [figures(straight[i]) for i in order]
    for one in straight:
        assert min(figures(one)) >= 0
        for got, most in zip(figures(one), (CAPACITY_MILLI, MEMORY) * 2, strict=True):
            assert got <= most
    busier = fleet_of([(a + 200, b) for a, b in uses], names)
    for more, less in zip(busier, straight, strict=True):
        assert all(a <= b for a, b in zip(figures(more), figures(less), strict=True))


def test_same_log_same_bytes() -> None:
    def run() -> list[Any]:
        node = Node(pods=(online("a", numa_nodes=(1,)), mid_pod("m"), best_effort("b")))
        world = World(text(more="margins: {rollout_permille: 7}\n"), node)
        world.know(node, zones=ZONES, cpu_ratio_permille=1100)
        return said(world.run(node, 30, milli=[900, 400, 200]))

    assert run() == run()
