"""Limits of the daemons' group: only where the inventory file names it, and only that group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.daemons import DaemonsSurface
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.roster import roster
from node_agent.inventory import InventoryError
from node_agent.inventory_file import load
from node_agent.isolation import release_kept
from node_agent.journal import Journal
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    DAEMONS,
    LS_POD,
    MIB,
    TOP,
    FakeKernel,
    census,
    contents,
    isolation,
    layout,
    make_tree,
)

S = 1_000_000
ASKED = IsolationSettings(daemons={"cpu_milli": 1500, "memory_max_bytes": 512 * MIB})


@pytest.mark.parametrize(
    "named", [None, TOP, BE, BE_POD, f"{BE_POD}/c1", LS_POD, "kubepods/burstable"]
)
def test_no_group_is_touched_that_nobody_named_or_that_has_to_do_with_a_pod(
    tmp_path: Path, named: str | None
) -> None:
    mount, kernel = tmp_path / "cgroup", FakeKernel()
    make_tree(mount, 2)
    assert roster(replace(census(), daemons=named)).daemons is None
    with isolation(tmp_path / "s", mount, 2, KNOBS, kernel) as made:
        made.follow(replace(census(), daemons=named), layout(mount, 2), kernel, kernel.acts)
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == (
            "applied", "no_group:daemons_cpu_milli,daemons_memory_max_bytes",
        )  # fmt: skip
        assert kernel.count == 0


def test_when_it_is_named_no_more_all_is_given_back(tmp_path: Path) -> None:
    mount, kernel = tmp_path / "cgroup", FakeKernel()
    make_tree(mount, 2)
    before = contents(mount)
    with isolation(tmp_path / "s", mount, 2, KNOBS, kernel) as made:
        made.obey(ASKED)
        made.beat(0)
        assert contents(mount) != before
        made.follow(replace(census(), daemons=None), layout(mount, 2), kernel, kernel.acts)
        made.beat(S)
        assert contents(mount) == before


def test_what_was_left_by_a_crash_is_known_from_the_journal(tmp_path: Path) -> None:
    mount, kernel = tmp_path / "cgroup", FakeKernel()
    make_tree(mount, 1)
    before = contents(mount)
    with isolation(tmp_path / "s", mount, 1, KNOBS, kernel) as made:
        made.obey(ASKED)
        made.beat(0)
    journal = Journal(tmp_path / "s", "k" * 32)
    assert release_kept(layout(mount, 1), journal, KNOBS, kernel, kernel.acts) == []
    journal.close()
    assert contents(mount) == before


def test_its_own_narrower_limits_stay(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    (mount / DAEMONS / "cpu.max").write_text("50000 100000\n")
    (mount / DAEMONS / "memory.max").write_text(f"{64 * MIB}\n")
    before = contents(mount)
    with isolation(tmp_path / "s", mount, 2, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert contents(mount) == before


def test_a_limit_below_what_daemons_hold_is_waited_for(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 2)
    (mount / DAEMONS / "memory.current").write_text(f"{900 * MIB}\n")
    with isolation(tmp_path / "s", mount, 2, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:daemons_memory:EBUSY")
        assert contents(mount)[f"{DAEMONS}/memory.max"] == "max"
        assert contents(mount)[f"{DAEMONS}/cpu.max"] == "150000 100000"


def test_s4_only_that_group_and_only_limits(tmp_path: Path) -> None:
    make_tree(tmp_path, 2)
    surface = DaemonsSurface(str(tmp_path), 2, [DAEMONS])
    for place in ("", "..", TOP, LS_POD, f"{DAEMONS}/x", f"{DAEMONS}/../{TOP}", "init.scope"):
        with pytest.raises(UnsafePath):
            surface.write(place, "cpu.max", "1000 100000", "max 100000")
    for file in ("cgroup.freeze", "cgroup.kill", "cgroup.procs", "cpu.weight", "cpuset.cpus"):
        with pytest.raises(UnsafePath, match="refusing"):
            surface.write(DAEMONS, file, "1", "0")
    with pytest.raises(UnsafePath, match="refusing"):
        surface.write(DAEMONS, "cpu.max", " ", "max 100000")
    surface.close()


def test_the_inventory_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("daemons_group: system.slice\n")
    path.chmod(0o600)
    assert load(str(path)).daemons == "system.slice"
    path.write_text("best_effort_root: a/be\ndaemons_group: a\n")
    with pytest.raises(InventoryError, match="daemons_group: 'a' overlaps the best-effort root"):
        load(str(path))
    path.write_text("daemons_group: /../x\n")
    with pytest.raises(InventoryError, match="daemons_group"):
        load(str(path))
