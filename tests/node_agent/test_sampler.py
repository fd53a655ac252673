"""The whole collector over fixture kernels: golden output, cadence, faults."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from node_agent.cgroup.layout import detect
from node_agent.discovery import Discovery
from node_agent.sampler import Sampler
from schemas import packed
from schemas.columns import FAST_POD_COLUMNS, SLOW_POD_COLUMNS
from schemas.records import NodeSample
from tests.node_agent import kernels
from tests.node_agent.kernels import KERNELS, StepClock

POD_A = "kubepods/burstable/pod8c1d2e3f405162738495a6b7c8d9e0f1"  # index 2 of v1-centos


class Machine:
    """A copy of a fixture kernel with a sampler on it."""

    def __init__(
        self, root: Path, kernel: str, period_ms: int = 1000, descriptors: int | None = None
    ) -> None:
        shutil.copytree(KERNELS / kernel, root / kernel)
        self.root = root / kernel
        self.clock = StepClock()
        self.layout = detect(str(self.root))
        self.source = Discovery("n", self.layout, first_rev=1)
        self.sampler = Sampler(
            self.layout,
            self.source,
            "n",
            self.clock,
            period_ms=period_ms,
            descriptors=descriptors,
        )

    def sweep(self) -> NodeSample:
        sample = self.sampler.sweep()
        self.clock.step(sample.period_ms)
        return sample

    def file(self, name: str, group: str = POD_A) -> Path:
        place = self.layout.place(name, group)
        assert place is not None
        return Path(place.path)


@pytest.mark.parametrize("kernel", kernels.names())
def test_golden(kernel: str) -> None:
    found = kernels.render(kernels.collect(KERNELS / kernel))
    assert found.splitlines() == kernels.golden(kernel).read_text().splitlines()


@pytest.mark.parametrize("kernel", kernels.names())
def test_a_sample_survives_the_wire(tmp_path: Path, kernel: str) -> None:
    sample = Machine(tmp_path, kernel).sweep()
    assert packed.decode(packed.encode(sample)) == sample


def test_at_100_ms_the_dear_files_are_left_out_nine_times_of_ten(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v1-centos", period_ms=100)
    samples = [machine.sweep() for _ in range(20)]
    fast = {"cpu_usage_us", "cpu_throttled_us", "psi_cpu_some_us", "runq_wait_us"}
    for index, sample in enumerate(samples):
        if index % 10 == 0:
            assert set(sample.pod_columns) >= set(FAST_POD_COLUMNS)
            assert len(set(sample.pod_columns) & set(SLOW_POD_COLUMNS)) <= 1
            assert "oom_kills" in sample.node_columns
        else:
            assert set(sample.pod_columns) == fast
            assert "oom_kills" not in sample.node_columns
    assert machine.sampler.stats.signals["memory_stat"].sweeps == 2


def test_a_sweep_between_two_periods_has_memory_and_takes_nobodys_turn(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v1-centos", period_ms=100)
    machine.sweep()
    extra = machine.sampler.sweep(extra=True)
    assert extra.seq == 2
    assert set(extra.pod_columns) == set(FAST_POD_COLUMNS)
    assert "be_memory_limit_bytes" in extra.node_columns
    slow = [set(machine.sweep().pod_columns) & set(SLOW_POD_COLUMNS) for _ in range(10)]
    assert [len(names) for names in slow] == [0] * 9 + [1]


def test_identity_and_order(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-ubuntu")
    first, second = machine.sweep(), machine.sweep()
    assert (first.seq, second.seq) == (1, 2)
    assert second.mono_us - first.mono_us == 1_000_000
    assert first.boot == second.boot != Machine(tmp_path / "again", "v2-ubuntu").sampler.boot
    assert len(bytes.fromhex(first.boot)) == len(bytes.fromhex(first.kernel_boot)) == 16


def test_cpus_added_between_two_samples_make_another_revision(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-crio")
    first = machine.sweep()
    (machine.root / "sys/devices/system/cpu/online").write_text("0-7\n")
    topology = machine.root / "sys/devices/system/cpu/cpu6/topology"
    shutil.copytree(topology, topology.parents[1] / "cpu7/topology")
    machine.clock.step(1000)
    second = machine.sweep()
    assert machine.sampler.census is not None
    record = machine.sampler.census.record
    assert (first.pods_rev, second.pods_rev, record.pods_rev) == (1, 2, 2)
    assert record.cpu_capacity_milli == 8000
    assert record.topology is not None
    assert record.topology.cpu == tuple(range(8))
    assert [zone.cpu_milli for zone in record.zones] == [4000, 4000, 0]


def test_a_step_of_the_wall_clock_moves_nothing_but_itself(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-ubuntu")
    first = machine.sweep()
    machine.clock.wall -= 7_200_000
    second = machine.sweep()
    assert second.mono_us - first.mono_us == 1_000_000
    assert second.wall_ms - first.wall_ms == 1000 - 7_200_000


def test_dropped_samples_are_reported_once_the_outbox_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-ubuntu")
    assert "samples_dropped" not in machine.sweep().node_columns
    machine.sampler.samples_dropped = 4
    assert machine.sweep().node_columns["samples_dropped"] == 4


def test_a_pod_that_goes_half_way_has_no_value_at_all(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v1-centos", descriptors=0)  # opened for each read
    machine.sweep()
    shutil.rmtree(machine.file("memory_stat").parent)  # usage and cpu.stat are still there
    sample = machine.sweep()
    assert sample.pods == 3
    for name, values in sample.pod_columns.items():
        assert values[2] is None, name
    assert sample.pod_columns["cpu_usage_us"][:2] == [10_000_000, 9_100_000]
    assert machine.sampler.stats.vanished == 1
    shutil.rmtree(machine.file("cpu_usage").parent)
    machine.clock.step(1000)
    sample = machine.sweep()
    assert (sample.pods, sample.pods_rev) == (2, 2)
    assert len(sample.pod_columns["cpu_usage_us"]) == 2


@pytest.mark.parametrize("descriptors", [0, 7, 1000])
def test_short_of_descriptors_the_figures_are_the_same(tmp_path: Path, descriptors: int) -> None:
    machine = Machine(tmp_path, "v2-ubuntu", descriptors=descriptors)
    full = Machine(tmp_path / "full", "v2-ubuntu")
    for _ in range(3):
        few, many = machine.sweep(), full.sweep()
        assert few.node_columns == many.node_columns
        assert few.pod_columns == many.pod_columns
    assert machine.sampler.stats.descriptors_kept <= descriptors
    assert (machine.sampler.stats.descriptor_shortfalls > 0) == (descriptors < 1000)


def test_descriptors_that_others_took_are_done_without(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-ubuntu", descriptors=1000)
    full = Machine(tmp_path / "full", "v2-ubuntu")
    many = [full.sweep() for _ in range(8)][-1]
    full.sampler.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    free = [number for number in range(len(used) + 20) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[14], hard))
    try:
        few = [machine.sweep() for _ in range(8)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    stats = machine.sampler.stats
    assert stats.descriptor_shortfalls > 0
    assert any(signal.errors for signal in stats.signals.values()), "it was not short at all"
    assert all(signal.ok for signal in stats.signals.values())
    assert (few[-1].node_columns, few[-1].pod_columns) == (many.node_columns, many.pod_columns)
    machine.sampler.close()


def test_one_broken_signal_harms_no_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v1-centos")
    whole = machine.sweep()
    machine.file("memory_stat").write_text("cache 0\ntotal_inactive_anon many\n")
    (machine.root / "proc/stat").write_text("gibberish\n")
    sample = machine.sweep()
    assert sample.node_columns["cpu_busy_us"] is None
    assert sample.node_columns["memory_total_bytes"] == 16656900096
    assert sample.pod_columns["memory_used_bytes"] == [None, 41947136, None]
    assert sample.pod_columns["cpu_usage_us"] == whole.pod_columns["cpu_usage_us"]
    stats = machine.sampler.stats.signals
    assert (stats["memory_stat"].errors, stats["node_cpu"].errors) == (1, 1)
    assert not stats["memory_stat"].ok
    assert "ValueError" in stats["memory_stat"].last_error
    assert stats["cpu_usage"].ok
    (machine.root / "proc/stat").write_text("cpu 1 0 0 5 0 0 0 0\n")
    assert machine.sweep().node_columns["cpu_busy_us"] == 10_000
    assert stats["node_cpu"].ok


def test_pods_come_and_go(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v2-ubuntu")
    machine.sweep()
    kept = machine.sampler.stats.descriptors_kept
    base = machine.file("cpu_usage", "kubepods.slice").parent
    pod = base / "kubepods-pod2c2c2c2c_0b0b_0c0c_0d0d_0e0e0e0e0e0e.slice"
    shutil.copytree(pod, base / "kubepods-pod00000000_0b0b_0c0c_0d0d_0e0e0e0e0e0e.slice")
    machine.clock.step(1000)
    sample = machine.sweep()
    assert (sample.pods, sample.pods_rev) == (4, 2)
    assert sample.pod_columns["cpu_usage_us"] == [55, 6999000, 123456789, 55]
    more = machine.sampler.stats.descriptors_kept
    assert more > kept
    shutil.rmtree(base / "kubepods-pod00000000_0b0b_0c0c_0d0d_0e0e0e0e0e0e.slice")
    machine.clock.step(1000)
    assert machine.sweep().pods == 3
    assert machine.sampler.stats.descriptors_kept < more
    machine.sampler.close()
    machine.sweep()
    machine.sampler.close()


def test_what_is_absent_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(tmp_path, "v1-centos")
    with caplog.at_level("INFO"):
        for _ in range(25):  # two times ten minutes
            machine.sweep()
            machine.clock.step(60_000)
    lines = [record.message for record in caplog.records if "proc/pressure/cpu" in record.message]
    assert lines == ["proc/pressure/cpu is absent (not_built); what it fills stays empty"]


def test_costs_are_measured(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "v1-centos")
    machine.sweep()
    stats = machine.sampler.stats
    assert stats.sweep_cost_us > 0
    assert stats.signals["cpu_usage"].cost_us_total > 0
    assert stats.signals["cpu_usage"].reads == 3
    assert stats.signals["node_psi"].absent == 3
