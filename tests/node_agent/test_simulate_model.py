"""The model: counters grow, quota suppresses, suppressed work finishes later, collisions show."""

from __future__ import annotations

import numpy as np
import pytest

from node_agent.simulate import fleet
from node_agent.simulate.model import Model
from node_agent.simulate.trace import Trace, load
from schemas.columns import NODE_COLUMNS, POD_COLUMNS

SECOND_US = 1_000_000
ALL = slice(0, None)


def flat(share: float) -> Trace:
    """A trace in which everybody always uses ``share`` of the request."""
    one = np.full((60, 288), share)
    return Trace(one, one.copy(), 300)


def build(trace: Trace, nodes: int = 4) -> Model:
    return Model(fleet.build(nodes, 20, 7, 60), trace)


def seconds_until_done(model: Model, row: int, slot: int) -> int:
    for second in range(1, 1000):
        model.step(ALL, SECOND_US, float(second))
        if model.done_us[row, slot] >= model.work_us[row, slot]:
            return second
    pytest.fail("never done")


def test_counters_only_grow_and_levels_stay_possible() -> None:
    model = build(load("azure"))
    model.place(0, 0, 4000, 10**12, 2 << 30)
    counters = [("node", n) for n in model.node if NODE_COLUMNS[n].kind == "counter"]
    counters += [("pod", n) for n in model.pod if POD_COLUMNS[n].kind == "counter"]
    before = {each: getattr(model, each[0])[each[1]].copy() for each in counters}
    for second in range(200):
        model.step(ALL, SECOND_US, second * 60.0)
        for each, old in before.items():
            now = getattr(model, each[0])[each[1]]
            assert np.all(now >= old), each
            before[each] = now.copy()
        total = model.node["memory_total_bytes"]
        assert np.all(model.node["memory_available_bytes"] <= total)
        assert np.all(model.node["memory_available_bytes"] >= 0)
    busy = before["node", "cpu_busy_us"]
    assert np.all(busy <= 200 * SECOND_US // 1000 * model.fleet.cpu_milli)
    pods = model.pod["cpu_usage_us"].sum(axis=1)
    assert np.all(pods <= busy)


def test_suppressed_work_uses_less_and_finishes_later() -> None:
    free, held = build(flat(0.1)), build(flat(0.1))
    for model in (free, held):
        model.place(0, 0, 4000, 40 * SECOND_US, 1 << 30)
    held.allow_milli[0] = 1000
    assert seconds_until_done(free, 0, 0) == 10
    assert seconds_until_done(held, 0, 0) == 40
    assert held.node["be_cpu_usage_us"][0] == 40 * SECOND_US
    assert held.node["be_cpu_throttled_us"][0] == pytest.approx(40 * SECOND_US * 0.75)
    assert free.node["be_cpu_throttled_us"][0] == 0


def test_the_allowance_is_shared_by_what_is_wanted() -> None:
    model = build(flat(0.1))
    model.place(0, 0, 3000, 10**12, 1 << 30)
    model.place(0, 1, 1000, 10**12, 1 << 30)
    model.allow_milli[0] = 2000
    model.step(ALL, SECOND_US, 1.0)
    assert model.got_us[0, :2].tolist() == [1_500_000, 500_000]


def test_an_ended_pod_uses_nothing_and_frees_its_memory_but_not_its_slot() -> None:
    model = build(flat(0.1))
    model.place(1, 2, 2000, 10**12, 4 << 30)
    for second in range(60):
        model.step(ALL, SECOND_US, float(second))
    column = model.fleet.online_pods + 2
    assert model.pod["memory_used_bytes"][1, column] == pytest.approx(4 << 30, rel=0.01)
    full = int(model.node["memory_available_bytes"][1])
    used = int(model.pod["cpu_usage_us"][1, column])
    model.end(1, 2)
    model.step(ALL, SECOND_US, 61.0)
    assert model.pod["cpu_usage_us"][1, column] == used
    assert model.node["memory_available_bytes"][1] - full > 3 << 30
    assert model.present[1, 2]
    with pytest.raises(AssertionError, match="taken"):
        model.place(1, 2, 1, 1, 1)
    model.free(1, 2)
    model.place(1, 2, 1, 1, 1)
    assert model.pod["cpu_usage_us"][1, column] == 0


def test_collision_raises_wait_and_pressure_of_online_pods_and_suppression_ends_it() -> None:
    def waits(allow_milli: int) -> tuple[int, int]:
        model = build(flat(0.9))
        for slot in range(4):
            model.place(0, slot, 16_000, 10**12, 1 << 30)
        model.allow_milli[0] = allow_milli
        model.step(ALL, SECOND_US, 1.0)
        online = slice(0, model.fleet.online_pods)
        return (
            int(model.pod["runq_wait_us"][0, online].sum()),
            int(model.pod["psi_cpu_some_us"][0, online].max()),
        )

    free, held = waits(-1), waits(100)
    assert free[0] > 5 * held[0]
    assert free[1] > 5 * held[1]


def test_a_throttled_group_drags_the_nodes_pressure_but_not_the_online_pods() -> None:
    model = build(flat(0.1))
    model.place(0, 0, 8000, 10**12, 1 << 30)
    model.allow_milli[0] = 80
    model.step(ALL, SECOND_US, 1.0)
    assert model.node["psi_cpu_some_us"][0] > 900_000
    online = slice(0, model.fleet.online_pods)
    assert model.pod["psi_cpu_some_us"][0, online].max() < 20_000


def test_steps_by_slices_are_steps_of_all() -> None:
    whole, parts = build(load("google")), build(load("google"))
    for second in range(5):
        whole.step(slice(0, 4), SECOND_US, second * 60.0)
        parts.step(slice(0, 1), SECOND_US, second * 60.0)
        parts.step(slice(1, 4), SECOND_US, second * 60.0)
    for name in whole.pod:
        assert np.array_equal(whole.pod[name], parts.pod[name])


def test_a_fleet_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed"):
        fleet.build(0, 50, 0, 60)
    with pytest.raises(ValueError, match="allowed"):
        fleet.build(1, 1, 0, 60)
