"""Best-effort work bound to CPUs on a node: plans, both versions, this kernel, fallback."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent import originals
from node_agent.actuators import cpuset
from node_agent.actuators.beneath import Parts
from node_agent.actuators.cpuset import Cpus, GroupCpus
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import BE_ROOT
from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.hold import Hold
from node_agent.inventory import Census
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.originals import Trees, open_trees
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from schemas.policy import parse
from schemas.records import CpuTopology, Inventory, PodFact
from tests.node_agent.kernel import real_groups
from tests.node_agent.test_lease import NODE, suppress
from tests.node_agent.test_obey import Node, quota
from tests.node_agent.trees import BE, V1_GROUP, Crash, NthWrite, group, subtree
from tests.support import unavailable

BY_SET = parse("suppress: {policy: cpuset}", "test")
CHILD: Parts = ("pod1",)


def tree(folder: Path, version: Literal[1, 2], root: str, child: str) -> Trees:
    """A best-effort root with one pod; the cpu controller is v1."""
    group(folder / "cpu" / BE, V1_GROUP)
    group(folder / "cpuset" / BE, {"cpuset.cpus": f"{root}\n"})
    group(folder / "cpuset" / BE / "pod1", {"cpuset.cpus": f"{child}\n"})
    return Trees(subtree(folder / "cpu", 1), None, subtree(folder / "cpuset", version))


def text(folder: Path, *below: str) -> str:
    return folder.joinpath("cpuset", BE, *below, "cpuset.cpus").read_text().strip()


def holding(folder: Path, trees: Trees) -> Hold:
    journal = Journal(folder / "state", "k" * 32)
    journal.boot("b1", 1)
    made = Hold(journal, use_idle=False, dry_run=False)
    made.trees = trees
    return made


def test_v1_binds_root_and_pods_and_gives_each_its_own_back(tmp_path: Path) -> None:
    hold = holding(tmp_path, tree(tmp_path, 1, "0-7", "2-3"))
    assert hold.bind((1, 2, 5)) == (1, 2, 5)
    assert (text(tmp_path), text(tmp_path, "pod1")) == ("1,2,5", "2")
    assert hold.bind((0, 7)) == (0, 7)
    assert (text(tmp_path), text(tmp_path, "pod1")) == ("0,7", "0,7")
    hold.unbind()
    assert (text(tmp_path), text(tmp_path, "pod1")) == ("0,1,2,3,4,5,6,7", "2,3")
    assert hold.drift == 0


def test_v2_writes_the_root_alone_and_can_say_nothing_again(tmp_path: Path) -> None:
    hold = holding(tmp_path, tree(tmp_path, 2, "", "2-3"))
    assert hold.bind((1, 2)) == (1, 2)
    assert (text(tmp_path), text(tmp_path, "pod1")) == ("1,2", "2-3")
    assert hold.release() == []
    assert text(tmp_path) == ""


def test_v2_names_every_cpu_where_the_kernel_refuses_to_be_told_nothing(tmp_path: Path) -> None:
    trees = tree(tmp_path, 2, "", "2-3")
    refusing = subtree(tmp_path / "cpuset", 2, NthWrite(2, errno.ENOSPC))
    hold = holding(tmp_path, replace(trees, cpuset=refusing))
    assert hold.bind((1, 2)) == (1, 2)
    assert hold.release() == []
    assert text(tmp_path) == Path(cpuset.POSSIBLE).read_text().strip()


def test_a_pod_that_came_while_bound_gets_what_the_root_had(tmp_path: Path) -> None:
    hold = holding(tmp_path, tree(tmp_path, 1, "0-7", "0-7"))
    hold.bind((1, 2))
    group(tmp_path / "cpuset" / BE / "pod2", {"cpuset.cpus": "1,2\n"})
    hold.bind((1, 3))
    assert text(tmp_path, "pod2") == "1,3"
    group(tmp_path / "cpuset" / BE / "pod3", {"cpuset.cpus": "1,3\n"})
    hold.unbind()
    assert {text(tmp_path, pod) for pod in ("pod2", "pod3")} == {"0,1,2,3,4,5,6,7"}


def test_a_foreign_write_is_put_right_and_counted(tmp_path: Path) -> None:
    hold = holding(tmp_path, tree(tmp_path, 1, "0-3", "0-3"))
    hold.bind((1, 2))
    (tmp_path / "cpuset" / BE / "cpuset.cpus").write_text("0-3\n")
    assert hold.bind((1, 2)) == (1, 2)
    assert hold.drift == 1
    hold.unbind()
    assert text(tmp_path) == "0,1,2,3"


def test_another_start_finds_the_originals_in_the_journal(tmp_path: Path) -> None:
    first = holding(tmp_path, tree(tmp_path, 1, "0-63", "40-41"))
    first.bind((1, 33))
    again = Hold(Journal(tmp_path / "state", "k" * 32), use_idle=False, dry_run=False)
    again.trees = first.trees
    again.bind((2, 40))
    assert again.release() == []
    assert text(tmp_path) == ",".join(map(str, range(64)))
    assert text(tmp_path, "pod1") == "40,41"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("error", [None, errno.EACCES], ids=["killed", "refused"])
def test_r10_ended_at_every_write_the_next_start_or_release_all_restores(
    tmp_path: Path, version: Literal[1, 2], error: int | None
) -> None:
    """Bind, bind elsewhere, unbind, bind: killed before the n-th write, or refused it."""
    at, own = 0, ("0-7", "2-3") if version == 1 else ("", "2-3")
    before = [parse_cpu_list(text) for text in own]
    count = 1
    while at <= count:
        at += 1
        folder = tmp_path / str(at)
        there = tree(folder, version, *own)
        write = NthWrite(at, error)
        hold = holding(folder, replace(there, cpuset=subtree(folder / "cpuset", version, write)))
        for step in (lambda h: h.bind((1, 2, 5)), lambda h: h.bind((0, 7)), Hold.unbind,
                     lambda h: h.bind((4,)), Hold.release):  # fmt: skip
            try:
                step(hold)
            except ActuatorFailed:
                continue
            except Crash:
                break
        count = write.count
        journal = Journal(folder / "state", "k" * 32)
        if at % 2:
            again = Hold(journal, use_idle=False, dry_run=False)
            again.trees = there
            again.bind((3,))
            assert again.release() == []
        else:
            assert originals.release(there, journal) == []
        journal.close()
        after = [parse_cpu_list(text(folder)), parse_cpu_list(text(folder, "pod1"))]
        assert after == before, f"at write {at}"
    assert at > 4


def test_cpus_that_the_kernel_would_not_run_it_on_bind_nothing_and_are_not_named(
    tmp_path: Path,
) -> None:
    """A v2 group that names nothing of its parent's runs on all of its parent's."""
    hold = holding(tmp_path, tree(tmp_path, 2, "", "2-3"))
    effective = tmp_path / "cpuset" / BE / "cpuset.cpus.effective"
    effective.write_text("0-3\n")
    assert hold.bind((4, 5)) == ()
    assert text(tmp_path) == ""
    assert hold.bind((3, 4)) == (3,)
    assert text(tmp_path) == "3,4"
    effective.write_text("0-2\n")  # CPU 3 went off line: what its parent has is left
    assert hold.bind((3, 4)) == ()
    hold.unbind()
    assert text(tmp_path) == ""


def test_a_refused_write_leaves_what_was(tmp_path: Path) -> None:
    trees = tree(tmp_path, 1, "0-7", "2-3")
    refusing = subtree(tmp_path / "cpuset", 1, NthWrite(2, errno.EACCES))
    hold = holding(tmp_path, replace(trees, cpuset=refusing))
    with pytest.raises(ActuatorFailed) as refused:
        hold.bind((5, 6))
    assert refused.value.reason == "cpuset:EACCES"
    assert (text(tmp_path), text(tmp_path, "pod1")) == ("0-7", "2,3")


CPUS = st.sets(st.integers(0, 7), min_size=1).map(lambda found: tuple(sorted(found)))


@given(st.lists(CPUS, min_size=1, max_size=4), CPUS, CPUS)
def test_r11_no_step_of_a_plan_lets_a_child_leave_its_parent(
    children: list[Cpus], root: Cpus, wanted: Cpus
) -> None:
    inside = [tuple(cpu for cpu in child if cpu in root) or root for child in children]
    groups = [GroupCpus(BE_ROOT, root)]
    groups += [GroupCpus((f"p{i}",), cpus) for i, cpus in enumerate(inside)]
    now = {each.group: each.cpus for each in groups}
    before = dict(now)
    for target in (wanted, None):
        todo = cpuset.plan([GroupCpus(g, c) for g, c in now.items()], before, target)
        for was, then in todo.steps:
            assert now[was.group] == was.cpus
            now[then.group] = then.cpus
            assert all(set(cpus) <= set(now[BE_ROOT]) and cpus for cpus in now.values())
        assert now[BE_ROOT] == (wanted if target else root)
    assert now == before


async def test_cpus_bind_and_lift_the_quota_and_come_back(tmp_path: Path) -> None:
    node = Node(tmp_path, tree(tmp_path, 1, "0-7", "0-7"))
    node.start(BY_SET)
    await node.obey.beat([replace(suppress(0, 3000), node=NODE, cpus=(0, 1, 2))])
    assert quota(tmp_path / "cpu") == 1_000  # nothing was granted yet: the floor, by quota
    (ack,) = await node.obey.command(replace(suppress(1, 2000, node.now_us), cpus=(4, 5)))
    assert (ack.outcome, ack.reason, ack.in_force_milli) == ("applied", "", 2000)
    assert (text(tmp_path), (tmp_path / "cpu" / BE / "cpu.cfs_quota_us").read_text()) == (
        "4,5", "-1\n",
    )  # fmt: skip
    node.obey.lease.policy = parse("suppress: {policy: quota}", "test")
    await node.obey.beat([])
    assert text(tmp_path) == "0,1,2,3,4,5,6,7"
    assert quota(tmp_path / "cpu") == 200_000


async def test_without_an_actuator_the_quota_holds_and_the_ack_says_so(
    tmp_path: Path,
) -> None:
    trees = tree(tmp_path, 1, "0-7", "0-7")
    refusing = subtree(tmp_path / "cpuset", 1, NthWrite(1, errno.EINVAL))
    for cpus, reason in ((None, "no_actuator:cpuset"), (refusing, "cpuset:EINVAL")):
        node = Node(tmp_path / reason, replace(trees, cpuset=cpus))
        node.start(BY_SET)
        await node.obey.beat([replace(suppress(0, 3000), node=NODE, cpus=(0, 1, 2))])
        (ack,) = await node.obey.command(replace(suppress(1, 2000, node.now_us), cpus=(4, 5)))
        assert (ack.outcome, ack.reason, ack.in_force_milli) == ("applied", reason, 2000)
        assert quota(tmp_path / "cpu") == 200_000


async def test_the_lower_of_both_laws_brings_its_own_cpus(tmp_path: Path) -> None:
    node = Node(tmp_path, tree(tmp_path, 1, "0-7", "0-7"))
    node.start(BY_SET)
    await node.obey.beat([replace(suppress(0, 1000), node=NODE, cpus=(6, 7))])
    await node.obey.command(replace(suppress(1, 2000, node.now_us), cpus=(4, 5)))
    assert text(tmp_path) == "6,7"
    await node.obey.beat([replace(suppress(0, 5000), node=NODE, cpus=(0, 1, 2, 3, 6))])
    assert text(tmp_path) == "4,5"
    node.now_us += 60_000_000  # silent for so long: the floor, by quota
    await node.obey.beat(None)
    assert text(tmp_path) == "0,1,2,3,4,5,6,7"
    assert quota(tmp_path / "cpu") == 1_000


async def test_cpus_of_an_lse_pod_are_taken_out_whatever_was_ordered(tmp_path: Path) -> None:
    node = Node(tmp_path, tree(tmp_path, 1, "0-7", "0-7"))
    node.start(BY_SET)
    mine = PodFact("x", "x", qos="LSE", cpus=(4,))
    record = Inventory(NODE, 2, 8000, 1 << 30, pods=(mine,))
    node.obey.follow(Census(record, ("online/x",), node.trees.root), node.trees)
    await node.obey.beat([replace(suppress(0, 5000), node=NODE, cpus=(0, 1, 2, 3, 5))])
    await node.obey.command(replace(suppress(1, 2000, node.now_us), cpus=(4, 5)))
    assert text(tmp_path) == "5"


async def test_cpus_that_are_off_line_are_not_named_and_without_any_the_quota_holds(
    tmp_path: Path,
) -> None:
    """Online CPUs have gaps, and fall while an order stands."""
    node = Node(tmp_path, tree(tmp_path, 1, "0-31", "0-31"))
    node.start(BY_SET)

    def on_line(*cpus: int) -> None:
        topology = CpuTopology(cpus, cpus, (0,) * len(cpus), (0,) * len(cpus))
        record = Inventory(NODE, 2, len(cpus) * 1000, 1 << 30, topology=topology)
        node.obey.follow(Census(record, (), node.trees.root), node.trees)

    on_line(0, 2, 4, 6, 8, 10, 12, 14, *range(16, 32))
    wanted = tuple(range(8))
    await node.obey.beat([replace(suppress(0, 8000), node=NODE, cpus=wanted)])
    command = replace(suppress(1, 8000, node.now_us), cpus=wanted)
    (ack,) = await node.obey.command(command)
    assert (ack.outcome, ack.in_force_milli) == ("applied", 4000)
    assert text(tmp_path) == "0,2,4,6"
    on_line(16, 17)
    await node.obey.beat([])
    assert parse_cpu_list(text(tmp_path)) == tuple(range(32))
    assert quota(tmp_path / "cpu") == 800_000


async def test_beside_a_kubelet_that_hands_out_cpus_itself_an_older_order_holds_by_quota(
    tmp_path: Path,
) -> None:
    """The order, and the one that outlives the centre, may be older than its policy."""
    node = Node(tmp_path, tree(tmp_path, 1, "0-7", "0-7"))
    node.start(BY_SET)
    await node.obey.beat([replace(suppress(0, 2000), node=NODE, cpus=(4, 5))])
    await node.obey.command(replace(suppress(1, 2000, node.now_us), cpus=(4, 5)))
    assert text(tmp_path) == "4,5"
    record = Inventory(NODE, 2, 8000, 1 << 30, capabilities={"cpu_manager_static": True})
    node.obey.follow(Census(record, (), node.trees.root), node.trees)
    await node.obey.beat([])
    assert (text(tmp_path), quota(tmp_path / "cpu")) == ("0,1,2,3,4,5,6,7", 200_000)


def test_the_last_granted_cpus_stay_with_the_last_granted_ceiling() -> None:
    lease = NodeLease(NODE, 10, policy=BY_SET)
    lease.clock.acknowledged(0, 0)
    lease.on_local(5000, 0, (0, 1, 2, 3, 4))
    lease.on_command(replace(suppress(1, 2000, 0), cpus=(4, 5)), 0, {})
    lapsed_us = 20_000_000 * 60
    lease.on_local(5000, lapsed_us, (0, 1, 2, 3, 4))
    target = lease.target(lapsed_us)
    assert target.allow_milli is not None
    assert target.allow_milli <= 2000
    assert set(target.cpus) <= {4, 5}


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        if made.layout.hierarchy("cpuset") is None:
            unavailable("no cpuset controller is mounted")
        yield made


@pytest.mark.kernel
def test_on_this_kernel_a_spinner_runs_where_it_is_bound(groups: Groups, tmp_path: Path) -> None:
    trees = open_trees(groups.layout, groups.be_root)
    assert trees.cpuset is not None
    greedy = Greedy(groups.pod("besteffort", "a"), 1, tmp_path / "counts")
    try:
        before = cpuset.observe(trees.cpuset)
        if not before or len(os.sched_getaffinity(0)) < 2:
            unavailable("cpusets are not delegated here, or there is one CPU only")
        hold = holding(tmp_path, trees)
        last = max(os.sched_getaffinity(0))
        assert hold.bind((last,)) == (last,)
        pids = trees.cpuset.processes(BE_ROOT)
        assert pids
        assert all(os.sched_getaffinity(pid) == {last} for pid in pids)
        assert hold.bind((0, last)) == (0, last)
        assert hold.release() == []
        unbound = {before, (GroupCpus(BE_ROOT, parse_cpu_list(Path(cpuset.POSSIBLE).read_text())),)}
        assert cpuset.observe(trees.cpuset) in unbound
        assert originals.cpus(hold._journal, trees.root) == {}
    finally:
        greedy.stop()
        trees.close()
