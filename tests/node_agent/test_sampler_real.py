"""The sampler on the control groups of this machine's own kernel."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.discovery import Discovery
from node_agent.sampler import Sampler
from schemas.columns import FAST_NODE_COLUMNS, RARE_MS
from schemas.records import NodeSample
from tests.node_agent.kernels import StepClock
from tests.node_agent.realgroups import (
    DEADLINE_S,
    WAITING_SPINNER,
    RealGroups,
    real_groups,
    sweep_leftovers,
    until,
)
from tests.support import unavailable

MIB = 1 << 20
A_MINUTE = RARE_MS // 1000  # sweeps in which every column has its turn
HOLD_MEMORY = """
import sys
sys.stdin.readline()
held = bytearray(b"x" * (48 << 20))
with open({path!r}, "wb") as file:
    file.write(bytes(64 << 20))
    file.flush()
    import os
    os.fsync(file.fileno())
print("held", flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.kernel


class Bench:
    """Real groups, and a sampler over them whose clock the test sets."""

    def __init__(self, groups: RealGroups) -> None:
        self.groups = groups
        self.clock = StepClock()
        source = Discovery(
            "n",
            groups.layout,
            first_rev=1,
            roots=(f"{groups.top}/*/*",),
            be_root=f"{groups.top}/besteffort",
            kubernetes=False,
        )
        self.sampler = Sampler(groups.layout, source, "n", self.clock)

    def sweep(self) -> NodeSample:
        self.clock.step(1000)
        return self.sampler.sweep()

    def slow(self, name: str, index: int) -> int | None:
        """A slow column of one pod, as soon as its turn comes."""
        for _ in range(A_MINUTE):
            sample = self.sweep()
            if name in sample.pod_columns:
                return sample.pod_columns[name][index]
        raise AssertionError(f"{name} had no turn")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with real_groups("sampler") as groups:
        groups.make("besteffort/job")
        groups.make("online/web")
        bench = Bench(groups)
        yield bench
        bench.sampler.close()


JOB, WEB = 0, 1  # order by uid


def test_cpu_usage_of_a_real_spinner(bench: Bench) -> None:
    child = bench.groups.run(f"{bench.groups.top}/online/web", WAITING_SPINNER)
    ran = Path(f"/proc/{child.pid}/schedstat")

    def used_us() -> int:
        return bench.sweep().pod_columns["cpu_usage_us"][WEB] or 0

    def bounded() -> tuple[int, int, int]:
        """The kernel's own figure before, the sampler's, the kernel's own figure after."""
        before = int(ran.read_text().split()[0]) // 1000
        return before, used_us(), int(ran.read_text().split()[0]) // 1000

    low, begin, high = bounded()
    until(lambda: used_us() - begin > 300_000, "0.3 core seconds used")
    low_later, end, high_later = bounded()
    tick_us = 10_000  # the kernel books a running thread at ticks
    assert low_later - high - 2 * tick_us <= end - begin <= high_later - low + 2 * tick_us
    assert bench.sweep().pod_columns["cpu_usage_us"][JOB] == 0


def test_throttling_and_quota_of_the_best_effort_root(bench: Bench) -> None:
    root = f"{bench.groups.top}/besteffort"
    assert bench.sweep().node_columns["be_cpu_quota_milli"] == -1
    bench.groups.limit_cpu(root, 10_000)
    bench.groups.run(f"{root}/job", WAITING_SPINNER)
    until(
        lambda: bench.sweep().node_columns["be_cpu_throttled_us"], "the best-effort root throttled"
    )
    throttled = bench.sweep()
    assert throttled.node_columns["be_cpu_quota_milli"] == 100
    assert throttled.pod_columns["cpu_throttled_us"] == [0, 0], "the quota is the root's own"
    bench.groups.limit_cpu(f"{root}/job", 5_000)
    until(lambda: (bench.sweep().pod_columns["cpu_throttled_us"][JOB] or 0) > 0, "pod throttled")
    until(lambda: bench.slow("cpu_throttled_periods", JOB), "periods counted")
    used = bench.sweep().node_columns["be_cpu_usage_us"]
    assert used is not None
    assert used > 0


def test_run_queue_wait_grows_under_contention_and_not_without(bench: Bench) -> None:
    cpu = min(os.sched_getaffinity(0))
    for _ in range(2):
        bench.groups.run(f"{bench.groups.top}/online/web", WAITING_SPINNER, cpu=cpu)

    def waited_us() -> int:
        return bench.sweep().pod_columns["runq_wait_us"][WEB] or 0

    until(lambda: waited_us() > 200_000, "0.2 s waited by two spinners on one CPU")
    bench.groups.stop()
    after_us = waited_us()
    assert after_us >= 200_000, "the end of its threads must not lower a counter"
    assert waited_us() == after_us
    assert bench.sweep().pod_columns["runq_wait_us"][JOB] is None, "best effort waits by order"


def test_pressure_of_the_group_itself(bench: Bench) -> None:
    if bench.groups.layout.unified is None or not Path("/proc/pressure/cpu").exists():
        unavailable("no pressure stall information (CONFIG_PSI, cgroup2 mount)")
    cpu = min(os.sched_getaffinity(0))
    for _ in range(2):
        bench.groups.run(f"{bench.groups.top}/online/web", WAITING_SPINNER, cpu=cpu)
    until(lambda: (bench.sweep().pod_columns["psi_cpu_some_us"][WEB] or 0) > 50_000, "pressure")
    assert bench.sweep().pod_columns["psi_cpu_some_us"][JOB] == 0
    for name in ("psi_cpu_some_us", "psi_memory_some_us", "psi_memory_full_us", "psi_io_some_us"):
        assert bench.sweep().node_columns[name] is not None


def test_memory_in_use_and_page_cache_are_apart(bench: Bench, tmp_path: Path) -> None:
    code = HOLD_MEMORY.format(path=str(tmp_path / "cache"))
    child = bench.groups.run(f"{bench.groups.top}/online/web", code)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"

    def used() -> int:
        return bench.sweep().pod_columns["memory_used_bytes"][WEB] or 0

    until(lambda: used() >= 48 * MIB, "held memory in use")
    assert used() < 80 * MIB, "page cache counted as memory in use"
    current, file = bench.slow("memory_current_bytes", WEB), bench.slow("memory_file_bytes", WEB)
    assert current is not None
    assert file is not None
    if bench.slow("memory_shmem_bytes", WEB) == 0:  # a tmpfs is memory in use, and no cache
        assert file >= 60 * MIB
        assert current >= used() + 60 * MIB
    assert bench.slow("memory_limit_bytes", WEB) == -1
    assert bench.sweep().pod_columns["memory_used_bytes"][JOB] == 0


EAT = """
import sys
sys.stdin.readline()
held = []
while True:
    held.append(bytearray(b"x" * (4 << 20)))
"""


def test_a_kill_by_the_kernel_is_told_at_once_and_of_the_right_pod(bench: Bench) -> None:
    groups = bench.groups
    if groups.layout.hierarchy("memory") is None:
        unavailable("no memory controller is mounted")
    assert bench.slow("oom_kills", WEB) == 0
    groups.write("memory_limit", f"{groups.top}/online/web", f"{32 * MIB}")
    child = groups.run(f"{groups.top}/online/web", EAT)
    assert child.wait(DEADLINE_S) == -signal.SIGKILL

    def killed() -> list[int | None] | None:
        return bench.sweep().pod_columns.get("oom_kills")

    assert until(killed, "the kill in a sample") == [0, 1]


OWN_NETWORK = """
import ctypes, socket, subprocess, sys
sys.stdin.readline()
assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0  # CLONE_NEWNET
for words in ("add v0 type veth peer name v1", "set v0 up", "set v1 up"):
    subprocess.run(["ip", "link", *words.split()], check=True)
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("v0", 0))
    print("ready", flush=True)
    while sys.stdin.readline():
        for _ in range(100):
            raw.send(bytes(12) + b"\\x88\\xb5" + bytes(986))
        print("sent", flush=True)
"""


@pytest.mark.only_outside("makes a pair of veth, which the machine of test-vm has no module of")
def test_traffic_of_a_pod_in_a_network_of_its_own(bench: Bench) -> None:
    if shutil.which("ip") is None:
        unavailable("no `ip` to make a network with")
    groups = bench.groups
    child = groups.run(f"{groups.top}/online/web", OWN_NETWORK)
    groups.run(f"{groups.top}/besteffort/job", WAITING_SPINNER)  # on the machine's network
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"ready\n"
    for _ in range(A_MINUTE):
        bench.sweep()
    before = [bench.slow(name, WEB) or 0 for name in ("net_receive_bytes", "net_transmit_bytes")]
    child.stdin.write(b"go\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"sent\n"
    for _ in range(A_MINUTE):
        bench.sweep()
    after = [bench.slow(name, WEB) or 0 for name in ("net_receive_bytes", "net_transmit_bytes")]
    assert [b - a >= 100 * 1000 for a, b in zip(before, after, strict=True)] == [True, True]
    assert bench.slow("net_receive_bytes", JOB) is None


def test_disks_take_time_for_what_is_written(bench: Bench, tmp_path: Path) -> None:
    def writes() -> tuple[int, int] | None:
        node = bench.sweep().node_columns
        found = node.get("disk_writes"), node.get("disk_write_us")
        return None if None in found else found  # type: ignore[return-value]

    before = next((w for w in (writes() for _ in range(10)) if w), None)
    if before is None:
        unavailable("this machine has no disk of its own")
    with (tmp_path / "written").open("wb") as file:
        file.write(os.urandom(8 * MIB))
        os.fsync(file.fileno())
    after = until(writes, "disks again")
    on_disk = os.major(tmp_path.stat().st_dev) != 0  # a tmpfs or an overlay writes nothing yet
    assert after[0] >= before[0] + on_disk
    assert after[1] >= before[1]


def test_cpus_online_are_those_of_this_machine(bench: Bench) -> None:
    assert bench.sweep().node_columns["cpus_online"] == os.sysconf("SC_NPROCESSORS_ONLN")


def test_a_removed_group_has_no_value_and_comes_back(bench: Bench) -> None:
    bench.sweep()
    kept = bench.sampler.stats.descriptors_kept
    group = f"{bench.groups.top}/online/web"
    bench.groups.remove(group)
    bench.clock.us -= 999_000  # before the next scan: the pod set still names it
    sample = bench.sweep()
    assert sample.pods == 2
    assert all(values[WEB] is None for values in sample.pod_columns.values())
    assert all(
        v[JOB] is not None for name, v in sample.pod_columns.items() if name != "runq_wait_us"
    )
    assert bench.sampler.stats.vanished == 1
    assert bench.sampler.stats.descriptors_kept < kept
    bench.groups.make("online/web")
    assert bench.sweep().pod_columns["cpu_usage_us"] == [0, 0]
    assert bench.sampler.stats.vanished == 1


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_descriptors_of_groups_that_are_gone_are_closed(bench: Bench) -> None:
    bench.sweep()
    before = open_descriptors()
    for turn in range(3):
        bench.groups.make(f"online/extra{turn}")
        for _ in range(A_MINUTE):
            assert bench.sweep().pods == 3
        bench.groups.remove(f"{bench.groups.top}/online/extra{turn}")
        assert bench.sweep().pods == 2
    for _ in range(A_MINUTE):
        bench.sweep()
    slow_files = 2 * 4  # charge, two pressures, io of the two pods that stay
    assert open_descriptors() <= before + slow_files
    bench.sampler.close()
    assert bench.sampler._descriptors.kept == 0


def test_pressure_switched_off_for_one_group_is_absent_there_alone(bench: Bench) -> None:
    layout = bench.groups.layout
    if layout.unified is None:
        unavailable("no cgroup2 mount")
    switch = Path(layout.unified) / bench.groups.top / "online/web/cgroup.pressure"
    if not switch.exists():
        unavailable("this kernel has no cgroup.pressure (6.1 and later)")
    assert bench.sweep().pod_columns["psi_cpu_some_us"] == [0, 0]
    switch.write_text("0")
    sample = bench.sweep()
    assert sample.pod_columns["psi_cpu_some_us"] == [0, None]
    assert sample.pod_columns["cpu_usage_us"] == [0, 0]
    assert bench.sampler.stats.vanished == 0
    switch.write_text("1")
    until(lambda: bench.sweep().pod_columns["psi_cpu_some_us"][WEB] is not None, "asked again")


def test_short_of_descriptors_the_real_figures_are_the_same(bench: Bench) -> None:
    few = Sampler(bench.groups.layout, bench.sampler._source, "n", bench.clock, descriptors=3)
    for _ in range(A_MINUTE):
        a, b = bench.sweep(), few.sweep()
        assert a.pod_columns == b.pod_columns
        assert set(a.node_columns) == set(b.node_columns)
        assert set(FAST_NODE_COLUMNS) - {"samples_dropped", "evictions"} <= set(a.node_columns)
    assert few.stats.descriptor_shortfalls > 0
    few.close()


def test_groups_of_a_run_that_was_killed_are_swept_away(bench: Bench) -> None:
    layout = bench.groups.layout
    dead = 9_999_999  # above every pid_max in use
    for mount in layout.mounts():
        Path(mount, f"swt-{dead}-left/pod").mkdir(parents=True)
    sweep_leftovers(layout)
    assert not any(Path(mount, f"swt-{dead}-left").exists() for mount in layout.mounts())
