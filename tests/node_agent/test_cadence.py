"""Which columns are due when, and that a sample stays small whatever a machine can measure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.cgroup.handles import Descriptors, NodeFiles
from node_agent.cgroup.layout import Hierarchy, Layout
from node_agent.signals import node_readers, node_sources
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
ONE_ZONE = {name: each for name, each in PODS.items() if "numa" not in name}


@pytest.mark.parametrize("period_ms", [100, 150, 200, 300, 1000, 2500, 10_000, 60_000])
@pytest.mark.parametrize("columns", [PODS, ONE_ZONE, dict(list(PODS.items())[:3])])
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


def test_at_one_second_a_machine_that_can_measure_everything_sends_one_at_a_time() -> None:
    cadence = Cadence(1000, PODS)
    turns = [cadence.next()[1] for _ in range(RARE_MS // 1000)]
    assert max(map(len, turns)) == 1
    counts = Counter(name for due in turns for name in due)
    assert all(counts[name] >= RARE_MS // each for name, each in PODS.items())


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


def test_fifty_pods_fit_three_kibibytes_on_a_machine_that_can_measure_everything(
    tmp_path: Path,
) -> None:
    """Eight zones, resctrl, a PMU, idle scans; each pod column with a pod that has no value."""
    layout = Layout(str(tmp_path), {"memory": Hierarchy(2, str(tmp_path))}, None)
    files = NodeFiles(str(tmp_path), Descriptors(0))
    groups = [source.columns for _, sources in node_sources(layout) for source in sources]
    groups += [reader.columns for reader in node_readers(files)]
    machine = {columns[0]: columns for columns in groups if columns[0] not in FAST_NODE_COLUMNS}
    assert {name for columns in machine.values() for name in columns} == {
        name for name in NODE_COLUMNS if name not in FAST_NODE_COLUMNS
    }
    cadence = Cadence(1000, PODS)
    cadence.machine_has(dict.fromkeys(machine, SLOW_MS))
    pods: list[int | None] = [*range(49), None]
    for _ in range(2 * RARE_MS // 1000):
        _, due, own = cadence.next()
        in_turn = [name for key in own for name in machine[key]]
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
            node_columns=dict.fromkeys((*FAST_NODE_COLUMNS, *in_turn), 1),
            pod_columns=dict.fromkeys((*FAST_POD_COLUMNS, *due), pods),
        )
        assert len(packed.encode(sample)) <= 3072
