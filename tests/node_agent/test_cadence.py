"""Which columns are due when, and that a sample stays small whatever a machine can measure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.signals.cadence import Cadence, Turns
from schemas import packed
from schemas.columns import (
    FAST_NODE_COLUMNS,
    FAST_POD_COLUMNS,
    NODE_COLUMNS,
    POD_COLUMNS,
    RARE_MS,
    SLOW_MS,
    SLOW_POD_COLUMNS,
)
from schemas.records import NodeSample

PODS = {name: POD_COLUMNS[name].every_ms for name in SLOW_POD_COLUMNS}
MACHINE = {name: c.every_ms for name, c in NODE_COLUMNS.items() if name not in FAST_NODE_COLUMNS}
TWO_ZONES = {name: each for name, each in PODS.items() if "numa" not in name or name[11] in "01"}


@pytest.mark.parametrize("period_ms", [100, 150, 200, 300, 1000, 2500, 10_000, 60_000])
@pytest.mark.parametrize("columns", [PODS, TWO_ZONES, dict(list(PODS.items())[:3])])
def test_every_column_comes_round_in_time(period_ms: int, columns: dict[str, int]) -> None:
    cadence = Cadence(period_ms, columns)
    latest = dict.fromkeys(columns, 0)
    seen: set[str] = set()
    seconds: list[int] = []
    for sweep in range(max(10, 200_000 // period_ms)):
        now_ms = sweep * period_ms
        second, due, _ = cadence.next()
        assert second or not due
        if second:
            seconds.append(now_ms)
        for name in due:
            assert now_ms - latest[name] <= max(columns[name], period_ms), name
            latest[name] = now_ms
            seen.add(name)
    assert min(b - a for a, b in pairwise(seconds)) >= 1000
    assert seen == set(columns)


@given(
    slow=st.integers(0, 12),
    rare=st.integers(0, 40),
    turn_ms=st.sampled_from([1000, 1050, 1200, 2500, 10_000]),
)
def test_turns_are_in_time_and_as_few_as_can_be(slow: int, rare: int, turn_ms: int) -> None:
    every = {f"s{i}": SLOW_MS for i in range(slow)} | {f"r{i}": RARE_MS for i in range(rare)}
    turns = Turns(every, turn_ms)
    dealt = [turns.next() for _ in range(3 * RARE_MS // turn_ms)]
    for name, each_ms in every.items():
        at = [i for i, due in enumerate(dealt) if name in due]
        assert (at[0] + 1) * turn_ms <= each_ms
        assert all((b - a) * turn_ms <= each_ms for a, b in pairwise(at))
    a_frame = max(1, SLOW_MS // turn_ms)
    frames = max(1, RARE_MS // (a_frame * turn_ms))
    most = -(-(slow + -(-rare // frames)) // a_frame)
    assert max(map(len, dealt), default=0) <= most


def test_at_one_second_a_machine_of_two_zones_sends_one_slow_column_at_a_time() -> None:
    cadence = Cadence(1000, TWO_ZONES)
    turns = [cadence.next()[1] for _ in range(RARE_MS // 1000)]
    assert max(map(len, turns)) == 1
    counts = Counter(name for due in turns for name in due)
    assert all(counts[name] >= RARE_MS // each for name, each in TWO_ZONES.items())


def test_things_of_the_machine_come_and_go() -> None:
    cadence = Cadence(1000, {})
    assert cadence.next() == (True, frozenset(), frozenset())
    cadence.machine_has({"a": SLOW_MS, "b": SLOW_MS})
    dealt = [cadence.next()[2] for _ in range(10)]
    assert Counter(name for due in dealt for name in due) == {"a": 1, "b": 1}
    cadence.machine_has({"b": SLOW_MS})
    assert {name for _ in range(10) for name in cadence.next()[2]} == {"b"}


def test_too_short_a_period_is_refused() -> None:
    with pytest.raises(ValueError, match="the least is 100 ms"):
        Cadence(99, {})


def test_fifty_pods_fit_three_kibibytes_on_a_machine_that_can_measure_everything() -> None:
    """Two zones, resctrl, a PMU, idle scans; each pod column with a pod that has no value."""
    cadence = Cadence(1000, TWO_ZONES)
    machine = {
        name: each for name, each in MACHINE.items() if "numa" not in name or "numa0" in name
    }
    cadence.machine_has(machine)
    pods: list[int | None] = [*range(49), None]
    for _ in range(2 * RARE_MS // 1000):
        _, due, own = cadence.next()
        sample = NodeSample(
            node="node-0001.example.org",
            boot="0" * 32,
            kernel_boot="0" * 32,
            seq=1,
            mono_us=1,
            wall_ms=1,
            period_ms=1000,
            pods_rev=1,
            pods=50,
            node_columns=dict.fromkeys((*FAST_NODE_COLUMNS, *own), 1),
            pod_columns=dict.fromkeys((*FAST_POD_COLUMNS, *due), pods),
        )
        assert len(packed.encode(sample)) <= 3072
