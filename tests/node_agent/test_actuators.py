"""Actuators on trees of plain files: paths, order of writes, undo, crashes at every write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent import originals
from node_agent.actuators import cpu_idle, cpu_quota, evict
from node_agent.actuators.beneath import UnsafePath, safe_parts
from node_agent.actuators.cpu_quota import GroupQuota
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.pods import BestEffortPod, NotAVictim, best_effort_pod
from node_agent.actuators.subtree import BE_ROOT, Subtree, inside
from node_agent.hold import Hold
from node_agent.journal import Journal
from node_agent.originals import Trees
from schemas.records import PodFact
from tests.node_agent.trees import BE, V1_GROUP, V2_GROUP, Crash, NthWrite, group, subtree, trees

POD, SIDE = ("pod1",), ("pod1", "side")
FACTS = {
    "a": PodFact("a", "a", qos="BE"),
    "b": PodFact("b", "b", qos="LS"),
    "c": PodFact("c", "c", qos="BE", evictable=False),
}


def v1_tree(mount: Path) -> None:
    group(mount / BE, V1_GROUP)
    group(mount / BE / "pod1", V1_GROUP, cpu__cfs_quota_us="200000\n")
    group(mount / BE / "pod1/side", V1_GROUP, cpu__cfs_quota_us="50000\n")
    group(mount / "online", V1_GROUP)


def quota_of(mount: Path, path: str) -> str:
    return (mount / path / "cpu.cfs_quota_us").read_text().strip()


@pytest.mark.parametrize(
    "path", ["", "/", "..", "../..", "a/../b", "./a", "a//b", "/a", "a/", "a\0b", ".", "a/."]
)
def test_r6_unsafe_paths_are_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        safe_parts(path)
    with pytest.raises(UnsafePath):
        inside(path, BE)


@pytest.mark.parametrize("path", [BE, "kubepods", "kubepods/besteffort2/pod", "kubepods/burstable"])
def test_r6_outside_is_outside_even_when_it_begins_alike(path: str) -> None:
    with pytest.raises(UnsafePath, match="does not lie inside"):
        inside(path, BE)


@given(st.text(alphabet="ab./\0", max_size=12))
def test_r6_no_text_leads_out_of_the_subtree(path: str) -> None:
    try:
        parts = inside(f"{BE}/{path}", BE)
    except UnsafePath:
        return
    assert parts
    assert not {"", ".", ".."} & set(parts)


def test_r6_symlink_in_the_way_is_not_followed(tmp_path: Path) -> None:
    v1_tree(tmp_path)
    (tmp_path / BE / "link").symlink_to(tmp_path / "online")
    (tmp_path / BE / "pod1/cpu.idle").unlink()
    (tmp_path / BE / "pod1/cpu.idle").symlink_to(tmp_path / "online/cpu.idle")
    cpu = subtree(tmp_path, 1)
    with pytest.raises(UnsafePath, match="symlink"):
        cpu.write(("link",), "cpu.cfs_quota_us", "1000")
    with pytest.raises(OSError, match="symbolic links") as error:
        cpu.write(POD, "cpu.idle", "1")
    assert error.value.errno == errno.ELOOP
    assert (tmp_path / "online/cpu.idle").read_text() == "0\n"
    assert ("link",) not in cpu.groups()


def test_r6_symlinked_best_effort_root_is_refused(tmp_path: Path) -> None:
    group(tmp_path / "online", V1_GROUP)
    (tmp_path / "kubepods").mkdir()
    (tmp_path / BE).symlink_to(tmp_path / "online")
    with pytest.raises(UnsafePath, match="symlink"):
        cpu_quota.read(subtree(tmp_path, 1), BE_ROOT)


@pytest.mark.parametrize("group_parts", [("..",), ("",), ("a/b",), (".", "pod1")])
def test_r6_hand_made_parts_are_checked_too(tmp_path: Path, group_parts: tuple[str, ...]) -> None:
    v1_tree(tmp_path)
    with pytest.raises(UnsafePath):
        subtree(tmp_path, 1).write(group_parts, "cpu.idle", "1")


@pytest.mark.parametrize(
    ("file", "text"), [("cpu.idle", ""), ("cpu.idle", " \n"), ("cgroup.procs", "1"), ("../x", "1")]
)
def test_r6_empty_text_and_unlisted_files_are_never_written(
    tmp_path: Path, file: str, text: str
) -> None:
    v1_tree(tmp_path)
    with pytest.raises(UnsafePath, match="refusing"):
        subtree(tmp_path, 1).write(POD, file, text)


@pytest.mark.parametrize("root", ["", "/", ".", "/kubepods"])
def test_r6_hierarchy_root_cannot_be_the_best_effort_root(tmp_path: Path, root: str) -> None:
    with pytest.raises(UnsafePath):
        Subtree(str(tmp_path), 1, root)


def test_r6_victims_are_made_from_inventory_and_path_only() -> None:
    paths = {"a": f"{BE}/a", "b": "kubepods/burstable/b", "c": f"{BE}/c"}
    victim = best_effort_pod("a", FACTS, paths, BE)
    assert (victim.uid, victim.group) == ("a", ("a",))
    with pytest.raises(TypeError):
        BestEffortPod(object(), "b", ("b",))


@pytest.mark.parametrize(
    ("uid", "paths", "reason"),
    [
        ("", {}, "unknown_pod"),
        ("nobody", {"nobody": f"{BE}/x"}, "unknown_pod"),
        ("b", {"b": f"{BE}/b"}, "not_best_effort"),
        ("c", {"c": f"{BE}/c"}, "opted_out"),
        ("a", {}, "no_path"),
        ("a", {"a": ""}, "unsafe_path"),
        ("a", {"a": f"{BE}/../burstable/b"}, "unsafe_path"),
        ("a", {"a": BE}, "unsafe_path"),
        ("a", {"a": "kubepods/burstable/b"}, "unsafe_path"),
        ("a", {"a": f"{BE}/a", "b": f"{BE}/a/b"}, "holds_other_pod"),
        ("a", {"a": f"{BE}/a", "b": f"{BE}/a"}, "holds_other_pod"),
    ],
)
def test_r6_who_is_no_victim(uid: str, paths: dict[str, str], reason: str) -> None:
    with pytest.raises(NotAVictim) as refusal:
        best_effort_pod(uid, FACTS, paths, BE)
    assert refusal.value.reason == reason


@pytest.mark.parametrize(
    ("milli", "us", "period_us"),
    [
        (0, 1000, 100_000),
        (3, 1000, 100_000),
        (10, 1000, 100_000),
        (99, 9900, 100_000),
        (100, 1000, 10_000),
        (1500, 15_000, 10_000),
    ],
)
def test_milli_to_quota_never_below_what_the_kernel_takes(
    milli: int, us: int, period_us: int
) -> None:
    assert cpu_quota.bandwidth(milli) == (us, period_us)


def test_r11_v1_narrows_children_first_and_widens_them_last(tmp_path: Path) -> None:
    v1_tree(tmp_path)
    cpu = subtree(tmp_path, 1)
    before = cpu_quota.observe(cpu)
    kept = {q.group: q for q in before}
    down = cpu_quota.plan(before, kept, 300)
    assert [then.group for _, then in down.steps] == [SIDE, POD, BE_ROOT]
    assert cpu_quota.apply(cpu, down) == 300
    up = cpu_quota.plan(cpu_quota.observe(cpu), kept, 1000)
    assert [then.group for _, then in up.steps] == [BE_ROOT, POD, SIDE]
    cpu_quota.apply(cpu, up)
    assert quota_of(tmp_path, f"{BE}/pod1") == "10000"
    assert quota_of(tmp_path, f"{BE}/pod1/side") == "50000"  # its own limit, not beyond
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), kept, None))
    assert cpu_quota.observe(cpu) == before


def test_applied_plan_leaves_nothing_to_do(tmp_path: Path) -> None:
    v1_tree(tmp_path)
    cpu = subtree(tmp_path, 1)
    kept = {q.group: q for q in cpu_quota.observe(cpu)}
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), kept, 300))
    assert cpu_quota.plan(cpu_quota.observe(cpu), kept, 300).steps == ()


def test_r11_v2_burst_is_lowered_before_the_quota(tmp_path: Path) -> None:
    group(tmp_path / BE, V2_GROUP, cpu__max="400000 100000\n", cpu__max__burst="200000\n")
    written: list[bytes] = []
    recorder = NthWrite(0, None)

    def record(descriptor: int, raw: bytes) -> int:
        written.append(raw)
        return recorder(descriptor, raw)

    cpu = subtree(tmp_path, 2, record)
    original = cpu_quota.observe(cpu)
    kept = {q.group: q for q in original}
    assert cpu_quota.apply(cpu, cpu_quota.plan(original, kept, 1000)) == 1000
    assert written == [b"0", b"10000 10000"]
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), kept, None))
    assert cpu_quota.observe(cpu) == original


def test_foreign_period_is_read_right_and_replaced(tmp_path: Path) -> None:
    group(tmp_path / BE, V2_GROUP, cpu__max="50000 200000\n")
    cpu = subtree(tmp_path, 2)
    assert cpu_quota.in_force(cpu) == 250
    kept = {q.group: q for q in cpu_quota.observe(cpu)}
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), kept, 250))
    assert (tmp_path / BE / "cpu.max").read_text() == "2500 10000\n"


def test_v1_second_order_is_tried_when_the_first_is_refused(tmp_path: Path) -> None:
    group(tmp_path / BE, V1_GROUP, cpu__cfs_quota_us="25000\n", cpu__cfs_period_us="50000\n")
    cpu = subtree(tmp_path, 1, NthWrite(1, errno.EINVAL))
    now = cpu_quota.observe(cpu)
    assert cpu_quota.apply(cpu, cpu_quota.plan(now, {q.group: q for q in now}, 2000)) == 2000


def test_missing_controller_is_no_limit_and_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / BE).mkdir(parents=True)
    cpu = subtree(tmp_path, 2)
    assert cpu_quota.observe(cpu) == ()
    assert cpu_quota.in_force(cpu) == -1
    assert cpu_idle.observe(cpu) is None


def test_refused_write_puts_back_what_was_written(tmp_path: Path) -> None:
    v1_tree(tmp_path)
    before = cpu_quota.observe(subtree(tmp_path, 1))
    kept = {q.group: q for q in before}
    for at in (1, 2, 3):
        cpu = subtree(tmp_path, 1, NthWrite(at, errno.EACCES))
        with pytest.raises(ActuatorFailed, match="EACCES") as failure:
            cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), kept, 300))
        assert failure.value.reason == "cpu_quota:EACCES"
        assert cpu_quota.observe(cpu) == before


def test_idle_keeps_the_weight_that_the_kernel_forgets(tmp_path: Path) -> None:
    group(tmp_path / BE, V1_GROUP)
    cpu = subtree(tmp_path, 1)
    now = cpu_idle.observe(cpu)
    assert now == cpu_idle.Idle(0, 2)
    on = cpu_idle.plan(1, now, cpu_idle.Idle(1, 2))
    assert on.writes == (("cpu.idle", 1),)
    off = cpu_idle.plan(1, cpu_idle.Idle(1, 3), now)
    assert off.writes == (("cpu.idle", 0), ("cpu.shares", 2))


quotas = st.builds(
    GroupQuota,
    st.just(BE_ROOT),
    st.one_of(st.just(-1), st.integers(1000, 1_000_000)),
    st.sampled_from([10_000, 100_000, 1_000_000]),
    st.one_of(st.none(), st.integers(0, 100_000)),
)


@given(quotas, quotas, st.integers(0, 64_000))
def test_r11_plan_never_widens_a_child_beyond_root_or_original(
    root: GroupQuota, own: GroupQuota, allow: int
) -> None:
    child = GroupQuota(POD, own.quota_us, own.period_us, own.burst_us)
    observed = (root, child)
    todo = cpu_quota.plan(observed, {}, allow)
    final = {now.group: now for now in observed} | {then.group: then for _, then in todo.steps}
    said = final[BE_ROOT].quota_us, final[BE_ROOT].period_us
    assert said == cpu_quota.bandwidth(allow)
    assert not final[POD].wider_than(child)
    if final[POD].quota_us >= 0:
        assert not final[POD].wider_than(final[BE_ROOT])


def held(tmp_path: Path, mount: Path, at: int, error: int | None) -> tuple[Hold, Journal, Trees]:
    journal = Journal(tmp_path / "state", "k" * 32)
    journal.boot("b1", 1)
    hold = Hold(journal, use_idle=True, dry_run=False)
    there = Trees(subtree(mount, 1, NthWrite(at, error)), None)
    hold.trees = there
    return hold, journal, there


@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("error", [None, errno.EINVAL, errno.ENOSPC])
def test_r10_crash_at_every_write_the_next_start_restores(
    tmp_path: Path, at: int, error: int | None
) -> None:
    """Hold, hold again lower, hold higher, stop: killed or refused at the n-th kernel write."""
    mount = tmp_path / "cpu"
    v1_tree(mount)
    before = (cpu_quota.observe(subtree(mount, 1)), cpu_idle.observe(subtree(mount, 1)))
    hold, journal, _ = held(tmp_path, mount, at, error)
    try:
        for allow in (700, 20, 1500):
            hold.quota(allow)
            hold.idle()
        hold.release()
    except (Crash, ActuatorFailed):
        pass
    journal.close()
    again = Journal(tmp_path / "state", "k" * 32)
    assert originals.release(trees(mount), again) == []
    again.close()
    after = (cpu_quota.observe(subtree(mount, 1)), cpu_idle.observe(subtree(mount, 1)))
    assert after == before
    assert again.state.originals == {}


@pytest.mark.parametrize("at", range(1, 8))
def test_r10_crash_at_every_journal_write_never_loses_an_original(tmp_path: Path, at: int) -> None:
    mount = tmp_path / "cpu"
    v1_tree(mount)
    before = (cpu_quota.observe(subtree(mount, 1)), cpu_idle.observe(subtree(mount, 1)))
    writes = 0

    def torn(descriptor: int, raw: bytes) -> int:
        nonlocal writes
        writes += 1
        if writes == at:
            os.write(descriptor, raw[:7])
            raise Crash
        return os.write(descriptor, raw)

    first = Journal(tmp_path / "state", "k" * 32)
    first.boot("b1", 1)
    first.close()
    journal = Journal(tmp_path / "state", "k" * 32, write=torn)
    hold = Hold(journal, use_idle=True, dry_run=False)
    hold.trees = trees(mount)
    try:
        hold.quota(700)
        hold.idle()
        hold.quota(20)
    except Crash:
        pass
    again = Journal(tmp_path / "state", "k" * 32)
    originals.release(trees(mount), again)
    after = (cpu_quota.observe(subtree(mount, 1)), cpu_idle.observe(subtree(mount, 1)))
    assert after == before


def test_child_that_its_owner_resized_keeps_the_new_value(tmp_path: Path) -> None:
    mount = tmp_path / "cpu"
    v1_tree(mount)
    hold, journal, _ = held(tmp_path, mount, 0, None)
    hold.quota(3000)
    (mount / BE / "pod1/cpu.cfs_quota_us").write_text("150000\n")  # the owner, while uncapped
    hold.quota(500)
    assert quota_of(mount, f"{BE}/pod1") == "5000"
    hold.release()
    assert quota_of(mount, f"{BE}/pod1") == "150000"
    journal.close()


def test_drift_is_put_right_at_once_and_counted(tmp_path: Path) -> None:
    mount = tmp_path / "cpu"
    v1_tree(mount)
    hold, journal, _ = held(tmp_path, mount, 0, None)
    assert hold.quota(300) == 300
    hold.idle()
    assert hold.drift == 0
    (mount / BE / "cpu.cfs_quota_us").write_text("-1\n")
    assert hold.quota(300) == 300
    (mount / BE / "cpu.idle").write_text("0\n")
    hold.idle()
    assert (mount / BE / "cpu.idle").read_text().strip() == "1"
    assert hold.drift == 2
    hold.release()
    assert quota_of(mount, BE) == "-1"
    journal.close()


@pytest.mark.parametrize("foreign", ["max 100000", "50000 200000", "100000 100000"])
def test_a_unit_that_systemd_writes_anew_is_put_right_in_one_step_with_its_period(
    tmp_path: Path, foreign: str
) -> None:
    """A quarter of a core with a long period, then whatever the reload leaves there."""
    group(tmp_path / "cpu" / BE, V2_GROUP, cpu__max="50000 200000\n")
    journal = Journal(tmp_path / "state", "k" * 32)
    hold = Hold(journal, use_idle=False, dry_run=False)
    hold.trees = trees(tmp_path / "cpu", 2)
    said = tmp_path / "cpu" / BE / "cpu.max"
    assert hold.in_force() == 250
    assert hold.quota(2000) == 2000
    assert said.read_text() == "20000 10000\n"
    said.write_text(foreign + "\n")
    assert hold.quota(2000) == 2000
    assert (said.read_text(), hold.drift) == ("20000 10000\n", 1)
    assert hold.release() == []
    assert said.read_text() == "50000 200000\n"
    journal.close()


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "cpu"
    v1_tree(mount)
    before = cpu_quota.observe(subtree(mount, 1))
    journal = Journal(tmp_path / "state", "k" * 32)
    hold = Hold(journal, use_idle=True, dry_run=True)
    hold.trees = trees(mount)
    assert hold.quota(300) == -1
    hold.idle()
    assert cpu_quota.observe(subtree(mount, 1)) == before
    assert journal.state.originals == {}
    journal.close()


def test_v2_eviction_lifts_kills_by_group_and_puts_back(tmp_path: Path) -> None:
    group(tmp_path / BE, V2_GROUP, cpu__max="1000 100000\n")
    group(tmp_path / BE / "a", V2_GROUP, cpu__max="50000 100000\n")
    written: list[bytes] = []
    recorder = NthWrite(0, None)

    def record(descriptor: int, raw: bytes) -> int:
        written.append(raw)
        return recorder(descriptor, raw)

    cpu = subtree(tmp_path, 2, record)
    victim = best_effort_pod("a", FACTS, {"a": f"{BE}/a"}, BE)
    done = evict.apply(cpu, cpu, evict.plan(2, victim, evict.observe(cpu, victim)))
    assert done.empty
    lifted = [b"max 100000", b"max 100000"]
    assert written == [*lifted, b"1", b"50000 100000", b"1000 100000"]
    assert (tmp_path / BE / "a/cgroup.kill").read_text() == "1\n"
    assert (tmp_path / BE / "cgroup.kill").read_text() == ""


def test_group_that_stays_populated_is_said_and_the_quota_is_back(tmp_path: Path) -> None:
    group(tmp_path / BE, V2_GROUP, cpu__max="1000 100000\n")
    group(tmp_path / BE / "a", V2_GROUP, cgroup__events="populated 1\nfrozen 0\n")
    cpu = subtree(tmp_path, 2)
    victim = best_effort_pod("a", FACTS, {"a": f"{BE}/a"}, BE)
    todo = evict.plan(2, victim, evict.observe(cpu, victim))
    done = evict.apply(cpu, cpu, todo, deadline_us=20_000)
    assert not done.empty
    assert done.took_us >= 20_000
    assert cpu_quota.in_force(cpu) == 10
