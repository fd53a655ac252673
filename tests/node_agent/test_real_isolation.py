"""Isolation on this very kernel: every knob it has, drift, kill -9 at every write, uninstall."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node_agent.actuators.beneath import Write
from node_agent.actuators.online import GIVES
from node_agent.actuators.subtree import WRITABLE
from node_agent.cgroup.layout import Layout
from node_agent.cli import KERNEL_BOOT, main
from node_agent.containers import Amounts, Container
from node_agent.disks import disks
from node_agent.hold import Hold
from node_agent.inventory import Census
from node_agent.isolation import NOTHING, ROOM_US, Isolation
from node_agent.journal import NAME, Journal
from node_agent.originals import open_trees
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from schemas.records import Inventory, IsolationSettings, PodFact
from tests.node_agent.kernel import eventually, real_groups
from tests.support import unavailable

S, MIB = 1_000_000, 1 << 20
READ_ONLY = frozenset({"cgroup.kill", "memory.reclaim"})  # written, and never read
EVERYTHING = IsolationSettings(
    classes={
        "LS": {"cpu_shares": 4096, "io_weight": 300, "bvt": 2, "wmark_min_adj": -25},
        "BE": {
            "cpu_shares": 20, "io_weight": 10, "bvt": -1, "wmark_min_adj": 50,
            "io_read_iops": 5000, "io_write_iops": -1,
            "io_read_bytes_per_s": 100 * MIB, "io_write_bytes_per_s": 50 * MIB,
            "extended_cpu": 1, "extended_memory": 1,
        },
    },
    pods=("job", "web"),
    pod_knobs={
        "cpu_quota_us": [None, 90_000],
        "cpu_burst_us": [None, 40_000],
        "memory_min_bytes": [None, 16 * MIB],
        "memory_low_bytes": [None, 32 * MIB],
        "memory_high_bytes": [64 * MIB, -1],
        "freeze": [1, None],
    },
    tiers={"Burstable": {"memory_min_bytes": 16 * MIB}, "BestEffort": {"bvt": -1}},
    daemons={"cpu_milli": 1500, "memory_max_bytes": 256 * MIB},
)  # fmt: skip
ANOLIS = {"bvt", "wmark_min_adj"}
pytestmark = pytest.mark.kernel


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        web = made.pod("online", "web")
        made.make(f"{web}/c1")
        made.make(f"{made.pod('besteffort', 'job')}/c1")
        made.make(f"{made.name}/daemons")
        quota(made, web, 60_000)
        quota(made, f"{web}/c1", 30_000)
        yield made


def quota(groups: Groups, group: str, quota_us: int) -> None:
    directory = groups.directory("cpu", group)
    if (directory / "cpu.max").exists():
        (directory / "cpu.max").write_text(f"{quota_us} 100000")
    else:
        (directory / "cpu.cfs_quota_us").write_text(str(quota_us))


def census(groups: Groups) -> Census:
    pods = (PodFact("job", "job", qos="BE"), PodFact("web", "web", qos="LS"))
    paths = (f"{groups.be_root}/job", f"{groups.name}/online/web")
    asked = Amounts(batch_cpu_milli=700, batch_memory_bytes=128 * MIB)
    job = Container("1", f"{groups.be_root}/job/c1", "app", "app", asked, asked)
    record = Inventory("n", 1, 2000, 1 << 30, pods=pods)
    return Census(record, paths, groups.be_root, ((job,), ()), f"{groups.name}/daemons")


@contextmanager
def started(state: Path, groups: Groups, write: Write = os.write) -> Iterator[Isolation]:
    """One start of an agent's isolation over these groups."""
    journal = Journal(state, kernel_boot())
    journal.boot("b", 1)
    isolation = Isolation(journal)
    isolation.follow(census(groups), groups.layout, write)
    isolation.bound(-1, ROOM_US)
    try:
        yield isolation
    finally:
        isolation.close()
        journal.close()


def kernel_boot() -> str:
    return KERNEL_BOOT.read_text("ascii").strip().replace("-", "")


