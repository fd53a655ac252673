"""Every knob over trees of both versions: set, idempotent, drift, given back, crashes at any write.

A new knob is one line in CASES: what is asked, and what then stands in the tree.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from node_agent.actuators.knob import Knob
from node_agent.actuators.knobs.cpu_bandwidth import CpuBandwidth
from node_agent.cgroup.layout import Version
from node_agent.isolation import NOTHING, release_kept
from node_agent.journal import Journal
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    LS_POD,
    FakeKernel,
    contents,
    isolation,
    layout,
    make_tree,
)
from tests.node_agent.trees import Crash

S = 1_000_000


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


def pods(uids: str, **columns: list[int | None]) -> IsolationSettings:
    return IsolationSettings(pods=tuple(uids.split()), pod_knobs=columns)


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
        pods("ls", cpu_quota_us=[100_000], cpu_burst_us=[50_000]),
        {
            f"{LS_POD}/cpu.max.burst": "50000",
            f"{LS_POD}/c1/cpu.max.burst": "37500",
            f"{LS_POD}/c2/cpu.max.burst": "6250",
        },
        f"{LS_POD}/c1/cpu.max.burst", "10",
    ),
]  # fmt: skip

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def without(*names: str) -> IsolationSettings:
    return IsolationSettings(classes={"LS": dict.fromkeys(names, 1)})


@each_case
def test_settings_stand_twice_is_once_and_all_is_given_back(tmp_path: Path, case: Case) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, case.version)
    before = contents(mount)
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, case.version, [case.knob], kernel) as held:
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
    make_tree(mount, case.version)
    before = contents(mount)
    with isolation(tmp_path / "s", mount, case.version, [case.knob], FakeKernel()) as held:
        held.obey(case.settings)
        held.beat(0)
        (mount / case.drift).write_text(before[case.drift] + "\n")
        held.beat(S)
        assert contents(mount)[case.drift] == case.stands[case.drift]
        assert held.keeper.drift == 1
        (mount / case.drift).write_text(case.foreign + "\n")
        held.beat(2 * S)
        assert held.keeper.drift == 2
        assert held.release() == []
    assert contents(mount) == before | {case.drift: case.foreign}


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
        make_tree(mount, case.version)
        before = contents(mount)
        error = errno.EACCES if how == "refused" else None
        kernel = FakeKernel(at, error, before=how == "before")
        try:
            with isolation(state, mount, case.version, [case.knob], kernel) as held:
                held.obey(case.settings)
                held.beat(0)
                held.obey(NOTHING)
                held.beat(S)
        except Crash:
            pass
        if at % 2:
            journal = Journal(state, "k" * 32)
            at_mount = layout(mount, case.version)
            assert release_kept(at_mount, journal, [case.knob], FakeKernel()) == []
            journal.close()
        else:
            with isolation(state, mount, case.version, [case.knob], FakeKernel()) as held:
                held.beat(0)
        assert contents(mount) == before
        journal = Journal(state, "k" * 32)
        assert journal.state.kept == {}
        journal.close()
        if kernel.count < at:
            break
    assert at > 2
