"""What the engine owes every knob: a kernel in parts, one bad pod, a full disk, bounds."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from node_agent import keeper
from node_agent.actuators.hierarchy import HierarchySurface
from node_agent.actuators.knob import Raw
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.knobs.cpu_shares import CpuShares
from node_agent.actuators.knobs.memory_reclaim import STEP_BYTES, MemoryReclaim
from node_agent.disks import disks
from node_agent.inventory import Census
from node_agent.isolation import DISKS_US, NOTHING, Isolation
from node_agent.journal import Journal
from schemas.records import Inventory, IsolationSettings, PodFact
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    LS_POD,
    FakeKernel,
    census,
    contents,
    isolation,
    layout,
    make_tree,
)

S = 1_000_000
SHARES = IsolationSettings(classes={"LS": {"cpu_shares": 4096}, "BE": {"cpu_shares": 2}})


def text(mount: Path, file: str) -> str:
    return (mount / file).read_text().strip()


def test_what_a_kernel_has_not_is_named_and_the_rest_is_set(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1, without=["cpu.bvt_warp_ns", "memory.wmark_ratio", "blkio.bfq.weight"])
    asked = IsolationSettings(
        classes={
            "BE": {"bvt": -1, "cpu_shares": 2, "io_weight": 5, "wmark_ratio_percent": 9},
            "LS": {"wmark_min_adj": -25},
        },
        pods=("ls",),
        pod_knobs={"memory_min_bytes": [4096]},
    )
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as held:
        held.obey(asked)
        held.beat(0)
        missing = "no_actuator:bvt,io_weight,memory_min_bytes,wmark_ratio_percent"
        assert held.outcome() == ("applied", missing)
        assert text(mount, f"{BE_POD}/cpu.shares") == "2"
        assert text(mount, f"{LS_POD}/memory.wmark_min_adj") == "-25"


def test_r6_what_takes_is_never_done_to_an_online_pod_and_is_said(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    before = contents(mount)
    asked = IsolationSettings(
        classes={
            "LS": {"io_read_iops": 10, "io_write_iops": -1, "io_weight": 1, "cpu_shares": 2},
            "LSR": {"bvt": -1, "wmark_min_adj": 50},
        },
        pods=("ls", "lsr"),
        pod_knobs={
            "memory_high_bytes": [1 << 20, -1],
            "memory_reclaim_bytes": [0, None],
            "page_cache_enabled": [1, 0],
            "freeze": [1, 0],
            "cpu_quota_us": [1000, None],
        },
    )
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, 2, KNOBS, kernel) as held:
        held.obey(asked)
        held.beat(0)
        never = "freeze,io_read_iops,memory_high_bytes,memory_reclaim_bytes,page_cache_enabled"
        assert held.outcome() == ("applied", f"not_for_online:{never}")
    assert contents(mount) == before
    assert kernel.count == 0


def test_one_pod_that_the_kernel_refuses_harms_no_other(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    kernel = FakeKernel(1, errno.EINVAL)
    with isolation(tmp_path / "s", mount, 1, [CpuShares()], kernel) as held:
        held.obey(SHARES)
        held.beat(0)
        assert held.outcome() == ("failed", "failed:cpu_shares:EINVAL")
        assert text(mount, f"{BE_POD}/cpu.shares") == "1024"
        assert text(mount, f"{LS_POD}/cpu.shares") == "4096"
        held.beat(keeper.RETRY_US)
        assert held.outcome() == ("applied", "")
        assert text(mount, f"{BE_POD}/cpu.shares") == "2"


def test_a_value_that_the_kernel_did_not_take_is_put_back(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)

    class Deaf(FakeKernel):
        def __call__(self, descriptor: int, raw: bytes) -> int:
            return super().__call__(descriptor, b"1024" if raw == b"4096" else raw)

    with isolation(tmp_path / "s", mount, 1, [CpuShares()], Deaf()) as held:
        held.obey(SHARES)
        held.beat(0)
        assert held.outcome() == ("failed", "failed:cpu_shares:not_taken")
        assert text(mount, f"{LS_POD}/cpu.shares") == "1024"


def test_nothing_is_written_that_the_journal_could_not_keep(tmp_path: Path) -> None:
    mount, full = tmp_path / "cgroup", False
    make_tree(mount, 1)
    before = contents(mount)

    def disk(descriptor: int, raw: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "no space")
        return os.write(descriptor, raw)

    journal = Journal(tmp_path / "s", "k" * 32, fsync="never", write=disk)
    journal.boot("b1", 1)
    kernel = FakeKernel()
    held = Isolation(journal, [CpuShares()])
    held.follow(census(["ls", "be"]), layout(mount, 1), kernel)
    full = True
    held.obey(SHARES)
    held.beat(0)
    assert held.outcome() == ("failed", "failed:journal:ENOSPC")
    assert (kernel.count, contents(mount)) == (0, before)
    full = False
    held.beat(keeper.RETRY_US)
    assert text(mount, f"{LS_POD}/cpu.shares") == "4096"
    full = True  # giving back needs no journal
    assert held.release() == []
    assert contents(mount) == before
    held.close()
    journal.close()


def test_a_group_made_anew_under_the_same_name_has_nothing_to_get_back(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    with isolation(tmp_path / "s", mount, 1, [CpuShares()], FakeKernel()) as held:
        held.obey(SHARES)
        held.beat(0)
        again = mount / "kubepods/new"
        again.mkdir()
        for path in (mount / LS_POD).iterdir():
            if path.is_file():
                (again / path.name).write_text(path.read_text())
        (again / "cpu.shares").write_text("2048\n")
        (mount / LS_POD).rename(mount / "kubepods/old")
        again.rename(mount / LS_POD)
        held.obey(NOTHING)
        held.beat(S)
        assert text(mount, f"{LS_POD}/cpu.shares") == "2048"
        assert held.release() == []


def test_a_pod_that_is_gone_leaves_no_original(tmp_path: Path) -> None:
    mount, state = tmp_path / "cgroup", tmp_path / "s"
    make_tree(mount, 1)
    with isolation(state, mount, 1, [CpuShares()], FakeKernel()) as held:
        held.obey(SHARES)
        held.beat(0)
        (mount / LS_POD).rename(mount / "kubepods/old")
        held.beat(S)
        assert held.outcome() == ("applied", "")
        held.follow(census(["be"]), layout(mount, 1), FakeKernel())
        held.beat(2 * S)
    journal = Journal(state, "k" * 32)
    assert set(journal.kept("cpu_shares")) == {BE_POD}
    journal.close()


def test_reclaim_goes_down_in_steps_and_leaves_nothing_to_give_back(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    aim = (256 << 20) - STEP_BYTES - 5
    asked = IsolationSettings(pods=("be",), pod_knobs={"memory_reclaim_bytes": [aim]})
    with isolation(tmp_path / "s", mount, 2, [MemoryReclaim()], FakeKernel()) as held:
        held.obey(asked)
        held.beat(0)
        assert text(mount, f"{BE_POD}/memory.current") == str(aim + 5)
        held.beat(S)
        assert text(mount, f"{BE_POD}/memory.current") == str(aim)
        held.beat(2 * S)
        assert text(mount, f"{BE_POD}/memory.current") == str(aim)
        held.beat(3 * S, live=False)
        assert held.release() == []
        assert held.keeper.drift == 0


def test_the_kernel_that_finds_less_to_reclaim_is_no_failure(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    asked = IsolationSettings(pods=("be",), pod_knobs={"memory_reclaim_bytes": [0]})
    kernel = FakeKernel(1, errno.EAGAIN)
    with isolation(tmp_path / "s", mount, 2, [MemoryReclaim()], kernel) as held:
        held.obey(asked)
        held.beat(0)
        assert held.outcome() == ("applied", "")
        held.beat(S)
        assert kernel.count == 2


def test_a_file_that_says_nonsense_is_a_failure_and_not_the_end(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    (mount / BE_POD / "cpu.shares").write_text("many\n")
    with isolation(tmp_path / "s", mount, 1, [CpuShares()], FakeKernel()) as held:
        held.obey(SHARES)
        held.beat(0)
        assert held.outcome() == ("failed", "failed:cpu_shares:unreadable")
        assert text(mount, f"{LS_POD}/cpu.shares") == "4096"


@pytest.mark.parametrize("nonsense", ["many", "max", "1 2 3", ""])
def test_a_bandwidth_that_says_nonsense_is_a_failure_and_not_the_end(
    tmp_path: Path, nonsense: str
) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    (mount / LS_POD / "cpu.max").write_text(nonsense)
    asked = IsolationSettings(pods=("ls",), pod_knobs={"cpu_quota_us": [300_000]})
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, 2, KNOBS, kernel) as held:
        held.obey(asked)
        held.beat(0)
        if nonsense != "max":  # no limit, whatever the period
            assert held.outcome() == ("failed", "failed:cpu_bandwidth:unreadable")
        assert kernel.count == 0


class Counting(HierarchySurface):
    """Counts what is read."""

    looks = 0

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        Counting.looks += 1
        return super().look(place, files)


def test_a_quiet_period_reads_a_bounded_number_of_groups_and_finds_all_drift_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_agent.surfaces.HierarchySurface", Counting)
    mount, many = tmp_path / "cgroup", 150
    facts = tuple(PodFact(f"p{n:03}", "p", qos="BE") for n in range(many))
    groups = tuple(f"{BE}/{fact.uid}" for fact in facts)
    for group in groups:
        (mount / group).mkdir(parents=True)
        (mount / group / "cpu.shares").write_text("1024\n")
    with isolation(tmp_path / "s", mount, 1, [CpuShares()], FakeKernel()) as held:
        held.follow(
            Census(Inventory("n", 1, 1, 1, pods=facts), groups, BE), layout(mount, 1), FakeKernel()
        )
        held.obey(SHARES)
        held.beat(0)
        last = groups[-1]
        (mount / last / "cpu.shares").write_text("9\n")
        for period in range(1, 1 + -(-many // keeper.CHECKED)):
            Counting.looks = 0
            held.beat(period * S)
            assert Counting.looks <= keeper.CHECKED + 2
        assert text(mount, f"{last}/cpu.shares") == "2"
        assert held.keeper.drift == 1


def test_a_disk_that_comes_gets_its_limit(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    asked = IsolationSettings(classes={"BE": {"io_read_iops": 5}})
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as held:
        held.obey(asked)
        held.beat(0)
        (mount / "sys/block/nvme0n1").mkdir()
        (mount / "sys/block/nvme0n1/dev").write_text("259:1\n")
        (mount / "sys/block/nvme0n1/size").write_text("99\n")
        held.beat(DISKS_US)
        file = f"{BE_POD}/blkio.throttle.read_iops_device"
        assert text(mount, file).splitlines() == ["254:0 5", "259:1 5", "8:16 77"]
        held.release()
        assert text(mount, file) == "8:16 77"


def test_disks_are_whole_and_real(tmp_path: Path) -> None:
    assert disks(str(tmp_path)) == ()
    for name, dev, size in (
        ("sda", "8:0", "100"), ("loop0", "7:0", "100"), ("zram0", "252:0", "100"),
        ("nvme0n1", "259:0", "5"), ("sr0", "11:0", "5"), ("vdb", "254:16", "0"),
    ):  # fmt: skip
        folder = tmp_path / "sys/block" / name
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{dev}\n")
        (folder / "size").write_text(f"{size}\n")
    (tmp_path / "sys/block/half").mkdir()
    assert disks(str(tmp_path)) == ("259:0", "8:0")


def test_dry_run_keeps_and_writes_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    journal = Journal(tmp_path / "s", "k" * 32)
    kernel = FakeKernel()
    held = Isolation(journal, dry_run=True)
    held.follow(census(["ls", "be"]), layout(mount, 1), kernel)
    held.obey(SHARES)
    held.beat(0)
    held.beat(S)
    assert held.outcome() == ("applied", "")
    assert (kernel.count, journal.state.kept) == (0, {})
    held.close()
    journal.close()
