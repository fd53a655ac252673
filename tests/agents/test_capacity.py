"""What batch work may borrow: down at once, up slowly, held where nothing is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import guards
from schemas.records import Capacity, LedgerEntry, PodFact, PolicyRecord
from tests.agents.worlds import (
    CAPACITY_MILLI,
    EXPAND,
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

FAST = WARM + "capacity: {raise_permille_per_min: 60000}\n"
"""Rises by the whole capacity in a second."""


def lent(milli: int, size: int) -> tuple[str, int, bytes, Any]:
    return ("ledger", PARTITION, b"n0", LedgerEntry("n0", "yarn", milli, size))


def capacities(world: World, node: Node, seconds: int, **sample: Any) -> list[Capacity]:
    return of(world.run(node, seconds, **sample), "capacity")


def offer(world: World, node: Node) -> list[int]:
    result: list[int] = world.value(node, "offer")
    return result


def test_the_sum_and_its_terms() -> None:
    node = Node(pods=(online("a"), best_effort("b")))
    world = World(FAST, node)
    last = capacities(world, node, 5, milli=[1000, 500], system=300)[-1]
    margin = CAPACITY_MILLI * 40 // 100
    assert last.cpu_terms == {
        "capacity": CAPACITY_MILLI, "margin": margin, "prediction_error": 0, "machine_failure": 0,
        "scale_out": 0, "rollout": 0, "expected_peak": 0, "system": 300, "reserved": 0,
        "need": 1100, "cap": CAPACITY_MILLI, "normalised": 0, "third_party": 0, "lent": 0,
        "free": last.batch_cpu_milli,
    }  # fmt: skip
    assert last.batch_cpu_milli == CAPACITY_MILLI - margin - 300 - 1100
    assert last.computed_cpu_milli == last.batch_cpu_milli
    assert last.new_work
    assert last.memory_terms["need"] == 1153433 * 1024
    assert last.memory_terms["system"] == 10 * GIB


@pytest.mark.parametrize(
    ("host", "system"),
    [(online("h", host_app=True), 500), (online("h", host_app=True, priority_class="mid"), 500),
     (best_effort("h", host_app=True), 300), (online("h", host_app=True, priority=5500,
     priority_class="batch"), 300)],
)  # fmt: skip
def test_host_applications_above_batch_are_part_of_the_system(host: PodFact, system: int) -> None:
    node = Node(pods=(online("a"), host))
    world = World(FAST, node)
    last = capacities(world, node, 5, milli=[1000, 200], system=300, used=[GIB, 2 * GIB])[-1]
    assert last.cpu_terms["system"] == system
    assert last.cpu_terms["need"] == 1100
    assert last.memory_terms["system"] == 9 * GIB + (2 * GIB if system == 500 else 0)


def test_r2_it_falls_at_once_and_rises_by_the_policys_rate() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 3, milli=[1000, 0])
    before = offer(world, node)[0]
    world.run(node, 10, milli=[1000, 0])
    assert offer(world, node)[0] - before == 10 * (CAPACITY_MILLI * 100 // 60_000)
    world.run(node, 1, milli=[4500, 0])
    assert offer(world, node)[0] == 0


@given(st.integers(1, 2**50), st.integers(1, 60_000), st.lists(st.integers(0, 10**7), max_size=20))
def test_r2_rises_never_exceed_the_rate_however_ticks_fall(
    capacity: int, permille: int, gaps: list[int]
) -> None:
    grown = 0
    for gap in gaps:
        (step,) = guards.rise(np.array([capacity]), permille, np.array([gap])).tolist()
        assert 0 <= step <= capacity
        grown += step
    assert grown * 60_000_000 <= capacity * permille * sum(gaps) * 1000 + 60_000_000


def test_a_real_fall_below_what_is_lent_is_published_with_its_reason() -> None:
    node = Node()
    world = World(FAST, node)
    world.tick(1000, lent(3000, GIB))
    world.run(node, 5, milli=[500, 0])
    (fallen,) = capacities(world, node, 1, milli=[4000, 0])
    assert fallen.batch_cpu_milli == 400
    assert fallen.batch_cpu_milli < fallen.cpu_terms["lent"]
    assert (fallen.reason, fallen.new_work) == ("fall", True)


def test_r3_a_silent_node_holds_offers_nothing_new_and_is_withdrawn_to_what_is_lent() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 5, milli=[500, 0])
    held = offer(world, node)
    world.tick(1000, lent(700, GIB))
    found: list[Capacity] = []
    for _ in range(3):
        found += of(world.tick(1000), "capacity")
    assert [(c.batch_cpu_milli, c.new_work, c.reason) for c in found] == [
        (held[0], False, "silent")
    ]
    found = of(world.tick(890_000), "capacity")
    assert [c.batch_cpu_milli for c in found] == [held[0]]  # refresh, still held
    (gone,) = of(world.tick(10_000), "capacity")
    assert (gone.batch_cpu_milli, gone.batch_memory_bytes) == (700, GIB)
    assert (gone.reason, gone.new_work) == ("withdrawn", False)


def test_r3_withdrawing_never_raises_a_real_fall() -> None:
    node = Node()
    world = World(FAST, node)
    world.tick(1000, lent(3000, GIB))
    world.run(node, 5, milli=[4000, 0])
    low = offer(world, node)[0]
    assert low < 3000
    world.tick(900_001)
    assert offer(world, node)[0] == low


def test_r3_unknown_pods_hold_like_silence() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 5, milli=[500, 0])
    held = offer(world, node)
    node.rev += 1
    found = capacities(world, node, 6, milli=[3000, 0])
    assert [(c.batch_cpu_milli, c.new_work, c.reason) for c in found] == [
        (held[0], False, "unknown_pods")
    ]


def test_cold_history_holds_at_what_is_lent_and_then_rises_from_there() -> None:
    node = Node()
    text = EXPAND + "reservation: {warm_ms: 10000}\n"
    world = World(text, node)
    found = of(world.tick(1000, lent(700, GIB)), "capacity")
    found += capacities(world, node, 10, milli=[500, 0])
    assert {(c.batch_cpu_milli, c.new_work, c.reason) for c in found} == {(700, False, "cold")}
    (warm,) = capacities(world, node, 1, milli=[500, 0])
    assert warm.new_work
    assert 700 <= warm.batch_cpu_milli <= 714


def test_while_cold_the_offer_follows_what_is_lent_down_as_well() -> None:
    node = Node()
    world = World(EXPAND, node)
    world.run(node, 3, milli=[500, 0])
    for milli in (700, 300, 0):
        world.tick(1000, lent(milli, GIB))
        assert offer(world, node)[0] == milli


def test_what_was_lent_within_what_is_computed_is_no_rise() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 3, milli=[500, 0])
    assert offer(world, node)[0] < 1000
    world.tick(1000, lent(2000, GIB))
    assert 2000 <= offer(world, node)[0] <= 2000 + CAPACITY_MILLI * 100 // 60_000


def test_what_was_lent_beyond_what_is_computed_raises_nothing() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 3, milli=[3000, 0])
    computed = offer(world, node)[0]
    world.tick(1000, lent(computed + 2000, GIB))
    assert offer(world, node)[0] == computed


def test_after_a_silence_it_rises_from_where_it_was_held() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 5, milli=[3000, 0])
    held = offer(world, node)[0]
    for _ in range(20):
        world.tick(1000)
    node.advance([3000, 0], elapsed_ms=19_000)
    world.run(node, 1, milli=[3000, 0])
    assert offer(world, node)[0] == held


def test_without_a_policy_there_is_no_capacity() -> None:
    node = Node()
    world = World(None, node)
    assert capacities(world, node, 5) == []


def test_a_disabled_rule_withdraws_what_was_offered_once() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 5, milli=[500, 0])
    off = PolicyRecord("default", 2, "", WARM + "capacity: {enabled: false}\n")
    (last,) = of(world.tick(1000, ("policies", 0, b"default", off)), "capacity")
    assert (last.batch_cpu_milli, last.new_work, last.reason) == (0, False, "disabled")
    assert of(world.tick(1000), "capacity") == []


def test_published_on_change_or_refresh_only() -> None:
    node = Node()
    world = World(FAST, node)
    world.run(node, 5, milli=[1000, 0])
    assert len(capacities(world, node, 290, milli=[1005, 0])) <= 1
    assert len(capacities(world, node, 15, milli=[1005, 0])) == 1
    assert len(capacities(world, node, 2, milli=[2500, 0])) == 1


def test_a_ticks_decisions_travel_as_columns_in_one_record() -> None:
    nodes = [Node(f"n{i}") for i in range(3)]
    world = World(FAST, *nodes)
    (line,) = of(world.out, "decisions", "capacity")
    assert line.nodes == ("n0", "n1", "n2")
    assert line.outcome == ("cold",) * 3
    assert {len(values) for values in line.columns.values()} == {3}


@pytest.mark.parametrize(
    ("said", "now", "changed"),
    [(1000, 1100, False), (1000, 1101, True), (0, 79, False), (0, 80, True), (50, 0, True),
     (0, 0, False), (10, 20, False)],
)  # fmt: skip
def test_changes_worth_saying(said: int, now: int, changed: bool) -> None:
    (answer,) = guards.changed(np.array([said]), np.array([now]), np.array([8000]), 100)
    assert answer == changed


def test_memory_capacity_counts_no_page_cache() -> None:
    """Available memory already leaves reclaimable cache out; usage is total - available."""
    node = Node()
    world = World(FAST, node)
    more = {"memory_current_bytes": [30 * GIB, 30 * GIB], "memory_file_bytes": [29 * GIB, GIB]}
    last = capacities(world, node, 5, milli=[0, 0], used=[GIB, GIB], more=more)[-1]
    assert last.memory_terms["need"] < 2 * GIB
    assert last.memory_terms["capacity"] == MEMORY
