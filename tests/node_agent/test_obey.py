"""From verdict to kernel to ack: what is said, what is written, what a restart remembers."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.eviction.node import EVICTORS
from node_agent.inventory import Census
from node_agent.journal import NAME, Journal
from node_agent.lease import NodeLease
from node_agent.obey import Obey
from node_agent.originals import Trees, open_trees
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from schemas.policy import EvictCpu, Eviction, Policy, Reach, effective
from schemas.records import Inventory, PodFact
from tests.node_agent.kernel import real_groups
from tests.node_agent.test_lease import FACTS, LOG_AHEAD_MS, NODE, evict, renewal, suppress
from tests.node_agent.trees import BE, V1_GROUP, NthWrite, group, subtree
from tests.support import patient

KERNEL = "k" * 32
PODS = tuple(FACTS.values())
EVICTING = Policy(evict_cpu=EvictCpu(enabled=True), eviction=Eviction(grace_ms=0))
OBSERVING = effective(Policy(), Reach()).policy  # nobody said a stage


class Node:
    """One node under test: its clock is set by hand, its journal outlives its starts."""

    def __init__(self, folder: Path, trees: Trees, paths: dict[str, str] | None = None) -> None:
        self.now_us = 1_000_000
        self.folder, self.trees = folder, trees
        self.paths = paths or {pod.uid: f"{trees.root}/{pod.uid}" for pod in PODS}
        self.starts = 0
        self.start()

    def start(self, policy: Policy | None = EVICTING, **more: Any) -> Obey:
        """``more``: of `Obey`."""
        self.starts += 1
        self.journal = Journal(self.folder / "state", KERNEL)
        self.journal.boot(f"b{self.starts}", self.now_us)
        lease = NodeLease(NODE, 10, policy=policy)
        lease.clock.acknowledged(LOG_AHEAD_MS, 0)
        self.obey = Obey(
            boot=f"b{self.starts}",
            journal=self.journal,
            lease=lease,
            mono_us=lambda: self.now_us,
            **more,
        )
        pods = tuple(pod for pod in PODS if pod.uid in self.paths)
        record = Inventory(NODE, 1, 4000, 1 << 30, pods=pods)
        groups = tuple(self.paths[pod.uid] for pod in pods)
        self.obey.follow(Census(record, groups, self.trees.root), self.trees)
        return self.obey

    def lines(self) -> list[dict[str, object]]:
        raw = (self.folder / "state" / NAME).read_bytes()
        return [orjson.loads(line) for line in raw.splitlines()]


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    group(tmp_path / "cpu" / BE, V1_GROUP)
    return tmp_path / "cpu"


@pytest.fixture
def node(tmp_path: Path, mount: Path) -> Node:
    return Node(tmp_path, Trees(subtree(mount, 1), None))


def quota(mount: Path) -> int:
    """As for a period of 100 ms."""
    quota_us = int((mount / BE / "cpu.cfs_quota_us").read_text())
    return quota_us * 100_000 // int((mount / BE / "cpu.cfs_period_us").read_text())


async def test_command_is_applied_at_once_and_answered_with_what_was_read_back(
    node: Node, mount: Path
) -> None:
    local = replace(suppress(0, 900), node=NODE)
    await node.obey.beat([local])
    (ack,) = await node.obey.command(suppress(1, 500, node.now_us))
    assert (ack.outcome, ack.asked_milli, ack.in_force_milli) == ("applied", 500, 500)
    assert (ack.incarnation, ack.offset, ack.boot) == (1, 1, "b1")
    assert quota(mount) == 50_000
    (ack,) = await node.obey.command(suppress(2, 2000, node.now_us))
    assert (ack.in_force_milli, ack.reason) == (900, "local")


async def test_own_acts_are_acked_as_local_only_when_something_changed(node: Node) -> None:
    (first,) = await node.obey.beat([suppress(0, 900)])
    assert (first.outcome, first.in_force_milli, first.command_id) == ("local", 10, "")
    assert await node.obey.beat([]) == []


async def test_r4_twice_is_once_also_after_a_restart(node: Node, mount: Path) -> None:
    await node.obey.beat([suppress(0, 5000)])
    first = suppress(1, 500, node.now_us)
    (answer,) = await node.obey.command(first)
    await node.obey.command(suppress(2, 300, node.now_us))
    for _ in range(2):
        (again,) = await node.obey.command(first)
        assert again.outcome == "duplicate"
        assert replace(again, outcome="applied", boot="b1", seq=0, mono_us=0) == replace(
            answer, seq=0, mono_us=0
        )
        assert quota(mount) == 30_000
        node.start()
        await node.obey.beat([suppress(0, 5000)])
    (stale,) = await node.obey.command(replace(suppress(1, 999, node.now_us), id="other"))
    assert (stale.outcome, stale.reason) == ("refused", "stale_order")
    assert quota(mount) == 30_000  # the ceiling was remembered too
    effects = [
        line["id"]
        for line in node.lines()
        if line["kind"] == "command" and line["outcome"] == "applied"
    ]
    assert len(effects) == len(set(effects))


async def test_r1_silent_brain_holds_through_a_restart_too(node: Node, mount: Path) -> None:
    await node.obey.beat([suppress(0, 5000)])
    await node.obey.command(suppress(1, 500, node.now_us))
    node.start()
    node.now_us += 600_000_000
    await node.obey.beat([suppress(0, 5000)])
    assert quota(mount) == 50_000
    await node.obey.beat([suppress(0, 200)])
    assert quota(mount) == 20_000


async def test_a_node_that_observes_writes_nothing_whatever_it_is_told(
    tmp_path: Path, mount: Path
) -> None:
    writes = NthWrite(1, errno.EIO)
    node = Node(tmp_path, Trees(subtree(mount, 1, writes), None))
    node.start(OBSERVING)
    for offset in range(3):
        await node.obey.beat([suppress(0, 10)])
        (ack,) = await node.obey.command(suppress(1 + 2 * offset, 500, node.now_us))
        assert (ack.outcome, ack.reason, ack.in_force_milli) == ("applied", "suppress_off", -1)
        (ack,) = await node.obey.command(evict(2 + 2 * offset, ("be-1",)))
        assert (ack.outcome, ack.reason) == ("refused", "switched_off")
    assert (writes.count, node.journal.state.originals) == (0, {})


async def test_taken_back_to_observe_all_is_given_back_once_and_let_go(
    node: Node, mount: Path
) -> None:
    before = {path.name: path.read_text() for path in (mount / BE).iterdir()}
    await node.obey.beat([suppress(0, 900)])
    assert (mount / BE / "cpu.idle").read_text() == "1\n"
    node.start(OBSERVING)
    (ack,) = await node.obey.beat([])
    assert (ack.outcome, ack.reason, ack.in_force_milli) == ("local", "suppress_off", -1)
    assert {path.name: path.read_text() for path in (mount / BE).iterdir()} == before
    (mount / BE / "cpu.cfs_quota_us").write_text("70000\n")
    (ack,) = await node.obey.beat([])
    assert ack.in_force_milli == 700
    assert quota(mount) == 70_000


async def test_lease_raises_a_standing_command_again(node: Node, mount: Path) -> None:
    await node.obey.beat([suppress(0, 5000)])
    node.now_us = 600_000_000
    (late,) = await node.obey.command(suppress(1, 500, 0))
    assert (late.outcome, late.reason) == ("refused", "expired")
    await node.obey.beat([suppress(0, 5000)])
    (raised,) = node.obey.renewed(renewal(2, node.now_us))
    assert (raised.outcome, raised.in_force_milli) == ("local", 500)


async def test_kernel_refusal_is_acked_once_and_tried_again(tmp_path: Path, mount: Path) -> None:
    refusing = NthWrite(0, errno.EACCES)
    node = Node(tmp_path, Trees(subtree(mount, 1, refusing), None))
    await node.obey.beat([suppress(0, 5000)])
    refusing.at = refusing.count + 1
    command = suppress(1, 500, node.now_us)
    (failed,) = await node.obey.command(command)
    assert (failed.outcome, failed.reason) == ("failed", "cpu_quota:EACCES")
    assert failed.in_force_milli == 10
    refusing.at = refusing.count + 1
    assert await node.obey.beat([]) == []  # said once
    (applied,) = await node.obey.beat([])
    assert (applied.outcome, applied.command_id) == ("applied", command.id)
    assert quota(mount) == 50_000


async def test_drift_is_corrected_on_the_beat(node: Node, mount: Path) -> None:
    await node.obey.beat([])
    (mount / BE / "cpu.cfs_quota_us").write_text("-1\n")
    await node.obey.beat([])
    assert quota(mount) == 1000
    assert node.obey.hold.drift == 1


async def test_best_effort_root_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    node = Node(tmp_path, Trees(subtree(tmp_path / "cpu", 1), None))
    (ack,) = await node.obey.command(suppress(1, 500, node.now_us))
    assert (ack.outcome, ack.reason) == ("applied", "no_best_effort_group")
    assert ack.in_force_milli == -1


@pytest.mark.parametrize("decider", EVICTORS)
async def test_eviction_that_was_interrupted_is_not_done_again(node: Node, decider: Any) -> None:
    command = replace(evict(1, ("be-1",), node.now_us), decider=decider)
    verdict = node.obey.lease.on_command(command, node.now_us, FACTS)
    node.obey.answers.intent(command, "command", verdict.evict)  # and then the process was gone
    node.start()
    (ack,) = await node.obey.command(command)
    assert (ack.outcome, ack.reason) == ("duplicate", "interrupted")


@pytest.mark.parametrize("decider", EVICTORS)
async def test_r6_path_that_leads_elsewhere_is_refused_although_inventory_agrees(
    tmp_path: Path, mount: Path, decider: Any
) -> None:
    paths = {"be-1": "kubepods/burstable/x"}
    node = Node(tmp_path, Trees(subtree(mount, 1), None), paths)
    command = replace(evict(1, ("be-1",), node.now_us), decider=decider)
    (ack,) = await node.obey.command(command)
    assert (ack.outcome, ack.reason, ack.pods) == ("refused", "unsafe_path", ())
    assert ack.decider == decider


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.mark.kernel
@pytest.mark.parametrize("decider", EVICTORS)
async def test_eviction_on_the_real_kernel_by_command_and_by_the_last_gate(
    groups: Groups, tmp_path: Path, decider: Any
) -> None:
    hogs = {
        uid: Greedy(groups.pod("besteffort", uid), 2, tmp_path / uid) for uid in ("be-1", "be-2")
    }
    try:
        paths = {uid: f"{groups.be_root}/{uid}" for uid in hogs}
        node = Node(tmp_path, open_trees(groups.layout, groups.be_root), paths)
        await node.obey.beat([])
        command = replace(evict(1, ("be-1",), node.now_us), decider=decider)
        (ack,) = await node.obey.command(command)
        assert (ack.outcome, ack.pods, ack.in_force_milli) == ("applied", ("be-1",), 10)
        assert ack.decider == decider
        assert hogs["be-1"].wait(patient(2)) == -9
        (again,) = await node.obey.command(command)
        assert (again.outcome, again.pods) == ("duplicate", ("be-1",))
        assert hogs["be-2"].alive
        assert await node.obey.beat([evict(0, ("be-2",))]) == []  # cool-down
        assert hogs["be-2"].alive
        node.now_us += 5_000_000
        (local,) = await node.obey.beat([evict(0, ("be-2",))])
        assert (local.outcome, local.pods) == ("local", ("be-2",))
        assert hogs["be-2"].wait(patient(2)) == -9
        assert node.obey.evictions.evicted_pods == 2
        assert node.obey.release() == []
    finally:
        for each in hogs.values():
            each.stop()


async def test_a_node_kills_for_cpu_by_order_only(node: Node) -> None:
    await node.obey.beat([])
    local = replace(evict(0, ("be-1",)), decider="evict_cpu")
    assert await node.obey.beat([local]) == []
    assert node.obey.evictions.evicted_pods == 0


async def test_unclassed_pod_never_becomes_a_victim_by_a_local_order(node: Node) -> None:
    (ack,) = [
        ack
        for ack in await node.obey.beat([evict(0, ("unclassed",))])
        if ack.decider == "evict_memory"
    ]
    assert (ack.reason, ack.pods) == ("not_best_effort", ())
    assert PodFact("x", "x").qos == ""


async def test_full_disk_neither_stops_holding_nor_lets_a_pod_be_killed_unrecorded(
    node: Node, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.obey.beat([suppress(0, 900)])

    def full(_descriptor: int, _raw: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(node.journal, "_write", full)
    (ack,) = await node.obey.command(suppress(1, 500, node.now_us))
    assert (ack.outcome, quota(mount)) == ("applied", 50_000)  # its original was kept before
    (refused,) = await node.obey.command(evict(2, ("be-1",), node.now_us))
    assert (refused.outcome, refused.reason) == ("refused", "os:ENOSPC")
    assert node.obey.answers.journal_failures > 0


async def test_history_is_not_answered_twice(node: Node) -> None:
    await node.obey.beat([suppress(0, 900)])
    command = suppress(1, 500, node.now_us)
    await node.obey.command(command)
    node.start()
    assert await node.obey.command(command, history=True) == []