def snapshot(layout: Layout, name: str) -> dict[str, str]:
    """Every file that may be written, of every group of ours, in every hierarchy."""
    found = {}
    for mount in layout.mounts():
        for directory in (each for each in Path(mount, name).rglob("*") if each.is_dir()):
            for file in (GIVES.keys() | WRITABLE) - READ_ONLY:
                path = directory / file
                if path.exists():
                    found[str(path)] = path.read_text()
    return found


def test_all_that_this_kernel_has_is_set_kept_and_given_back(
    groups: Groups, tmp_path: Path
) -> None:
    before = snapshot(groups.layout, groups.name)
    with started(tmp_path / "state", groups) as isolation:
        isolation.obey(EVERYTHING)
        isolation.beat(0)
        outcome, reason = isolation.outcome()
        left = set(reason.removeprefix("no_actuator:").split(","))
        assert outcome == "applied"
        assert reason.startswith("no_actuator:"), "an Anolis kernel: take its knobs out of here"
        assert left >= ANOLIS
        after = snapshot(groups.layout, groups.name)
        changed = {path for path in before if after[path] != before[path]}
        assert len(changed) >= 10 - len(left - ANOLIS)
        assert disks(), "this machine has a disk"
        assert str(128 * MIB) in {after[path].strip() for path in changed}, "what the job asked for"
        assert len({path for path in changed if "/daemons/" in path}) == 2
        path = min(changed)
        Path(path).write_text(before[path])
        isolation.beat(S)
        assert snapshot(groups.layout, groups.name) == after
        assert isolation.keeper.drift == 1
        isolation.obey(NOTHING)
        isolation.beat(2 * S)
        assert isolation.outcome() == ("applied", "")
        assert snapshot(groups.layout, groups.name) == before


def bandwidth(groups: Groups, group: str) -> tuple[int, int]:
    """Quota and burst of a group in us."""
    directory = groups.directory("cpu", group)
    if (directory / "cpu.max").exists():
        quota, burst = (directory / "cpu.max").read_text().split()[0], "cpu.max.burst"
    else:
        quota, burst = (directory / "cpu.cfs_quota_us").read_text(), "cpu.cfs_burst_us"
    return int(quota), int((directory / burst).read_text())


def test_bandwidth_of_an_online_pod_and_its_container_is_really_raised(
    groups: Groups, tmp_path: Path
) -> None:
    web = f"{groups.name}/online/web"
    with started(tmp_path / "state", groups) as isolation:
        isolation.obey(EVERYTHING)
        isolation.beat(0)
        assert bandwidth(groups, web) == (90_000, 40_000)
        assert bandwidth(groups, f"{web}/c1") == (45_000, 20_000)
        isolation.beat(S, live=False)  # nobody stands behind the quota any more
        assert bandwidth(groups, web) == (60_000, 40_000)
        assert bandwidth(groups, f"{web}/c1")[0] == 30_000
        isolation.beat(2 * S)
        assert bandwidth(groups, web)[0] == 90_000
        assert isolation.release() == []


def test_a_pods_own_quota_and_the_best_effort_roots_never_stand_in_each_others_way(
    groups: Groups, tmp_path: Path
) -> None:
    asked = IsolationSettings(classes={"BE": {"extended_cpu": 1}})
    container = groups.directory("cpu", f"{groups.be_root}/job/c1")
    v2 = (container / "cpu.max").exists()

    def own() -> str:
        return (container / ("cpu.max" if v2 else "cpu.cfs_quota_us")).read_text().split()[0]

    with started(tmp_path / "state", groups) as isolation:
        journal = isolation._journal
        hold = Hold(journal, use_idle=False, dry_run=False)
        hold.trees = open_trees(groups.layout, groups.be_root)
        isolation.obey(asked)
        isolation.beat(0)
        assert own() == "70000"
        isolation.make_room(300, S)
        assert hold.quota(300) == 300
        isolation.bound(300, S)
        isolation.beat(S)
        assert own() == ("70000" if v2 else "-1")
        assert hold.quota(1000) == 1000
        isolation.bound(1000, S + ROOM_US)
        isolation.beat(S + ROOM_US)
        assert own() == "70000"
        assert isolation.outcome() == ("applied", "")
        assert (isolation.keeper.drift, hold.drift) == (0, 0)
        assert hold.release() == isolation.release() == []
        assert own() == ("max" if v2 else "-1")
        hold.trees.close()


