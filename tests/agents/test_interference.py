"""Interference: each online pod against its own last hour, in integers."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import histogram, interference
from agents.histogram import BUCKETS, CENTRES, EDGES, WIDTHS, bucket_of, median_and_mad
from schemas.records import Signal
from tests.agents.worlds import WARM, Node, World, best_effort, of, online

RULE = "interference: {history_ms: 100000}\n"


def point(world: World, node: Node, us_per_s: int) -> None:
    """Ten seconds of so much pressure, then a tick."""
    world.say(node.sample(elapsed_ms=10_000, pressure_us_per_s=us_per_s), after_ms=10_000)
    world.tick(0)


def last_signal(world: World) -> Signal:
    signal: Signal = of(world.out, "signals")[-1]
    return signal


def test_null_while_history_is_short_then_a_score() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    point(world, node, 2000)
    assert of(world.out, "signals") == []  # no pair yet
    for _ in range(9):
        point(world, node, 2000)
        signal = last_signal(world)
        assert signal.pressure_us_per_s == [2000]
        assert signal.pressure_score_permille == [None]
        assert signal.pressure_median == [None]
    for _ in range(8):
        point(world, node, 2000)
    signal = last_signal(world)
    (middle,), (score,) = signal.pressure_median, signal.pressure_score_permille
    assert middle is not None
    assert abs(middle - 2000) < 500
    assert score is not None
    assert abs(score) < 1000
    assert signal.pods == ("a",)  # online pods only


def test_ill_after_so_many_points_in_a_row_and_well_again_at_once() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    for _ in range(20):
        point(world, node, 2000)
    point(world, node, 60_000)
    assert not last_signal(world).ill
    point(world, node, 60_000)
    assert last_signal(world).ill
    (health,) = of(world.out, "fleet")
    assert health.ill == 1
    point(world, node, 2000)
    assert not last_signal(world).ill


@pytest.mark.parametrize("level", [1500, 20_000, 400_000])
def test_no_constant_threshold_decides_only_the_pods_own_history(level: int) -> None:
    node = Node()
    world = World(WARM + RULE, node)
    for _ in range(30):
        point(world, node, level)
    for _ in range(3):
        point(world, node, level)
        assert not last_signal(world).ill


def test_a_best_effort_pods_pressure_counts_for_nothing() -> None:
    node = Node(pods=(best_effort("b"),))
    world = World(WARM + RULE, node)
    for _ in range(30):
        point(world, node, 2000)
    for _ in range(3):
        point(world, node, 900_000)
        assert of(world.out, "signals") == []
    assert world.value(node, "ill") == 0


def test_r3_an_absent_point_neither_heals_nor_harms() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    for _ in range(20):
        point(world, node, 2000)
    point(world, node, 60_000)
    gone = node.sample(elapsed_ms=10_000, drop=["psi_cpu_some_us", "runq_wait_us"])
    world.say(gone, after_ms=10_000)
    assert world.pods(node, "rate")[0] == [-1, -1]
    point(world, node, 60_000)  # no pair: the last point is absent
    assert world.pods(node, "streak")[0] == 1
    point(world, node, 60_000)
    assert last_signal(world).ill


def test_a_counter_that_fell_gives_no_point() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    point(world, node, 2000)
    node.pressure_us = [0, 0]
    point(world, node, 0)
    assert world.pods(node, "rate")[0] == [-1, -1]


def test_the_last_hour_only() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    for _ in range(360):
        point(world, node, 3000)
    assert sum(sum(segment) for segment in world.pods(node, "hour")[0][0]) <= 360
    for _ in range(180):
        point(world, node, 50_000)
    (middle,) = last_signal(world).pressure_median
    for _ in range(190):
        point(world, node, 50_000)
    (later,) = last_signal(world).pressure_median
    assert later is not None
    assert middle is not None
    assert abs(later - 50_000) < 10_000
    assert middle <= later
    point(world, node, 50_000)
    node.advance([0, 0], elapsed_ms=7_200_000)
    world.log_ms += 7_200_000
    point(world, node, 50_000)
    point(world, node, 50_000)
    held = np.array(world.pods(node, "hour")[0][0]).sum()
    assert held == 2  # the interval over the gap, and one more


def test_baselines_are_staggered_and_taken_once_a_minute() -> None:
    node = Node()
    world = World(WARM + RULE, node)
    minutes = set()
    for _ in range(18):
        point(world, node, 2000)
        minutes.add(world.value(node, "baseline"))
    assert len(minutes) in (3, 4)


def test_edges_are_log_spaced_integers() -> None:
    assert len(EDGES) == BUCKETS
    assert (np.diff(EDGES) > 0).all()
    growth = EDGES[2:] / EDGES[1:-1]
    assert growth.min() > 1.21
    assert growth.max() < 1.23
    assert EDGES[-1] > 9_000_000


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_buckets_hold_their_values(values: list[int]) -> None:
    for value, bucket in zip(values, bucket_of(np.array(values)).tolist(), strict=True):
        assert EDGES[bucket] <= value
        assert bucket == BUCKETS - 1 or value < EDGES[bucket + 1]


@settings(max_examples=200)
@given(st.lists(st.lists(st.integers(0, BUCKETS - 1), min_size=1, max_size=60), min_size=1,
                max_size=4))  # fmt: skip
def test_median_and_mad_equal_the_plain_ones(rows: list[list[int]]) -> None:
    counts = np.array([np.bincount(row, minlength=BUCKETS) for row in rows])
    middle, spread = median_and_mad(counts)
    for row, m, s in zip(rows, middle.tolist(), spread.tolist(), strict=True):
        centres = [int(CENTRES[bucket]) for bucket in row]
        assert m == statistics.median_low(centres)
        plain = statistics.median_low([abs(c - m) for c in centres])
        assert s == max(plain, int(WIDTHS[bucket_of(np.array([m]))[0]]))


@given(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(1, 10**7))
def test_scores_are_exact_integers(rate: int, middle: int, spread: int) -> None:
    arrays = (np.array([value], dtype=np.int32) for value in (rate, middle, spread))
    (score,) = interference.score_permille(*arrays).tolist()
    assert score == (rate - middle) * 10_000_000 // (14_826 * spread)


def test_points_of_many_pods_land_in_their_own_histograms() -> None:
    node = Node(pods=tuple(online(f"p{i}") for i in range(5)))
    world = World(WARM + RULE, node)
    point(world, node, 0)
    grown = [1500 * 10 * 3**i for i in range(5)]
    sample = node.sample(elapsed_ms=10_000, more={"psi_cpu_some_us": grown})
    world.say(sample, after_ms=10_000)
    for i, hour in enumerate(world.pods(node, "hour")):
        counts = np.array(hour[0]).sum(axis=0)
        assert counts.sum() == 1
        assert counts[histogram.bucket_of(np.array([1500 * 3**i]))[0]] == 1


def test_a_node_is_judged_by_its_own_threshold() -> None:
    """The same crowd on two nodes; one is told to be patient for longer."""
    text = "reservation: {warm_ms: 0}\ninterference: {history_ms: 60000}\nloop: {tick_ms: 10000}\n"
    ill: list[bool] = []
    for points in (2, 60):
        node = Node()
        world = World(f"name: default\n{text}", node)
        said = {"slackwater.io/interference.ill_points": str(points)}
        world.know(node, labels=said)
        for second in range(0, 400, 10):
            calm = second < 300
            pressure = (7 if second % 20 else 9) if calm else 400_000
            sample = node.sample(elapsed_ms=10_000, pressure_us_per_s=pressure)
            world.say(sample, 10_000)
        ill.append(bool(world.value(node, "ill")))
    assert ill == [True, False]
