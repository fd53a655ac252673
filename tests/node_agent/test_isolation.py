"""Isolation from command to ack: knob by knob, what is left out by name, what a restart knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.hierarchy import HierarchySurface
from node_agent.actuators.online import (
    OnlineGroups,
    OnlineNames,
    TakesAway,
    name_online,
)
from node_agent.actuators.roster import roster
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.obey import SAY_AGAIN_US, Obey
from schemas.policy import Reach, effective, parse
from schemas.records import Command, IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    LS_POD,
    TOP,
    FakeKernel,
    census,
    contents,
    layout,
    make_tree,
)
from tests.node_agent.test_lease import LOG_AHEAD_MS, NODE, renewal, suppress

ISOLATING = parse("memory_qos: {be: {enabled: true}}", "test")
"""Something is switched on, so orders count."""
ASKED = IsolationSettings(
    classes={"BE": {"no_such_knob": 1}},
    pods=("ls",),
    pod_knobs={"cpu_burst_us": [100_000]},
    daemons={"cpu_milli": 500},
    schemata={"BE": "L3:0=f;"},
)


class Node:
    """One node: its clock is set by hand, its journal outlives its starts."""

    def __init__(self, folder: Path, kernel: FakeKernel) -> None:
        self.now_us = 1_000_000
        self.mount = folder / "cgroup"
        make_tree(self.mount, 1)
        self.journal = Journal(folder / "state", "k" * 32)
        self.journal.boot("b1", 1)
        lease = NodeLease(NODE, 10, policy=ISOLATING)
        lease.clock.acknowledged(LOG_AHEAD_MS, 0)
        self.obey = Obey(boot="b1", journal=self.journal, lease=lease, mono_us=lambda: self.now_us)
        self.obey.follow(census(), None)
        self.obey.isolation.follow(census(), layout(self.mount, 1), kernel)

    def isolate(self, offset: int, settings: IsolationSettings | None) -> Command:
        said = suppress(offset, -1, self.now_us)
        return replace(said, id=f"i{offset}", decider="isolate", settings=settings)

    def text(self, file: str) -> str:
        return (self.mount / file).read_text().strip()


@contextmanager
def started(folder: Path, kernel: FakeKernel | None = None) -> Iterator[Node]:
    node = Node(folder, kernel or FakeKernel())
    try:
        yield node
    finally:
        node.obey.isolation.close()
        node.journal.close()


async def test_what_this_node_cannot_turn_is_left_out_by_name_and_the_rest_is_set(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as node:
        (ack,) = await node.obey.command(node.isolate(1, ASKED))
        assert ack.outcome == "applied"
        assert ack.reason == "no_actuator:no_such_knob,schemata"
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "100000"
        (ack,) = await node.obey.command(node.isolate(2, IsolationSettings()))
        assert (ack.outcome, ack.reason) == ("applied", "")
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "0"


async def test_what_policy_or_stage_switched_off_is_given_back_and_not_set_whatever_is_ordered(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as node:
        before = contents(node.mount)
        await node.obey.command(node.isolate(1, ASKED))
        after = contents(node.mount)
        node.obey.lease.policy = effective(ISOLATING, Reach()).policy  # stage observe
        node.now_us += SAY_AGAIN_US
        acks = [ack for ack in await node.obey.beat([]) if ack.decider == "isolate"]
        assert [(ack.outcome, ack.reason) for ack in acks] == [("local", "switched_off")]
        assert contents(node.mount) == before
        (ack,) = await node.obey.command(node.isolate(2, ASKED))
        assert (ack.outcome, ack.reason) == ("applied", "switched_off")
        assert contents(node.mount) == before
        node.obey.lease.policy = ISOLATING
        await node.obey.beat([])
        assert contents(node.mount) == after != before


async def test_nothing_but_unknown_knobs_is_refused(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        only = IsolationSettings(classes={"BE": {"no_such_knob": 1}})
        (ack,) = await node.obey.command(node.isolate(1, only))
        assert (ack.outcome, ack.reason) == ("refused", "no_actuator:no_such_knob")
        (ack,) = await node.obey.command(node.isolate(2, None))
        assert (ack.outcome, ack.reason) == ("refused", "no_settings")


async def test_a_restart_gives_back_and_learns_from_history_what_stands(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        before = contents(node.mount)
        command = node.isolate(1, ASKED)
        await node.obey.command(command)
        after = contents(node.mount)
        assert after != before
    with started(tmp_path) as node:
        make = {file: text for file, text in after.items() if text != before[file]}
        for file, text in make.items():  # the tree was made anew by the helper
            (node.mount / file).write_text(text)
        assert await node.obey.command(command, history=True) == []
        assert contents(node.mount) == after
        assert node.obey.isolation.settings == ASKED


async def test_a_restart_without_a_command_gives_back(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        await node.obey.command(node.isolate(1, ASKED))
        set_to = node.text(f"{LS_POD}/cpu.cfs_burst_us")
    with started(tmp_path) as node:
        (node.mount / LS_POD / "cpu.cfs_burst_us").write_text(set_to)
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "0"
        assert node.journal.state.kept == {}


async def test_what_the_kernel_refuses_later_is_said_once_and_tried_again(tmp_path: Path) -> None:
    kernel = FakeKernel(1, 13)
    with started(tmp_path, kernel) as node:
        (ack,) = await node.obey.command(node.isolate(1, ASKED))
        assert ack.outcome == "failed"
        assert ack.reason.startswith("failed:cpu_bandwidth:EACCES;no_actuator:")
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "0"
        node.now_us += SAY_AGAIN_US
        acks = [a for a in await node.obey.beat([]) if a.decider == "isolate"]
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "100000"
        assert [a.outcome for a in acks] == ["local"]


async def test_a_pod_that_comes_later_gets_its_part(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        at = layout(node.mount, 1)
        node.obey.isolation.follow(census(["be", "lsr"]), at, FakeKernel())
        await node.obey.command(node.isolate(1, ASKED))
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "0"
        node.obey.isolation.follow(census(), at, FakeKernel())
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "100000"
        node.obey.isolation.follow(census(["be"]), at, FakeKernel())  # it is named no more
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "0"


async def test_dry_run_reads_and_answers_and_writes_nothing(tmp_path: Path) -> None:
    kernel = FakeKernel()
    with started(tmp_path, kernel) as node:
        asked = replace(node.isolate(1, ASKED), dry_run=True)
        (ack,) = await node.obey.command(asked)
        assert (ack.outcome, ack.reason) == ("applied", "dry_run")
        await node.obey.beat([])
        assert kernel.count == 0


def test_tiers_are_the_groups_above_the_pods() -> None:
    found = roster(census())
    assert found.tiers == {
        "Guaranteed": TOP,
        "Burstable": f"{TOP}/burstable",
        "BestEffort": BE,
    }


def test_s4_online_groups_are_named_by_the_inventory_alone(tmp_path: Path) -> None:
    make_tree(tmp_path, 1)
    with pytest.raises(TypeError):
        OnlineNames(object(), frozenset(), frozenset())
    with pytest.raises(UnsafePath, match="best-effort"):
        name_online([BE_POD], (), BE)
    names = name_online([LS_POD], [TOP], BE)
    with OnlineGroups(str(tmp_path), names) as online:
        for group in (
            BE_POD,
            BE,
            f"{TOP}/burstable",
            f"{LS_POD}/c1/x/y",
            "..",
            "",
            f"{LS_POD}/../x",
        ):
            with pytest.raises(UnsafePath):
                online.write(group, "cpu.cfs_burst_us", "1", "0")


def test_r6_a_pod_that_is_online_now_is_online_below_an_older_best_effort_root_too(
    tmp_path: Path,
) -> None:
    make_tree(tmp_path, 1)
    surface = HierarchySurface(str(tmp_path), 1, [BE, TOP], name_online([LS_POD], (), BE))
    with pytest.raises(TakesAway):
        surface.write(LS_POD, "cpu.shares", "2", "1024")
    with pytest.raises(UnsafePath, match="refusing"):
        surface.write(LS_POD, "freezer.state", "FROZEN", "THAWED")
    surface.write(BE_POD, "cpu.shares", "2", "1024")
    surface.close()


@pytest.mark.parametrize(
    ("file", "text", "original"),
    [
        ("cpu.cfs_quota_us", "199999", "200000"),
        ("cpu.cfs_quota_us", "200000", "-1"),
        ("cpu.max", "100000 200000", "100000 100000"),
        ("cpu.max", "100000 100000", "max 100000"),
        ("cpu.shares", "2", "1024"),
        ("memory.min", "0", "4096"),
        ("memory.low", "4096", "max"),
        ("io.weight", "99", "default 100"),
        ("cpu.bvt_warp_ns", "-1", "0"),
        ("memory.wmark_min_adj", "50", "0"),
        ("memory.wmark_ratio", "0", "95"),
    ],
)
def test_r6_an_online_group_never_gets_less_than_it_had(
    tmp_path: Path, file: str, text: str, original: str
) -> None:
    with (
        OnlineGroups(str(tmp_path), name_online([LS_POD], (), BE)) as online,
        pytest.raises(TakesAway),
    ):
        online.write(LS_POD, file, text, original)


@pytest.mark.parametrize(
    "file",
    [
        "memory.high", "memory.max", "memory.limit_in_bytes", "memory.soft_limit_in_bytes",
        "io.max", "blkio.throttle.read_bps_device", "cgroup.freeze", "freezer.state",
        "cgroup.kill", "cpu.idle", "cpuset.cpus", "cgroup.procs", "cpu.cfs_period_us", "",
    ],
)  # fmt: skip
def test_r6_what_could_hold_an_online_pod_back_is_on_no_list(tmp_path: Path, file: str) -> None:
    with (
        OnlineGroups(str(tmp_path), name_online([LS_POD], (), BE)) as online,
        pytest.raises(UnsafePath, match="refusing"),
    ):
        online.write(LS_POD, file, "1", "1")


async def test_what_follows_the_load_is_given_back_while_nobody_renews_the_command(
    tmp_path: Path,
) -> None:
    asked = IsolationSettings(
        pods=("ls",), pod_knobs={"cpu_quota_us": [300_000], "cpu_burst_us": [100_000]}
    )
    with started(tmp_path) as node:
        await node.obey.command(node.isolate(1, asked))
        assert node.text(f"{LS_POD}/cpu.cfs_quota_us") == "300000"
        node.now_us += 60_000_000
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_quota_us") == "200000"
        assert node.text(f"{LS_POD}/cpu.cfs_burst_us") == "100000"
        node.obey.renewed(renewal(2, node.now_us))
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_quota_us") == "300000"
        node.obey.renewed(renewal(0, node.now_us + 90_000_000))  # older than the command
        node.now_us += 60_000_000
        await node.obey.beat([])
        assert node.text(f"{LS_POD}/cpu.cfs_quota_us") == "200000"
