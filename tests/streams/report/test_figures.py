"""Grid, suspects, services and policies on cases made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import policy
from streams.report.grid import Grid, empty, held, put, rates, thin
from streams.report.pods import Fact, Use
from streams.report.policies import differences
from streams.report.suspects import correlation, of_node

NAN = np.nan
SERVICE = Fact("shop/web-0", "shop/web", "LS", "prod", 2.0)
LOUD = Fact("batch/loud", "batch/jobs", "BE", "batch", 1.0)
STEADY = Fact("batch/steady", "batch/jobs", "BE", "batch", 1.0)


def test_rates_come_from_counters_and_the_nodes_own_clock() -> None:
    grid = Grid.over(0, 9_000, 1_000)
    counter, clock = empty(1, grid), empty(1, grid)
    seconds = np.array([0, 1, 2, 4, 8, 9])
    who, log_ms = np.zeros(6, np.int64), seconds * 1_000
    put(counter, grid, who, log_ms, np.array([0, 500, 1_500, 3_500, 3_600, 100.0]) * 1_000)
    put(clock, grid, who, log_ms, seconds * 1e6)
    found = rates(counter, clock)[0].tolist()
    assert found[:5] == [pytest.approx(NAN, nan_ok=True), 0.5, 1.0, 1.0, 1.0]
    assert found[5:9] == [0.025] * 4
    assert np.isnan(found[9]), "a counter that fell was reset"


def test_a_long_gap_is_a_gap() -> None:
    grid = Grid.over(0, 9_000, 1_000)
    counter = np.full((1, grid.count), NAN)
    counter[0, [0, 9]] = 0.0, 9e6
    assert np.isnan(rates(counter, counter)).all()


def test_levels_hold_until_the_next_or_for_so_long() -> None:
    levels = np.array([[NAN, 1.0, NAN, NAN, 2.0, NAN]])
    assert np.array_equal(held(levels), [[NAN, 1, 1, 1, 2, 2]], equal_nan=True)
    assert np.array_equal(held(levels, 1), [[NAN, 1, 1, NAN, 2, 2]], equal_nan=True)


@given(st.lists(st.floats(-1e6, 1e6) | st.just(NAN), min_size=1, max_size=400), st.integers(2, 60))
@settings(max_examples=150, deadline=None)
def test_thinned_curves_keep_every_high_and_low(values: list[float], most: int) -> None:
    curve = np.array([values])
    steps, points = thin(curve, most)
    assert (
        len(steps) == points.shape[1] <= max(most, len(values) if len(values) <= most else most + 2)
    )
    assert (np.diff(steps) >= 0).all()
    if not np.isnan(curve).all():
        assert np.nanmax(points) == np.nanmax(curve)
        assert np.nanmin(points) == np.nanmin(curve)


def use(loud: list[float], steady: list[float], waiting: list[float]) -> Use:
    nothing = [NAN] * len(waiting)
    return Use(
        "n0", ["a", "b", "c"], [SERVICE, LOUD, STEADY],
        cores=np.array([[1.0] * len(waiting), loud, steady]),
        waiting=np.array([waiting, nothing, nothing]), gib=np.zeros((3, len(waiting))),
    )  # fmt: skip


def test_who_was_busy_when_it_hurt_is_the_first_suspect() -> None:
    beyond = np.array([False] * 30 + [True] * 10)
    found = of_node(use([0.0] * 30 + [6.0] * 10, [2.0] * 40, [0.01] * 30 + [0.2] * 10), beyond)
    assert [one.pod for one in found] == ["batch/loud"], "what never changes explains nothing"
    assert found[0].share_percent == 75
    assert found[0].correlation == 1
    assert found[0].score == 0.75
    assert (found[0].beyond_cores, found[0].calm_cores) == (6, 0)


def test_nobody_is_suspected_where_nothing_happened_or_little_is_known() -> None:
    busy = use([1.0, 2.0] * 20, [2.0] * 40, [0.1, 0.2] * 20)
    assert of_node(busy, np.zeros(40, np.bool_)) == []
    short = use([1.0, 2.0], [2.0, 2.0], [0.1, 0.2])
    assert of_node(short, np.ones(2, np.bool_)) == []
    assert correlation(np.ones(5), np.arange(5.0)) == 0


def test_a_policy_differs_by_its_keys_and_lists_as_a_whole() -> None:
    old = policy.parse("name: default\nsuppress: {threshold_percent: 65}\n", "old")
    new = policy.parse(
        "name: default\nsuppress: {threshold_percent: 95}\n"
        "slo_guard: {enabled: false, objectives: [{workload: shop/web, p99_us: 48000}]}\n",
        "new",
    )
    found = {key: (was, now) for key, was, now in differences(old, new)}
    assert found["suppress.threshold_percent"] == ("65", "95")
    assert found["slo_guard.enabled"] == ("true", "false")
    assert found["slo_guard.objectives"][0] == "[]"
    assert "shop/web" in found["slo_guard.objectives"][1]
    assert len(found) == 3
    assert differences(old, old) == ()
