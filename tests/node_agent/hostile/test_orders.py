"""Orders with wild numbers, wrong names and online victims: the bound and the online pods stay."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from node_agent.actuators.cpuset import EFFECTIVE
from node_agent.actuators.knobs import KNOBS
from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.journal import NAME
from node_agent.workbench.groups import Groups
from schemas.records import Cause, IsolationSettings
from tests.node_agent.hostile.kit import (
    FLOOR_US,
    Besieged,
    besieged,
    ended,
    from_file,
    process,
    quota_us,
    snapshot,
    write_inventory,
)

MOST = (1 << 63) - 1
EDGES = [MOST, -MOST - 1, -1, 0, 1, 9, 10**15, 1 << 40]
WHOLE_US = (os.cpu_count() or 1) * 100_000
ONLINE = set(range(os.cpu_count() or 1))


def in_bounds(groups: Groups) -> bool:
    """Some bound is in force, whatever was ordered: CPUs or a quota of what the machine has."""
    return 0 < quota_us(groups) <= WHOLE_US


def runs_on(groups: Groups) -> set[int]:
    """The CPUs of the best-effort root, by the kernel's word."""
    version = groups.layout.versions()["cpuset"]
    file = groups.directory("cpuset", groups.be_root) / EFFECTIVE[version]
    return set(parse_cpu_list(file.read_text("ascii")))


@pytest.fixture
def inventory(groups: Groups, tmp_path: Path) -> Path:
    return write_inventory(groups, tmp_path / "inventory.yaml")


async def test_wild_numbers_never_lift_the_bound(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        for edge in EDGES:
            answers = [
                await one.say(allow_milli=edge),
                await one.say(allow_milli=500, release_bytes=edge),
                await one.say(allow_milli=500, expires_log_ms=edge),
                await one.say(allow_milli=500, terms={"x" * 10_000: edge}),
            ]
            assert all(len(answer) == 1 for answer in answers)
            assert in_bounds(groups), edge
        await one.beats()
        assert in_bounds(groups)


@pytest.mark.parametrize(
    "cpus",
    [(MOST,), (-1,), (0, MOST), tuple(range(100_000)), (0,) * 1000, (1 << 40,)],
    ids=lambda cpus: f"{len(cpus)} from {cpus[0]}",
)
async def test_cpus_that_are_none_leave_the_quota(
    cpus: tuple[int, ...], groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        await one.policy(POLICY_OF_CPUS)
        ((outcome, reason),) = await one.say(allow_milli=500, cpus=cpus)
        assert outcome == "applied"
        if reason:
            assert reason.startswith(("cpuset:", "no_actuator:cpuset")) or reason == "command"
            assert in_bounds(groups)
        else:  # bound by those of them that there are
            assert runs_on(groups) == set(cpus) & ONLINE != set()


POLICY_OF_CPUS = """
name: default
rollout: {stage: expand}
suppress: {policy: cpuset, threshold_percent: 100, floor_percent: 50, raise_permille: 1000}
"""


async def test_an_online_pod_is_no_victim_however_it_is_named(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    online = f"{groups.name}/online/web"
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        with process(groups, online) as web, process(groups, f"{groups.be_root}/batch") as batch:
            for pods in (
                ("web",), ("batch", "web"), ("web", "batch"), ("",), (online,), ("../online/web",),
                ("batch/../../online/web",), ("batch\0",), ("x" * 100_000,),
                tuple(map(str, range(100_000))),
            ):  # fmt: skip
                for decider in ("evict_memory", "evict_cpu"):
                    ((outcome, _),) = await one.say(decider=decider, pods=pods)
                    assert outcome == "refused", pods
            await one.beats()
            assert not ended(web)
            assert not ended(batch)  # a list with one wrong name was not made for this node


async def test_orders_that_nobody_knows_are_refused_by_name(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        for said, reason in (
            ({"decider": "capacity"}, "unknown_decider"),
            ({"id": ""}, "no_id"),
            ({"node": "other"}, "wrong_node"),
            ({"decider": "isolate"}, "no_settings"),
            ({"decider": "evict_memory"}, "empty_pods"),
        ):
            assert await one.say(**{"allow_milli": 100, **said}) == [("refused", reason)]
        assert quota_us(groups) == FLOOR_US


async def test_isolation_of_any_size_takes_nothing_from_an_online_pod(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    """Every knob, every edge, every class, tier and pod: online files only ever say more."""
    names = sorted({name for knob in KNOBS for name in knob.turns})
    online = f"{groups.name}/online"
    before = snapshot(groups, online)
    dice = random.Random(7)
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        for _ in range(60):
            name, edge = dice.choice(names), dice.choice(EDGES)
            settings = IsolationSettings(
                classes={dice.choice(["LS", "LSR", "BE", "SYSTEM", "../x", ""]): {name: edge}},
                pods=("web", "batch", "nobody"),
                pod_knobs={name: [edge, edge, None], "x" * 1000: [1]},
                tiers={tier: {name: edge} for tier in ("besteffort", "burstable", "..", "")},
                daemons={name: edge},
                schemata={"../..": "L3:0=f", "": ""},
            )
            answers = await one.say(decider="isolate", settings=settings)
            assert len(answers) == 1
            taken = less(before, snapshot(groups, online))
            assert not taken, (name, edge, taken)
        await one.beats()
        assert in_bounds(groups)
    assert snapshot(groups, online) == before


def less(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Files that give less than before: a smaller number, or a limit where there was none."""
    found = []
    for path, text in now.items():
        was = before[path]
        if text == was or path.endswith(("cfs_period_us", "clone_children")):
            continue
        old, new = _amount(was), _amount(text)
        if new < old:
            found.append(f"{path}: {was.strip()} -> {text.strip()}")
    return found


def _amount(text: str) -> float:
    word = text.split(maxsplit=1)[0] if text.split() else "0"
    try:
        return float("inf") if word in ("-1", "max") else float(word)
    except ValueError:
        return 0.0


async def test_a_rude_cause_is_an_order_like_any_other(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        for number, cause in enumerate(
            (
                Cause(0, -5, -1, -MOST, "", -1),
                Cause(1, MOST, 10**9, MOST, "x" * 100_000, MOST),
                Cause(MOST, 0, MOST, 0, "", 1),
            )
        ):
            assert len(await one.say(cause=cause, id=f"r{number}", allow_milli=700)) == 1
            assert in_bounds(groups)
        assert await one.say(allow_milli=800) == [("refused", "stale_epoch")]


async def test_a_flood_of_orders_leaves_a_small_journal(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        await _flood(one, 3000)
        await one.beats()
        assert len(one.agent.obey.lease.answers) <= 1024
        assert (tmp_path / "state" / NAME).stat().st_size < 5 << 20


async def _flood(one: Besieged, count: int) -> None:
    for number in range(count):
        await one.say(allow_milli=100 + number % 2, reason="r" * 400)
