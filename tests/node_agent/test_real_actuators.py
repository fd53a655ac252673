"""Actuators on this very kernel: what is written is in force, and is undone again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent import originals
from node_agent.actuators import cpu_idle, cpu_quota, evict
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.pods import NotAVictim, best_effort_pod
from node_agent.actuators.subtree import BE_ROOT
from node_agent.hold import Hold
from node_agent.journal import Journal
from node_agent.originals import Trees, open_trees
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from schemas.records import PodFact
from tests.node_agent.kernel import cores_over, eventually, real_groups
from tests.support import patient, unavailable

pytestmark = pytest.mark.kernel


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.fixture
def trees(groups: Groups) -> Iterator[Trees]:
    opened = open_trees(groups.layout, groups.be_root)
    yield opened
    opened.close()


@pytest.fixture
def hold(trees: Trees, tmp_path: Path) -> Iterator[Hold]:
    journal = Journal(tmp_path / "state", "k" * 32)
    journal.boot("b1", 1)
    made = Hold(journal, use_idle=True, dry_run=False)
    made.trees = trees
    yield made
    journal.close()


def hog(groups: Groups, pod: str, spinners: int, folder: Path) -> Greedy:
    return Greedy(groups.pod("besteffort", pod), spinners, folder / f"{pod}.counts")


def test_quota_is_read_back_and_spinners_are_really_limited(
    groups: Groups, hold: Hold, tmp_path: Path
) -> None:
    greedy = hog(groups, "a", 2, tmp_path)
    try:
        assert hold.quota(200) == 200
        before = greedy.work_done()
        cores = cores_over(groups, groups.be_root, 1.0)
        assert 0.02 < cores < 0.28  # less when others want the machine too, never more
        assert greedy.work_done() > before
        assert hold.quota(0) == 10  # the least the kernel can say
        cores = cores_over(groups, groups.be_root, 1.0)
        assert cores < 0.06
    finally:
        hold.release()  # what is throttled dies late
        greedy.stop()


@pytest.mark.only_v1("on v2 parent and child do not bind each other")
def test_v1_children_follow_down_and_up_and_get_their_own_back(
    groups: Groups, trees: Trees, hold: Hold
) -> None:
    path = groups.pod("besteffort", "a")
    child = groups.directory("cpu", path) / "cpu.cfs_quota_us"
    child.write_text("150000")
    original = cpu_quota.observe(trees.cpu)
    assert hold.quota(300) == 300
    assert child.read_text() == "3000\n"
    assert hold.quota(10) == 10
    assert hold.quota(1000) == 1000
    assert child.read_text() == "10000\n"
    assert hold.quota(2000) == 2000
    assert child.read_text() == "150000\n"
    assert hold.release() == []
    assert cpu_quota.observe(trees.cpu) == original


def test_burst_and_foreign_period_do_not_stand_in_the_way(trees: Trees, hold: Hold) -> None:
    now = cpu_quota.read(trees.cpu, BE_ROOT)
    assert now is not None
    if now.burst_us is None:
        unavailable("this kernel has no burst")
    own = cpu_quota.GroupQuota(BE_ROOT, 400_000, 200_000, 200_000)
    assert cpu_quota.apply(trees.cpu, cpu_quota.QuotaPlan(((now, own),))) == 2000
    assert hold.quota(1000) == 1000
    assert hold.release() == []
    assert cpu_quota.read(trees.cpu, BE_ROOT) == own


def test_idle_and_weight_are_restored(groups: Groups, trees: Trees, hold: Hold) -> None:
    now = cpu_idle.observe(trees.cpu)
    if now is None:
        unavailable("this kernel has no cpu.idle")
    weight = "cpu.shares" if trees.cpu.version == 1 else "cpu.weight"
    (groups.directory("cpu", groups.be_root) / weight).write_text("77")
    hold.idle()
    held = cpu_idle.observe(trees.cpu)
    assert held is not None
    assert held.idle == 1
    assert hold.release() == []
    assert cpu_idle.observe(trees.cpu) == cpu_idle.Idle(0, 77)


def test_drift_by_a_foreign_writer_is_applied_again(
    groups: Groups, trees: Trees, hold: Hold
) -> None:
    hold.quota(300)
    hold.idle()
    directory = groups.directory("cpu", groups.be_root)
    if trees.cpu.version == 1:
        (directory / "cpu.cfs_quota_us").write_text("-1")
        (directory / "cpu.cfs_period_us").write_text("50000")
    else:
        (directory / "cpu.max").write_text("max 50000")
    assert hold.quota(300) == 300
    assert hold.drift == 1
    root = cpu_quota.read(trees.cpu, BE_ROOT)
    assert root is not None
    assert root.period_us == cpu_quota.PERIOD_US


def test_kernel_refusal_is_an_error_with_its_errno(trees: Trees) -> None:
    now = cpu_quota.observe(trees.cpu)
    absurd = cpu_quota.GroupQuota(BE_ROOT, 1 << 62, 100_000)
    with pytest.raises(ActuatorFailed, match="cpu_quota") as failure:
        cpu_quota.apply(trees.cpu, cpu_quota.QuotaPlan(((now[0], absurd),)))
    assert failure.value.reason in ("cpu_quota:EINVAL", "cpu_quota:ERANGE")
    assert cpu_quota.observe(trees.cpu) == now


def test_throttled_pod_dies_at_once_because_the_quota_is_lifted(
    groups: Groups, trees: Trees, hold: Hold, tmp_path: Path
) -> None:
    greedy, other = hog(groups, "a", 4, tmp_path), hog(groups, "b", 1, tmp_path)
    try:
        assert hold.quota(10) == 10
        hold.idle()
        idle = cpu_idle.observe(trees.cpu)
        eventually(lambda: _throttled(trees), 5, "the spinners to be throttled")
        facts = {uid: PodFact(uid, uid, qos="BE") for uid in ("a", "b")}
        paths = {uid: f"{groups.be_root}/{uid}" for uid in facts}
        victim = best_effort_pod("a", facts, paths, groups.be_root)
        todo = evict.plan(trees.cpu.version, victim, evict.observe(trees.cpu, victim))
        done = evict.apply(trees.cpu, trees.unified, todo)
        assert (done.processes, done.empty) == (4, True)
        assert done.took_us < patient(200_000)
        assert greedy.wait(patient(2)) == -9
        assert other.alive
        assert cpu_quota.in_force(trees.cpu) == 10  # put back
        assert cpu_idle.observe(trees.cpu) == idle
    finally:
        hold.release()
        greedy.stop()
        other.stop()


def test_starved_pod_dies_because_idle_is_lifted_too(
    groups: Groups, trees: Trees, hold: Hold, tmp_path: Path
) -> None:
    greedy = hog(groups, "a", 2, tmp_path)
    online = Greedy(groups.pod("online", "web"), 6, tmp_path / "web.counts")
    try:
        hold.idle()
        fact = {"a": PodFact("a", "a", qos="BE")}
        victim = best_effort_pod("a", fact, {"a": f"{groups.be_root}/a"}, groups.be_root)
        todo = evict.plan(trees.cpu.version, victim, evict.observe(trees.cpu, victim))
        done = evict.apply(trees.cpu, trees.unified, todo)
        assert (done.processes, done.empty) == (2, True)
        assert done.took_us < patient(500_000)
        assert online.alive
    finally:
        greedy.stop()
        online.stop()


def test_nested_groups_of_the_pod_die_with_it(groups: Groups, trees: Trees, tmp_path: Path) -> None:
    # On v2 a group with controllers has processes or children, never both.
    outer = Greedy(groups.pod("besteffort", "a/main"), 1, tmp_path / "main.counts")
    inner = Greedy(groups.pod("besteffort", "a/side/below"), 1, tmp_path / "side.counts")
    try:
        fact = {"a": PodFact("a", "a", qos="BE")}
        victim = best_effort_pod("a", fact, {"a": f"{groups.be_root}/a"}, groups.be_root)
        done = evict.apply(
            trees.cpu,
            trees.unified,
            evict.plan(trees.cpu.version, victim, evict.observe(trees.cpu, victim)),
        )
        assert (done.processes, done.empty) == (2, True)
        assert (outer.wait(patient(2)), inner.wait(patient(2))) == (-9, -9)
    finally:
        outer.stop()
        inner.stop()


def test_r6_online_groups_cannot_be_reached(groups: Groups, trees: Trees) -> None:
    path = groups.pod("online", "web")
    facts = {"web": PodFact("web", "web", qos="BE")}  # even when inventory is wrong
    with pytest.raises(NotAVictim, match="unsafe_path"):
        best_effort_pod("web", facts, {"web": path}, groups.be_root)
    with pytest.raises(UnsafePath):
        trees.cpu.write(("..", "online", "web"), "cpu.idle", "1")
    idle = groups.directory("cpu", path) / "cpu.idle"
    assert not idle.exists() or idle.read_text() == "0\n"


def test_next_start_restores_what_a_crash_left(
    groups: Groups, trees: Trees, tmp_path: Path
) -> None:
    before = (cpu_quota.observe(trees.cpu), cpu_idle.observe(trees.cpu))
    journal = Journal(tmp_path / "crashed", "k" * 32)
    journal.boot("b1", 1)
    crashed = Hold(journal, use_idle=True, dry_run=False)
    crashed.trees = trees
    crashed.quota(300)
    crashed.idle()
    del crashed  # no farewell
    again = Journal(tmp_path / "crashed", "k" * 32)
    began = time.monotonic()
    assert originals.release(trees, again) == []
    assert time.monotonic() - began < 1
    assert (cpu_quota.observe(trees.cpu), cpu_idle.observe(trees.cpu)) == before
    again.close()
    journal.close()


def _throttled(trees: Trees) -> bool:
    text = trees.cpu.read(BE_ROOT, "cpu.stat") or ""
    return any(
        line.startswith("nr_throttled") and int(line.split()[1]) > 3 for line in text.splitlines()
    )