def test_a_frozen_pod_stands_still_and_runs_again_when_it_is_let_go(
    groups: Groups, tmp_path: Path
) -> None:
    greedy = Greedy(f"{groups.be_root}/job/c1", 1, tmp_path / "job.counts")
    try:
        with started(tmp_path / "state", groups) as isolation:
            isolation.obey(IsolationSettings(pods=("job",), pod_knobs={"freeze": [1]}))
            isolation.beat(0)
            if isolation.outcome()[1]:
                unavailable(f"this kernel cannot freeze: {isolation.outcome()[1]}")
            eventually(lambda: frozen(groups), 5, "the pod to stand still")
            count = greedy.work_done()
            assert greedy.work_done() == count
            isolation.let_go(f"{groups.be_root}/job")
            eventually(lambda: greedy.work_done() > count, 5, "the pod to run")
            isolation.beat(S)
            assert not frozen(groups)  # nor is it frozen again
            assert isolation.release() == []
    finally:
        greedy.stop()


def frozen(groups: Groups) -> bool:
    """What the kernel says of the pod: all its tasks stand still."""
    if groups.layout.unified is not None:
        path = Path(groups.layout.unified, groups.be_root, "job/cgroup.events")
        return "frozen 1" in path.read_text()
    directory = groups.directory("freezer", f"{groups.be_root}/job")
    return (directory / "freezer.state").read_text() == "FROZEN\n"


class KilledAt:
    """Kills this very process with SIGKILL at the n-th write, before it or after it."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after = at, after

    def __call__(self, descriptor: int, raw: bytes) -> int:
        self.left -= 1
        if self.left == 0 and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        written = os.write(descriptor, raw)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def killed(state: Path, groups: Groups, at: int, settings: IsolationSettings = EVERYTHING) -> bool:
    """A process sets everything and gives it back, killed at its n-th write; False: it got through.

    The journal of a process that is killed keeps what was written to it: nothing is buffered.
    """
    child = os.fork()
    if child == 0:
        try:
            with started(state, groups, KilledAt(at, after=bool(at % 2))) as isolation:
                isolation.obey(settings)
                isolation.beat(0)
                isolation.obey(NOTHING)
                isolation.beat(S)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_r10_kill_9_at_every_write_then_next_start_or_uninstall_restores_all(
    groups: Groups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(groups.layout, groups.name)
    at = 0
    while True:
        at += 1
        state = tmp_path / f"state{at}"
        dead = killed(state, groups, at)
        if at % 3 == 0:
            with started(state, groups) as isolation:
                isolation.beat(0)
        elif at % 3 == 1:
            assert main(["release-all", "--state-dir", str(state)]) == 0
        else:
            assert main(["uninstall", "--state-dir", str(state)]) == 0
            assert not state.exists()
        assert snapshot(groups.layout, groups.name) == before, f"killed at write {at}"
        if not dead:
            break
    assert at > 20
    assert "restored" in capsys.readouterr().out


def test_uninstall_leaves_foreign_files_and_refuses_to_forget_what_it_cannot_restore(
    groups: Groups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    with started(state, groups) as isolation:
        isolation.obey(EVERYTHING)
        isolation.beat(0)
        before = (state / NAME).read_bytes()
    (state / "notes.txt").write_text("ours\n")
    (state / NAME).write_bytes(b"{spoilt\n" + before)
    assert main(["uninstall", "--state-dir", str(state)]) == 1
    assert (state / NAME).exists()
    (state / NAME).write_bytes(before)
    assert main(["uninstall", "--state-dir", str(state)]) == 0
    assert [path.name for path in state.iterdir()] == ["notes.txt"]
    assert "isolation: restored" in capsys.readouterr().out
