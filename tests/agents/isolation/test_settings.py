"""Settings that follow from class and policy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation import (
    block_io,
    core_sched,
    group_identity,
    network,
    oom,
    resctrl,
    system_daemons,
    watermark,
)
from agents.isolation.by_class import CLASSES, SYSTEM, Setting, codes
from agents.table import ABSENT, Ints
from schemas.policy import Policy, parse

QOS = codes(["LSE", "LSR", "LS", "BE", "SYSTEM"])
OFF = Policy()
ON = parse(
    """
resctrl: {lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true}}
memory_qos: {lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true}}
group_identity:
  {lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true}, system: {enabled: true}}
oom: {lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true, kill_group: true},
  system: {enabled: true}}
block_io: {be: {enabled: true, weight: 5, read_iops: 300}, ls: {enabled: true, weight: 9000}}
network: {total_mbit_per_s: 10000, be: {enabled: true, egress_max_percent: 30},
  ls: {enabled: true, egress_min_percent: 50}}
system_daemons: {enabled: true, cpu_limit_percent: 20, memory_limit_percent: 10,
  memory_throttle_percent: 90}
""",
    "test",
)
CORE_ON = parse("core_sched: {enabled: true}", "test")


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def every(qos: Ints, policy: Policy) -> dict[str, Setting]:
    """All settings of pods by name."""
    parts: dict[str, Any] = {
        "oom": oom.settings(qos, policy.oom),
        "io": block_io.settings(qos, policy.block_io),
        "wmark": watermark.settings(qos, policy.memory_qos),
    }
    found = {
        f"{part}.{name}": getattr(settings, name)
        for part, settings in parts.items()
        for name in settings.__slots__
    }
    found["bvt"] = group_identity.settings(qos, policy.group_identity)
    found["classid"] = network.class_ids(qos, policy.network)
    found["group"] = resctrl.group_of(qos, policy.resctrl)
    numbers = np.arange(len(qos))
    alone = np.zeros(len(qos), dtype=np.bool_)
    found["core"] = core_sched.cookies(qos, numbers * 0 - 1, alone, numbers, policy.core_sched)
    return found


def test_the_default_policy_manages_nothing() -> None:
    assert not any(setting.managed.any() for setting in every(QOS, OFF).values())
    assert network.bandwidths(OFF.network) == []
    assert group_identity.tier_settings(OFF.group_identity) == {}
    daemons = system_daemons.limits(ints(8000), ints(1 << 34), OFF.system_daemons)
    assert not daemons.cpu_milli.managed.any()
    assert not daemons.memory_max_bytes.managed.any()
    assert not daemons.memory_high_bytes.managed.any()


@given(st.permutations(range(len(CLASSES))), st.integers(0, 12))
def test_a_pods_settings_are_its_own_whatever_stands_beside_it(order: list[int], more: int) -> None:
    rows = ints(*order, *[order[0]] * more)
    whole = every(QOS, ON)
    for name, setting in every(QOS[rows], ON).items():
        assert (setting.value == whole[name].value[rows]).all(), name
        assert (setting.managed == whole[name].managed[rows]).all(), name


def test_values_of_each_class() -> None:
    found = every(QOS, ON)
    assert found["bvt"].value.tolist() == [2, 2, 2, -1, 0]
    assert group_identity.tier_settings(ON.group_identity) == {0: 0, 1: 2, 2: -1}
    assert found["oom.score_adj"].value.tolist() == [-997, -997, 0, 1000, -998]
    assert found["oom.kill_group"].value.tolist() == [0, 0, 0, 1, 0]
    assert found["io.weight"].managed.tolist() == [False, False, True, True, False]
    assert found["io.weight"].value.tolist() == [100, 100, 9000, 5, 100]
    assert found["io.read_iops"].value.tolist() == [ABSENT, ABSENT, ABSENT, 300, ABSENT]
    assert found["wmark.min_adj"].value.tolist() == [-25, -25, -25, 50, 0]
    assert found["wmark.ratio_percent"].managed.tolist() == [True, True, True, True, False]
    assert found["classid"].managed.tolist() == [True, True, True, True, False]
    assert [hex(one) for one in found["classid"].value.tolist()] == [
        "0x10003", "0x10003", "0x10003", "0x10004", "0x10002",
    ]  # fmt: skip


def test_bandwidth_of_each_class() -> None:
    online, be = network.bandwidths(ON.network)
    assert (online.turn, online.egress_min, online.egress_max) == (1, 5 * 10**9, 10**10)
    assert (be.turn, be.egress_min, be.egress_max) == (2, 8000, 3 * 10**9)
    assert be.ingress_max == 10**10
    for one in (online, be):
        assert 0 < one.egress_min <= one.egress_max
        assert 0 < one.ingress_min <= one.ingress_max


def cookie(qos: Ints, group: Ints, exclusive: list[bool]) -> list[int]:
    numbers = np.arange(len(qos))
    found = core_sched.cookies(qos, group, np.array(exclusive), numbers, CORE_ON.core_sched)
    return [int(one) for one in found.value]


def test_who_shares_a_core() -> None:
    alone = [False] * 5
    lse, lsr, ls, be, system = cookie(QOS, ints(*[-1] * 5), alone)
    assert lse == lsr
    assert len({lsr, ls, be, system}) == 4
    assert system == 0
    same = cookie(QOS, ints(*[7] * 5), alone)
    assert same[0] == same[1] == same[2] != same[3], "expellers and the rest do not mix"
    assert same[4] == 0
    apart = cookie(QOS, ints(*[7] * 5), [True] * 5)
    assert len(set(apart)) == 5


PODS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-1, 3), st.booleans()), min_size=2, max_size=12
)


@given(PODS)
def test_best_effort_never_shares_a_core_with_an_online_pod(
    pods: list[tuple[int, int, bool]],
) -> None:
    qos, group, exclusive = (np.array(column) for column in zip(*pods, strict=True))
    found = cookie(qos, group, exclusive.tolist())
    online = {one for one, q in zip(found, qos.tolist(), strict=True) if q < 3}
    best_effort = {one for one, q in zip(found, qos.tolist(), strict=True) if q == 3}
    assert not online & best_effort
    assert all((one == 0) == (q == SYSTEM) for one, q in zip(found, qos.tolist(), strict=True))


@given(
    st.lists(st.tuples(st.integers(-1, 4_096_000), st.integers(-1, 1 << 50)), min_size=1),
    st.integers(1, 100), st.integers(1, 100),
)  # fmt: skip
def test_limits_of_daemons_are_within_the_node(
    nodes: list[tuple[int, int]], percent: int, throttle: int
) -> None:
    rule = parse(
        f"system_daemons: {{enabled: true, cpu_limit_percent: {percent}, memory_limit_percent: "
        f"{percent}, memory_throttle_percent: {throttle}}}", "test",
    ).system_daemons  # fmt: skip
    milli, size = np.array(nodes, dtype=np.int64).T
    found = system_daemons.limits(milli, size, rule)
    cpu, high, most = found.cpu_milli, found.memory_high_bytes, found.memory_max_bytes
    assert (cpu.value[cpu.managed] <= milli[cpu.managed]).all()
    assert (cpu.value[cpu.managed] > 0).all()
    assert (most.value[most.managed] <= size[most.managed]).all()
    assert (high.value[high.managed] <= most.value[high.managed]).all()
    assert not cpu.managed[milli <= 0].any()
    assert not most.managed[size <= 0].any()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_known_by_its_name(name: Any) -> None:
    assert codes([name]).tolist() == [CLASSES.index(name)]
