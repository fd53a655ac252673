"""The workbench: real work in real groups, measured, stepped, and always cleaned up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups, remove_stale
from node_agent.workbench.online import Delay, Load, Probe, percentile_us
from tests.node_agent.kernel import PREFIX, cores_over, eventually, real_groups
from tests.support import patient

pytestmark = pytest.mark.kernel


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


def directories(groups: Groups) -> list[Path]:
    return [Path(mount) / groups.name for mount in groups.layout.mounts()]


def test_groups_are_in_every_hierarchy_and_gone_after_with_their_processes(tmp_path: Path) -> None:
    with real_groups() as groups:
        path = groups.pod("besteffort", "a")
        greedy = Greedy(path, 2, tmp_path / "counts")
        for mount in groups.layout.mounts():
            assert (Path(mount) / path / "cgroup.procs").read_text().split()
        quota = groups.directory("cpu", groups.be_root) / "cpu.cfs_quota_us"
        if quota.exists():
            quota.write_text("1000")  # a throttled group must not hold the cleaning up
    assert greedy.wait(patient(2)) == -9
    assert not any(directory.exists() for directory in directories(groups))
    greedy.stop()


def test_leftovers_of_a_killed_run_are_removed_and_those_of_a_living_one_kept(
    groups: Groups,
) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    ).stdout.decode()
    leftover = Groups(f"{PREFIX}-{dead.strip()}", groups.layout)
    leftover.pod("online", "x")
    remove_stale(groups.layout, PREFIX)
    assert not any(directory.exists() for directory in directories(leftover))
    assert all(directory.exists() for directory in directories(groups))


def test_greedy_counts_what_it_achieves(groups: Groups, tmp_path: Path) -> None:
    greedy = Greedy(groups.pod("besteffort", "a"), 2, tmp_path / "counts")
    try:
        eventually(lambda: greedy.work_done() > 100, 10, "work")
        before = greedy.work_done()
        assert cores_over(groups, groups.be_root, 0.5) > 0.02  # others may want the machine too
        assert greedy.work_done() > before
    finally:
        greedy.stop()
    assert not greedy.alive


def test_probe_measures_and_backlog_counts(groups: Groups, tmp_path: Path) -> None:
    pod = groups.pod("online", "web")
    probe = Probe(pod, tmp_path / "delays")
    try:
        eventually(lambda: probe.count() > 200, 20, "200 probes")
        seen = probe.since(0)
        assert len(seen) >= 200
        assert [d.mono_us for d in seen] == sorted(d.mono_us for d in seen)
        first = probe.count()
        os.kill(probe._worker.pid, 19)  # SIGSTOP: a stall of 100 probes
        eventually(lambda: _stopped(probe._worker.pid), 5, "the stop")
        from_here = probe.count()
        stalled = cores_over(groups, pod, 0.1)
        os.kill(probe._worker.pid, 18)
        eventually(lambda: probe.count() > from_here + 60, 20, "probes after the stall")
        late = [d.delay_us for d in probe.since(from_here)[1:40]]
        assert min(late) > 20_000  # not only the one that was hit
        assert stalled < 0.05
        assert first <= from_here
    finally:
        probe.stop()


def test_load_steps_by_command_and_by_schedule(groups: Groups) -> None:
    pod = groups.pod("online", "load")
    load = Load(pod, milli=0, schedule=[(0, 100)])
    try:
        eventually(lambda: cores_over(groups, pod, 0.2) > 0.03, 15, "the scheduled step")
        load.set(600)
        eventually(lambda: cores_over(groups, pod, 0.4) > 0.15, 20, "the step up")
        load.set(0)
        eventually(lambda: cores_over(groups, pod, 0.2) < 0.05, 10, "the step down")
    finally:
        load.stop()


def test_percentile_is_nearest_rank_and_never_of_nothing() -> None:
    delays = [Delay(i, i) for i in range(1, 101)]
    assert percentile_us(delays, 990) == 100
    assert percentile_us(delays, 500) == 51
    with pytest.raises(ValueError, match="no delays"):
        percentile_us([], 990)


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
