"""perf_event_open on this machine's own groups: software events take the same way as cycles."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.cgroup.handles import Descriptors, GroupFiles
from node_agent.signals import perf
from node_agent.signals.base import Pods
from node_agent.signals.perf_event import CYCLES, INSTRUCTIONS, SOFTWARE, GroupCounters, scaled
from schemas.records import PodFact
from tests.node_agent.realgroups import WAITING_SPINNER, RealGroups, real_groups, until
from tests.support import unavailable

CPU_CLOCK, TASK_CLOCK = (SOFTWARE, 0), (SOFTWARE, 1)
CPUS = sorted(os.sched_getaffinity(0))


def test_what_ran_half_the_time_is_doubled() -> None:
    full = struct.pack("<5Q", 2, 1000, 1000, 30, 20)
    half = struct.pack("<5Q", 2, 1000, 500, 15, 10)
    assert scaled(full, 2) == scaled(half, 2) == (30, 20)


def test_what_never_ran_has_no_figure() -> None:
    assert scaled(struct.pack("<5Q", 2, 1000, 0, 0, 0), 2) is None


@pytest.mark.parametrize("data", [b"", bytes(16), bytes(40), struct.pack("<4Q", 1, 1, 1, 5)])
def test_another_form_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="no group of 2 counters"):
        scaled(data, 2)


@pytest.fixture
def groups() -> Iterator[RealGroups]:
    with real_groups("perf") as made:
        if made.layout.perf_event is None:
            unavailable("no hierarchy that perf counts by is mounted")
        made.make("web")
        yield made


def held_open() -> set[Path]:
    return {path for path in Path("/proc/self/fd").iterdir() if path.exists()}


def directory(groups: RealGroups) -> str:
    return f"{groups.layout.perf_event}/{groups.top}/web"


@pytest.mark.kernel
def test_a_groups_own_time_is_counted_on_all_cpus(groups: RealGroups) -> None:
    counters = GroupCounters(directory(groups), CPUS, (TASK_CLOCK, CPU_CLOCK))
    try:
        assert counters.read() in (None, (0, 0))
        child = groups.run(f"{groups.top}/web", WAITING_SPINNER)
        ran = Path(f"/proc/{child.pid}/schedstat")
        until(lambda: int(ran.read_text().split()[0]) > 200_000_000, "0.2 core seconds used")
        counted = counters.read()
        assert counted is not None
        assert all(each_ns > 100_000_000 for each_ns in counted)
    finally:
        counters.close()


@pytest.mark.kernel
def test_descriptors_are_given_back_also_when_a_counter_is_refused(groups: RealGroups) -> None:
    before = held_open()
    nowhere = (SOFTWARE, 9999)
    with pytest.raises(OSError, match="perf_event_open"):
        GroupCounters(directory(groups), CPUS, (TASK_CLOCK, nowhere))
    counters = GroupCounters(directory(groups), CPUS, (TASK_CLOCK, CPU_CLOCK))
    assert len(held_open() - before) == 2 * len(CPUS)
    counters.close()
    assert held_open() == before


def test_a_directory_that_is_no_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="perf_event_open") as refused:
        GroupCounters(str(tmp_path), CPUS, (TASK_CLOCK,))
    assert refused.value.errno in (errno.EBADF, errno.EINVAL)


@pytest.mark.kernel
def test_hardware_counters_count_or_are_absent_with_a_reason(groups: RealGroups) -> None:
    files = GroupFiles(groups.layout, f"{groups.top}/web", Descriptors(0))
    pods = Pods([files], [PodFact("web", "web", qos="LS")])
    signal = perf.Perf(groups.layout)
    try:
        signal.visit(pods, 0, None)
        groups.run(f"{groups.top}/web", WAITING_SPINNER)
        if signal.reason:
            assert not perf.there("")
            assert signal.values("cpu_cycles", pods) == [None]
            with pytest.raises(OSError, match="perf_event_open"):
                GroupCounters(directory(groups), CPUS, (CYCLES, INSTRUCTIONS))
            return
        at_us = perf.WINDOW_US

        def counted() -> bool:
            nonlocal at_us
            signal.visit(pods, at_us, None)
            at_us += perf.WINDOW_US
            return None not in signal.values("cpu_cycles", pods)

        until(counted, "cycles counted")
        cycles, instructions = (signal.values(name, pods)[0] for name in perf.COLUMNS)
        assert cycles
        assert instructions
    finally:
        signal.close()
