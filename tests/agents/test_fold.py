"""Rates from pairs, levels as they are, absent is not zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import columns, fold
from agents.columns import Payloads
from agents.fold import rate_milli
from agents.windows import SERIES
from schemas import packed
from schemas.columns import POD_COLUMNS, SLOW_POD_COLUMNS
from schemas.records import NodeSample
from tests.agents.worlds import CAPACITY_MILLI, GIB, WARM, Node, World, best_effort, of, online


def test_a_rate_is_the_pair_over_the_monotonic_interval() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample([1500, 250]))
    assert world.pods(node, "milli") == [-1, -1]
    world.say(node.sample([1500, 250], elapsed_ms=2500), after_ms=100)
    assert world.pods(node, "milli") == [1500, 250]


def test_a_counter_that_fell_gives_no_rate_for_that_interval() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 2, milli=[1500, 250])
    node.cpu_us[0] = 0
    world.say(node.sample([400, 250]))
    assert world.pods(node, "milli") == [1500, 250]  # the last one, with its age
    assert world.pods(node, "milli_ms")[0] < world.pods(node, "milli_ms")[1]
    world.say(node.sample([400, 250]))
    assert world.pods(node, "milli") == [400, 250]


def test_a_rate_never_exceeds_the_online_cpus() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample())
    node.cpu_us[0] += 10**15
    node.busy_us += 10**15
    world.say(node.sample())
    assert world.pods(node, "milli")[0] == CAPACITY_MILLI
    assert world.value(node, "usage")[0] == CAPACITY_MILLI


def test_r3_an_absent_value_is_not_zero_and_grows_old() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 2, milli=[1500, 250])
    gone = {"cpu_usage_us": [None, 10**9]}
    world.say(node.sample([1500, 250], more=gone))
    assert world.value(node, "sums")[fold.ONLINE] == 1500
    for _ in range(3):
        world.say(node.sample([1500, 250], more=gone))
    # Older than silent_after_ms: what it uses is the system's now, for nobody knows better.
    assert world.value(node, "sums")[fold.ONLINE] == 0
    assert world.pods(node, "milli")[0] == 1500


def test_r3_a_missing_column_keeps_the_last_value() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 2, used=[3 * GIB, GIB])
    world.say(node.sample(drop=["memory_used_bytes"]))
    assert world.pods(node, "size") == [3 * GIB, GIB]
    assert world.value(node, "sums")[fold.PODS_B] == 4 * GIB


@pytest.mark.parametrize("column", ["cpu_busy_us", "memory_available_bytes"])
def test_r3_without_the_nodes_own_figure_the_system_is_unknown(column: str) -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 3, system=300)
    before, full = world.value(node, "usage"), world.value(node, "full_ms")
    world.say(node.sample(system=300, drop=[column]))
    assert world.value(node, "usage") == before
    assert world.value(node, "full_ms") == full


def test_an_unknown_pod_set_folds_only_the_node() -> None:
    node = Node()
    world = World(WARM, node)
    world.run(node, 2, milli=[1000, 500])
    node.rev += 1
    node.pods = (online("new"), *node.pods)
    node.cpu_us = [0, *node.cpu_us]
    world.say(node.sample([2000, 1000, 500]))
    assert world.pods(node, "milli") == [1000, 500]
    assert world.value(node, "usage")[0] == 3500 - 0
    assert world.state.counts["unknown_pods"] == 1


def test_a_pod_set_of_the_known_revision_but_another_size_is_unknown() -> None:
    node = Node()
    world = World(WARM, node)
    world.say(node.sample([1, 2, 3], used=[0, 0, 0]))
    assert world.state.counts["unknown_pods"] == 1


def test_extreme_numbers_are_bounded_or_absent() -> None:
    node = Node(pods=(online("a"), best_effort("b")))
    world = World(WARM, node)
    world.say(node.sample())
    extreme = 2**63 - 1
    world.say(
        node.sample(
            more={
                "cpu_usage_us": [extreme, -(2**63)], "memory_used_bytes": [extreme, -5],
                "memory_total_bytes": extreme, "cpu_busy_us": -1,
            }
        )
    )  # fmt: skip
    assert world.pods(node, "milli") == [CAPACITY_MILLI, -1]
    assert world.pods(node, "size") == [GIB, GIB]
    assert of(world.out, "commands") == []


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(-5, 2**40), st.integers(-1, 10**6))
def test_rate_milli_equals_exact_arithmetic(now: int, last: int, elapsed: int, cap: int) -> None:
    (rate,) = rate_milli(*(np.array([v]) for v in (now, last, elapsed, cap))).tolist()
    if now < last or elapsed <= 0:
        assert rate == -1
        return
    exact = min(now - last, fold.LARGEST_DELTA) * 1000 // elapsed
    assert rate == (min(exact, cap) if cap >= 0 else exact)


@given(st.data())
def test_columns_read_side_by_side_equal_columns_read_one_by_one(data: st.DataObject) -> None:
    samples, expected = [], []
    for number in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.sampled_from([0, 1, 3, 64, 65]))
        columns = {
            name: [data.draw(st.one_of(st.none(), st.integers(0, 9))) for _ in range(min(count, 3))]
            + [number] * max(count - 3, 0)
            for name in data.draw(st.lists(st.sampled_from(list(POD_COLUMNS)), unique=True))
        }
        node = {"cpu_busy_us": data.draw(st.one_of(st.none(), st.integers(-5, 5)))}
        said = NodeSample("n", "0" * 32, "0" * 32, 1, 1, 0, 1000, 1, count, node, columns)
        samples.append(packed.PackedSample(packed.encode(said)))
        expected.append((node["cpu_busy_us"], columns.get("memory_used_bytes", [None] * count)))
    payloads = Payloads(samples)
    counts = np.array([sample.pods for sample in samples])
    owner = np.repeat(np.arange(len(samples)), counts)
    place = np.concatenate([np.arange(n) for n in counts])
    values, has = payloads.pod(1, owner, place)
    read = [v if h else None for v, h in zip(values.tolist(), has.tolist(), strict=True)]
    assert read == [value for _, column in expected for value in column]
    busy = [
        v if h else None
        for v, h in zip(payloads.node[:, 0].tolist(), payloads.node_has[:, 0].tolist(), strict=True)
    ]
    assert busy == [value for value, _ in expected]


def test_columns_that_nobody_reads_change_nothing_and_make_no_plan_of_their_own() -> None:
    wanted: dict[str, list[int | None]] = {
        "cpu_usage_us": [5, 6],
        "memory_used_bytes": [7, None],
        "runq_wait_us": [1, 2],
    }
    node: dict[str, int | None] = {"cpu_busy_us": 9, "be_cpu_quota_milli": -1}

    def said(pod_columns: dict[str, list[int | None]]) -> packed.PackedSample:
        sample = NodeSample("n", "0" * 32, "0" * 32, 1, 1, 0, 1000, 1, 2, node, pod_columns)
        return packed.PackedSample(packed.encode(sample))

    plain = said(wanted)
    columns._plans.clear()
    for name in SLOW_POD_COLUMNS:
        payloads = Payloads([said({**wanted, name: [3, None]}), plain])
        owner, place = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        assert payloads.node[0].tolist() == payloads.node[1].tolist()
        for column in range(len(columns.POD_WANTED)):
            values, has = payloads.pod(column, owner, place)
            assert values[:2].tolist() == values[2:].tolist()
            assert has[:2].tolist() == has[2:].tolist()
    assert len(columns._plans) == 1


def test_the_first_second_of_a_new_pod_is_not_the_systems() -> None:
    node = Node(pods=(online("a"),))
    world = World(WARM, node)
    world.run(node, 5, milli=[1000], system=100)
    node.pods, node.rev = (*node.pods, best_effort("b")), 2
    world.know(node)
    world.run(node, 5, milli=[1000, 3000], system=100)
    assert max(world.value(node, "ring")[SERIES.index("system_milli")]) == 100


@pytest.mark.parametrize("column", ["cpu_busy_us", "cpu_usage_us", "memory_used_bytes"])
def test_r3_a_transient_zero_is_neither_a_reset_nor_an_empty_pod(column: str) -> None:
    node = Node(pods=(online("a"), best_effort("b")))
    world = World(WARM, node)
    world.run(node, 5, system=100)
    before = world.value(node, "ring")
    zero = 0 if column == "cpu_busy_us" else [0, 0]
    world.run(node, 1, system=100, more={column: zero})
    world.run(node, 4, system=100)
    after = world.value(node, "ring")
    assert [max(series) for series in after] == [max(series) for series in before]
