"""Every knob over trees of both versions: set, idempotent, drift, given back, crashes at any write.

A new knob is one line in CASES: what is asked, and what then stands in the tree.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from node_agent.actuators.knob import Knob
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.knobs.block_io_limits import BlockIoLimits
from node_agent.actuators.knobs.block_io_weight import BlockIoWeight
from node_agent.actuators.knobs.cpu_bandwidth import CpuBandwidth
from node_agent.actuators.knobs.cpu_shares import CpuShares
from node_agent.actuators.knobs.daemons_cpu import DaemonsCpu
from node_agent.actuators.knobs.daemons_memory import DaemonsMemory
from node_agent.actuators.knobs.extended_cpu import ExtendedCpu
from node_agent.actuators.knobs.extended_memory import ExtendedMemory
from node_agent.actuators.knobs.freeze import Freeze
from node_agent.actuators.knobs.group_identity import GroupIdentity
from node_agent.actuators.knobs.memory_protection import MemoryProtection
from node_agent.actuators.knobs.memory_throttle import MemoryThrottle
from node_agent.actuators.knobs.net_classid import NetClassid
from node_agent.actuators.knobs.oom_group import OomGroup
from node_agent.actuators.knobs.oom_score import OomScore
from node_agent.actuators.knobs.page_cache import PageCache
from node_agent.actuators.knobs.schemata import SchemataKnob
from node_agent.actuators.knobs.watermarks import Watermarks
from node_agent.cgroup.layout import Version
from node_agent.isolation import NOTHING, release_kept
from node_agent.journal import Journal
from node_agent.surfaces import RESCTRL
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    DAEMONS,
    JOB_POD,
    LS_POD,
    LSR_POD,
    TASKS,
    TOP,
    USUAL,
    FakeKernel,
    contents,
    isolation,
    layout,
    make_tree,
)
from tests.node_agent.resctrl_tree import make_resctrl
from tests.node_agent.trees import Crash

S = 1_000_000
BURSTABLE = "kubepods/burstable"
LS_GROUPS = (LS_POD, f"{LS_POD}/c1", f"{LS_POD}/c2")
OTHER_DISK = "8:16 rbps=max wbps=max riops=77 wiops=max"
VERSIONS: tuple[Version, ...] = (1, 2)


@dataclass(frozen=True)
class Case:
    """``stands``: file of the tree -> what it says once the settings are in force."""

    name: str
    knob: Knob
    version: Version
    settings: IsolationSettings
    stands: dict[str, str]
    drift: str  # one of ``stands``, and what a stranger writes there
    foreign: str
    pods: tuple[str, ...] = USUAL
    lasts: bool = True  # what a stranger writes there outlives us


def pods(uids: str, **columns: list[int | None]) -> IsolationSettings:
    return IsolationSettings(pods=tuple(uids.split()), pod_knobs=columns)


def of(qos: str, **knobs: int) -> IsolationSettings:
    return IsolationSettings(classes={qos: knobs})


MIB = 1 << 20
CACHE = "sys/fs/resctrl"
MEMORY_LIMIT: tuple[tuple[Version, str], ...] = ((1, "memory.limit_in_bytes"), (2, "memory.max"))
PODS = pods("be ls", memory_min_bytes=[MIB, 8 * MIB], memory_low_bytes=[None, 16 * MIB + 1])
PROTECTED = replace(PODS, tiers={"Burstable": {"memory_min_bytes": 8 * MIB}})
CASES = [
    Case(
        "bandwidth_v1", CpuBandwidth(), 1,
        pods("ls lsr", cpu_quota_us=[300_000, 400_000], cpu_burst_us=[100_000, None]),
        {
            f"{LS_POD}/cpu.cfs_quota_us": "300000",
            f"{LS_POD}/cpu.cfs_burst_us": "100000",
            f"{LS_POD}/c1/cpu.cfs_quota_us": "225000",
            f"{LS_POD}/c1/cpu.cfs_burst_us": "75000",
            f"{LS_POD}/c2/cpu.cfs_quota_us": "75000",
            f"{LS_POD}/c2/cpu.cfs_burst_us": "25000",
        },
        f"{LS_POD}/c1/cpu.cfs_quota_us", "160000",
    ),
    Case(
        "bandwidth_v2", CpuBandwidth(), 2,
        pods("ls", cpu_quota_us=[300_000], cpu_burst_us=[50_000]),
        {
            f"{LS_POD}/cpu.max": "300000 100000",
            f"{LS_POD}/cpu.max.burst": "50000",
            f"{LS_POD}/c1/cpu.max": "225000 100000",
            f"{LS_POD}/c1/cpu.max.burst": "37500",
            f"{LS_POD}/c2/cpu.max": "37500 50000",
            f"{LS_POD}/c2/cpu.max.burst": "6250",
        },
        f"{LS_POD}/c1/cpu.max.burst", "10",
    ),
    Case(
        "shares_v1", CpuShares(), 1, of("BE", cpu_shares=1) ,
        {f"{BE_POD}/cpu.shares": "2"}, f"{BE_POD}/cpu.shares", "512",
    ),
    Case(
        "shares_v2", CpuShares(), 2, of("LS", cpu_shares=131_072),
        {f"{LS_POD}/cpu.weight": "5000"}, f"{LS_POD}/cpu.weight", "200",
    ),
    Case(
        "identity_v1", GroupIdentity(), 1,
        IsolationSettings(
            classes={"LS": {"bvt": 2}, "BE": {"bvt": -1}},
            tiers={"Guaranteed": {"bvt": 0}, "Burstable": {"bvt": 2}, "BestEffort": {"bvt": -1}},
        ),
        {
            f"{LS_POD}/cpu.bvt_warp_ns": "2", f"{BURSTABLE}/cpu.bvt_warp_ns": "2",
            f"{BE}/cpu.bvt_warp_ns": "-1", f"{BE_POD}/cpu.bvt_warp_ns": "-1",
        },
        f"{BE_POD}/cpu.bvt_warp_ns", "1",
    ),
    Case(
        "identity_v2", GroupIdentity(), 2, of("LSR", bvt=1),
        {f"{LSR_POD}/cpu.bvt_warp_ns": "1"}, f"{LSR_POD}/cpu.bvt_warp_ns", "-1",
    ),
    Case(
        "protection_v2", MemoryProtection(), 2, PROTECTED,
        {
            f"{BE_POD}/memory.min": str(MIB),
            f"{BURSTABLE}/memory.min": str(8 * MIB),
            **{f"{group}/memory.min": str(8 * MIB) for group in LS_GROUPS},
            **{f"{group}/memory.low": str(16 * MIB) for group in LS_GROUPS},
        },
        f"{LS_POD}/c1/memory.low", "4096",
    ),
    Case(
        "throttle_v1", MemoryThrottle(), 1, pods("be", memory_high_bytes=[64 * MIB + 5]),
        {f"{BE_POD}/memory.soft_limit_in_bytes": str(64 * MIB)},
        f"{BE_POD}/memory.soft_limit_in_bytes", str(MIB),
    ),
    Case(
        "throttle_v2", MemoryThrottle(), 2, pods("be", memory_high_bytes=[64 * MIB]),
        {f"{BE_POD}/memory.high": str(64 * MIB)}, f"{BE_POD}/memory.high", str(MIB),
    ),
    *(
        Case(
            f"marks_v{version}", Watermarks(), version,
            IsolationSettings(
                classes={
                    "LS": {
                        "wmark_ratio_percent": 95, "wmark_scale_permille": 20, "wmark_min_adj": -25,
                    },
                    "BE": {"wmark_min_adj": 50},
                }
            ),
            {
                **{f"{group}/memory.wmark_ratio": "95" for group in LS_GROUPS},
                **{f"{group}/memory.wmark_scale_factor": "20" for group in LS_GROUPS},
                **{f"{group}/memory.wmark_min_adj": "-25" for group in LS_GROUPS},
                f"{BE_POD}/memory.wmark_min_adj": "50",
            },
            f"{LS_POD}/memory.wmark_ratio", "80",
        )
        for version in VERSIONS
    ),
    *(
        Case(
            f"page_cache_v{version}", PageCache(), version,
            pods(
                "be", page_cache_enabled=[1], page_cache_bytes=[5 * MIB], page_cache_sync=[1]
            ),
            {
                f"{BE_POD}/memory.pagecache_limit.enable": "1",
                f"{BE_POD}/memory.pagecache_limit.size": str(5 * MIB),
                f"{BE_POD}/memory.pagecache_limit.sync": "1",
            },
            f"{BE_POD}/memory.pagecache_limit.size", "99",
        )
        for version in VERSIONS
    ),
    Case(
        "io_weight_v1", BlockIoWeight(), 1,
        IsolationSettings(classes={"LS": {"io_weight": 5000}, "BE": {"io_weight": 10}}),
        {f"{LS_POD}/blkio.bfq.weight": "1000", f"{BE_POD}/blkio.bfq.weight": "10"},
        f"{BE_POD}/blkio.bfq.weight", "55",
    ),
    Case(
        "io_weight_v2", BlockIoWeight(), 2, of("LS", io_weight=5000),
        {
            f"{LS_POD}/io.weight": "default 5000\n8:16 50",
            f"{LS_POD}/io.bfq.weight": "default 1000",
        },
        f"{LS_POD}/io.bfq.weight", "default 300",
    ),
    Case(
        "io_limits_v1", BlockIoLimits(), 1,
        of("BE", io_read_iops=500, io_write_iops=1 << 40, io_write_bytes_per_s=MIB,
           io_read_bytes_per_s=-1),
        {
            f"{BE_POD}/blkio.throttle.read_iops_device": "254:0 500\n8:16 77",
            f"{BE_POD}/blkio.throttle.write_iops_device": "254:0 4294967294",
            f"{BE_POD}/blkio.throttle.write_bps_device": f"254:0 {MIB}",
        },
        f"{BE_POD}/blkio.throttle.write_bps_device", "254:0 5",
    ),
    Case(
        "io_limits_v2", BlockIoLimits(), 2, of("BE", io_read_iops=500, io_write_bytes_per_s=MIB),
        {
            f"{BE_POD}/io.max": f"254:0 rbps=max wbps={MIB} riops=500 wiops=max\n{OTHER_DISK}",
        },
        f"{BE_POD}/io.max", f"254:0 rbps=max wbps=5 riops=6 wiops=max\n{OTHER_DISK}",
    ),
    Case(
        "extended_cpu_v1", ExtendedCpu(), 1, of("BE", extended_cpu=1),
        {
            f"{JOB_POD}/cpu.shares": "2048",
            f"{JOB_POD}/cpu.cfs_quota_us": "200000",
            f"{JOB_POD}/c1/cpu.shares": "1536",
            f"{JOB_POD}/c1/cpu.cfs_quota_us": "150000",
            f"{JOB_POD}/c2/cpu.shares": "512",
            f"{JOB_POD}/c2/cpu.cfs_quota_us": "50000",
        },
        f"{JOB_POD}/c1/cpu.shares", "2", ("be", "job", "ls"),
    ),
    Case(
        "extended_cpu_v2", ExtendedCpu(), 2, of("BE", extended_cpu=1),
        {
            f"{JOB_POD}/cpu.weight": "79",
            f"{JOB_POD}/cpu.max": "200000 100000",
            f"{JOB_POD}/c1/cpu.weight": "59",
            f"{JOB_POD}/c1/cpu.max": "150000 100000",
            f"{JOB_POD}/c2/cpu.weight": "20",
            f"{JOB_POD}/c2/cpu.max": "50000 100000",
        },
        f"{JOB_POD}/c2/cpu.weight", "1", ("be", "job", "ls"),
    ),
    *(
        Case(
            f"extended_memory_v{version}", ExtendedMemory(), version, of("BE", extended_memory=1),
            {
                f"{JOB_POD}/{file}": str(72 * MIB),
                f"{JOB_POD}/c1/{file}": str(64 * MIB),
                f"{JOB_POD}/c2/{file}": str(8 * MIB),
            },
            f"{JOB_POD}/c2/{file}", str(128 * MIB), ("be", "job", "ls"),
        )
        for version, file in MEMORY_LIMIT
    ),
    Case(
        "daemons_cpu_v1", DaemonsCpu(), 1, IsolationSettings(daemons={"cpu_milli": 1500}),
        {f"{DAEMONS}/cpu.cfs_quota_us": "150000"}, f"{DAEMONS}/cpu.cfs_quota_us", "170000",
    ),
    Case(
        "daemons_cpu_v2", DaemonsCpu(), 2, IsolationSettings(daemons={"cpu_milli": 1500}),
        {f"{DAEMONS}/cpu.max": "150000 100000"}, f"{DAEMONS}/cpu.max", "max 50000",
    ),
    Case(
        "daemons_memory_v1", DaemonsMemory(), 1,
        IsolationSettings(daemons={"memory_max_bytes": 512 * MIB}),
        {f"{DAEMONS}/memory.limit_in_bytes": str(512 * MIB)},
        f"{DAEMONS}/memory.limit_in_bytes", str(600 * MIB),
    ),
    Case(
        "daemons_memory_v2", DaemonsMemory(), 2,
        IsolationSettings(
            daemons={"memory_max_bytes": 512 * MIB + 1, "memory_high_bytes": 500 * MIB}
        ),
        {f"{DAEMONS}/memory.max": str(512 * MIB), f"{DAEMONS}/memory.high": str(500 * MIB)},
        f"{DAEMONS}/memory.high", "max",
    ),
    Case(
        "net_classid", NetClassid(), 1,
        IsolationSettings(
            classes={"BE": {"net_classid": 0x10004}, "LS": {"net_classid": 0x10003}}
        ),
        {
            f"{BE_POD}/net_cls.classid": "65540",
            **{f"{group}/net_cls.classid": "65539" for group in LS_GROUPS},
        },
        f"{BE_POD}/net_cls.classid", "7",
    ),
    Case(
        "oom_score", OomScore(), 1,
        IsolationSettings(classes={"BE": {"oom_score_adj": 900}, "LS": {"oom_score_adj": -300}}),
        {
            **{f"proc/{pid}/oom_score_adj": "900" for pid in TASKS[BE_POD]},
            **{f"proc/{pid}/oom_score_adj": "-300" for pid in (100, 101, 102)},
        },
        f"proc/{TASKS[BE_POD][0]}/oom_score_adj", "300",
    ),
    Case(
        "oom_group_v1", OomGroup(), 1,
        IsolationSettings(classes={"BE": {"oom_kill_group": 0}, "LS": {"oom_priority": 12}}),
        {
            **{f"{group}/memory.priority": "12" for group in LS_GROUPS},
            **{
                f"{group}/memory.use_priority_oom": "1"
                for group in (*LS_GROUPS, TOP, BE, BURSTABLE)
            },
        },
        f"{LS_POD}/c1/memory.priority", "3",
    ),
    Case(
        "oom_group_v2", OomGroup(), 2,
        IsolationSettings(classes={"BE": {"oom_kill_group": 1}, "LS": {"oom_kill_group": 0}}),
        {f"{BE_POD}/memory.oom.group": "1"},
        f"{BE_POD}/memory.oom.group", "0",
    ),
    Case(
        "schemata", SchemataKnob(), 1,
        IsolationSettings(
            schemata={"BE": "L3:0=7;1=1;\nMB:0=35;1=20;", "LS": "L3:0=7ff;\nMB:0=40;1=100;"}
        ),
        {
            f"{CACHE}/slackwater-BE/schemata": "MB:0= 40;1= 20\n    L3:0=7;1=3",
            f"{CACHE}/slackwater-BE/tasks": "",
            f"{CACHE}/slackwater-LS/schemata": "MB:0=100;1=100\n    L3:0=7ff;1=7ff",
            f"{CACHE}/slackwater-LS/tasks": "",
        },
        f"{CACHE}/slackwater-BE/schemata", "MB:0=100;1=100\n    L3:0=7;1=3", lasts=False,
    ),
    Case(
        "freeze_v2", Freeze(), 2, pods("be", freeze=[1]),
        {f"{BE_POD}/cgroup.freeze": "1"}, f"{BE_POD}/cgroup.freeze", "0",
    ),
    Case(
        "freeze_v1", Freeze(), 1, pods("be", freeze=[1]),
        {f"{BE_POD}/freezer.state": "FROZEN", f"{BE_POD}/freezer.self_freezing": "1"},
        f"{BE_POD}/freezer.self_freezing", "0",
    ),
]  # fmt: skip


ELSEWHERE = {
    "resctrl_group": "test_resctrl", "core_cookie": "test_cores", "bandwidths": "test_traffic",
}  # fmt: skip
"""Knobs that need more than a tree of files -> where they are killed at every write."""
NOTHING_TO_GIVE_BACK = {"memory_reclaim"}  # a request to the kernel, no value that stands


def make_case_tree(mount: Path, case: Case) -> None:
    make_tree(mount, case.version)
    if case.knob.surface == RESCTRL:
        make_resctrl(mount)


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
def test_settings_stand_twice_is_once_and_all_is_given_back(tmp_path: Path, case: Case) -> None:
    mount = tmp_path / "cgroup"
    make_case_tree(mount, case)
    before = contents(mount)
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, case.version, [case.knob], kernel, case.pods) as held:
        held.obey(case.settings)
        held.beat(0)
        after = contents(mount)
        assert after == before | case.stands
        assert held.outcome() == ("applied", "")
        writes = kernel.count
        held.obey(case.settings)
        held.beat(S)
        assert kernel.count == writes
        held.obey(NOTHING)
        held.beat(2 * S)
        assert contents(mount) == before
        assert held.keeper.drift == 0


@each_case
def test_drift_is_put_right_and_the_owners_new_value_is_given_back(
    tmp_path: Path, case: Case
) -> None:
    mount = tmp_path / "cgroup"
    make_case_tree(mount, case)
    before = contents(mount)
    with isolation(
        tmp_path / "s", mount, case.version, [case.knob], FakeKernel(), case.pods
    ) as held:
        held.obey(case.settings)
        held.beat(0)
        (mount / case.drift).write_text(before.get(case.drift, case.foreign) + "\n")
        held.beat(S)
        assert contents(mount)[case.drift] == case.stands[case.drift]
        assert held.keeper.drift == 1
        (mount / case.drift).write_text(case.foreign + "\n")
        held.beat(2 * S)
        assert held.keeper.drift == 2
        assert held.release() == []
    assert contents(mount) == before | ({case.drift: case.foreign} if case.lasts else {})


@each_case
@pytest.mark.parametrize("how", ["before", "after", "refused"])
def test_r10_killed_or_refused_at_every_write_the_way_back_is_known(
    tmp_path: Path, case: Case, how: str
) -> None:
    """Set, give back; at each n-th write the end: next start and release-all both restore."""
    at = 0
    while True:
        at += 1
        mount, state = tmp_path / f"{at}", tmp_path / f"s{at}"
        make_case_tree(mount, case)
        before = contents(mount)
        error = errno.EACCES if how == "refused" else None
        kernel = FakeKernel(at, error, before=how == "before")
        try:
            with isolation(state, mount, case.version, [case.knob], kernel, case.pods) as held:
                held.obey(case.settings)
                held.beat(0)
                held.obey(NOTHING)
                held.beat(S)
        except Crash:
            pass
        if at % 2:
            journal = Journal(state, "k" * 32, fsync="never")
            at_mount, played = layout(mount, case.version), FakeKernel()
            answers = (played, played.acts)
            assert release_kept(at_mount, journal, [case.knob], *answers) == []
            journal.close()
        else:
            with isolation(
                state, mount, case.version, [case.knob], FakeKernel(), case.pods
            ) as held:
                held.beat(0)
        assert contents(mount) == before
        journal = Journal(state, "k" * 32, fsync="never")
        assert journal.state.kept == {}
        journal.close()
        if kernel.count < at:
            break
    assert at > 2


def test_r10_every_knob_is_killed_at_every_write() -> None:
    here = {case.knob.name for case in CASES}
    assert here | ELSEWHERE.keys() | NOTHING_TO_GIVE_BACK == {knob.name for knob in KNOBS}
    for module in ELSEWHERE.values():
        assert "\ndef test_r10_" in Path(__file__).with_name(f"{module}.py").read_text(), module
