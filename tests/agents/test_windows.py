"""Event-time windows against a model that keeps every value."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import windows
from agents.reservation import percentiles
from tests.agents.worlds import GIB, WARM, Node, World, online

Points = list[tuple[int, int]]
TIMES = st.lists(
    st.tuples(st.sampled_from([0, 400, 1000, 1000, 59_000, 61_000, 400_000, -900, -70_000,
                               -500_000, 4_000_000]), st.integers(0, 5000)),
    min_size=1, max_size=30,
)  # fmt: skip


def moments(steps: Points) -> Points:
    """(event time, value) from (step, value)."""
    now, result = 10_000_000, []
    for step, value in steps:
        now = max(now + step, 5_000_000)
        result.append((now, value))
    return result


def buckets_of(points: Points, width_ms: int, kept: int) -> dict[int, int]:
    """The model: maxima by bucket; what is too old when it comes, or now, is not there."""
    latest, held = -1, dict[int, int]()
    for when, value in points:
        bucket = when // width_ms
        latest = max(latest, bucket)
        if bucket > latest - kept:
            held[bucket] = max(held.get(bucket, -1), value)
    return {bucket: value for bucket, value in held.items() if bucket > latest - kept}


@settings(max_examples=150, deadline=None)
@given(TIMES)
def test_pod_windows_equal_the_model(steps: Points) -> None:
    node = Node(pods=(online("a"), online("b")))
    state = World(WARM, node).state
    rows = np.array([state.seats[b"n0"].row])
    slots, owner, _ = state.slots_of(rows)
    live = np.empty((2, 8))
    for when, value in moments(steps):
        values = np.array([[value, value + 7], [-1, -1]])
        live = windows.note_pods(state, rows, np.array([when]), slots, owner, values)
    short = max(buckets_of(moments(steps), windows.SHORT_MS, windows.SLOTS).values())
    long = max(buckets_of(moments(steps), windows.LONG_MS, windows.SLOTS).values())
    assert live[0, windows.SHORT].tolist() == [short, short + 7]
    assert live[0, windows.LONG].tolist() == [long, long + 7]
    assert live[1].tolist() == [-1] * 8  # absent, not zero


@settings(max_examples=150, deadline=None)
@given(TIMES)
def test_node_rings_equal_the_model(steps: Points) -> None:
    state = World(WARM, Node()).state
    rows = np.array([state.seats[b"n0"].row])
    dropped = 0
    for when, value in moments(steps):
        latest = int(state.nodes["second"][rows[0]])
        dropped += latest >= 0 and when // 1000 <= latest - windows.SECONDS
        windows.note_nodes(state, rows, np.array([when]), np.array([[value] * 6]))
    model = buckets_of(moments(steps), windows.SECOND_MS, windows.SECONDS)
    ring = state.nodes["ring"][rows[0]][4]
    held = {
        second: int(ring[second % windows.SECONDS])
        for second in range(int(state.nodes["second"][rows[0]]) - windows.SECONDS + 1,
                            int(state.nodes["second"][rows[0]]) + 1)
        if ring[second % windows.SECONDS] >= 0
    }  # fmt: skip
    assert held == model
    assert state.counts["late"] == dropped
    largest = state.nodes["ring"][rows[0], windows.SYSTEM].max(axis=1)
    assert state.nodes["system_peak"][rows[0]].tolist() == largest.tolist()


def test_r3_a_gap_leaves_nothing_in_the_buckets_it_skipped() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 30, milli=[2000, 0])
    world.say(node.sample([2000, 0], elapsed_ms=100_000), after_ms=100_000)
    ring = np.array(world.value(node, "ring"))[4]
    assert np.count_nonzero(ring >= 0) == 29 + 1


@given(st.lists(st.integers(-1, 1000), min_size=300, max_size=300))
def test_percentiles_are_nearest_rank_floor(values: list[int]) -> None:
    ordered = sorted(value for value in values if value >= 0)
    (ranks,) = percentiles(np.array([values])).tolist()
    for percent, rank in zip((50, 90, 95, 99), ranks, strict=True):
        expected = ordered[max(len(ordered) * percent // 100 - 1, 0)] if ordered else -1
        assert rank == expected


def test_the_peers_percentile_figures() -> None:
    ring = np.full((1, 300), -1)
    ring[0, :9] = np.arange(9) * 100
    assert percentiles(ring)[0, :2].tolist() == [300, 700]


def test_memory_is_held_in_kib_rounded_up() -> None:
    assert windows.kib(np.array([-1, 0, 1, 1024, 1025, GIB])).tolist() == [
        -1, 0, 1, 1, 2, GIB >> 10,
    ]  # fmt: skip


def test_time_passes_for_pods_of_a_set_that_is_not_known() -> None:
    node = Node(pods=(online("a"),))
    world = World(WARM, node)
    world.run(node, 60, milli=[4000])
    node.rev += 1  # a new set whose inventory is late
    for _ in range(3 * 60):
        world.say(node.sample([500]))
    world.know(node)
    world.run(node, 60, milli=[500])
    row = world.state.seats[b"n0"].row
    (minutes,) = np.array(world.pods(node, "minutes"))[:, 0]
    newest = int(world.state.nodes["minute"][row])
    behind = [int(minutes[(newest - back) % windows.SLOTS]) for back in range(1, windows.SLOTS)]
    assert behind == [500, -1, -1, 4000, 4000]  # two minutes that nobody reported
    (live,) = world.pods(node, "live")
    assert live[windows.SHORT][0] == 4000
    for _ in range(3 * 60):
        world.say(node.sample([500]))
    (live,) = world.pods(node, "live")
    assert live[windows.SHORT][0] == 500


def test_a_set_that_is_unknown_for_long_leaves_nothing_behind() -> None:
    node = Node(pods=(online("a"),))
    world = World(WARM, node)
    world.run(node, 60, milli=[4000])
    node.rev += 1
    for _ in range(7 * 60):
        world.say(node.sample([500]))
    (live,) = world.pods(node, "live")
    assert live[windows.SHORT] == [-1, -1]
    assert live[windows.LONG][0] == 4000
