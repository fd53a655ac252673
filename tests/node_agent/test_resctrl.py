"""resctrl groups of ours over a tree that answers as the kernel's; moves of tasks, strangers."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.actuators import resctrl_surfaces
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.failure import Named
from node_agent.actuators.knob import Ask, Found, Machine, plan
from node_agent.actuators.knobs.resctrl_group import ResctrlGroup
from node_agent.actuators.knobs.schemata import SchemataKnob
from node_agent.actuators.online import name_online
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.actuators.resctrl import Resctrl, in_mbps, our
from node_agent.actuators.resctrl_surfaces import ResctrlTasks
from node_agent.containers import Container
from node_agent.inventory_cpus import resctrl as facts_of
from node_agent.isolation import NOTHING, clean_up, release_kept
from node_agent.journal import Journal
from node_agent.surfaces import open_surfaces
from schemas.records import IsolationSettings
from tests.node_agent import resctrl_tree
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    JOB_POD,
    LS_POD,
    FakeKernel,
    census,
    contents,
    isolation,
    layout,
    make_tree,
)
from tests.node_agent.resctrl_tree import ALIVE, tasks
from tests.node_agent.trees import Crash

S = 1_000_000
KNOBS = (SchemataKnob(), ResctrlGroup())
BE_LINES = "L3:0=7;1=7;\nMB:0=30;1=30;"
LS_LINES = "L3:0=7f8;1=7f8;\nMB:0=100;1=100;"
ASKED = IsolationSettings(
    schemata={"BE": BE_LINES, "LS": LS_LINES},
    classes={"BE": {"resctrl_group": 2}, "LS": {"resctrl_group": 1}},
)
OURS = {"slackwater-BE": {110, 111}, "slackwater-LS": {100, 101, 102}}


def tree(folder: Path, closids: int = 8) -> tuple[Path, Path]:
    """(mount, top of resctrl)."""
    mount = folder / "cgroup"
    make_tree(mount, 1)
    return mount, resctrl_tree.make_resctrl(mount, closids)


def spread(top: Path) -> dict[str, set[int]]:
    """Tasks of each group but the root's."""
    return {each.name: tasks(top, each.name) for each in resctrl_tree.groups(top)[1:]}


def test_groups_are_made_filled_and_taken_away_again(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    before = contents(mount)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("applied", "")
        assert spread(top) == OURS
        assert (top / "slackwater-BE/schemata").read_text().split() == [
            "MB:0=", "30;1=", "30", "L3:0=7;1=7",
        ]  # fmt: skip
        made.obey(NOTHING)
        made.beat(S)
        assert contents(mount) == before
        assert made.keeper.drift == 0


def test_one_class_off_gives_its_tasks_back_and_leaves_the_other(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        made.obey(replace(ASKED, classes={"BE": {"resctrl_group": 2}}))
        made.beat(S)
        assert spread(top) == {**OURS, "slackwater-LS": set()}
        assert {100, 101, 102} <= tasks(top)


def test_what_is_started_beside_joins_when_the_pods_turn_comes(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        (mount / BE_POD / "tasks").write_text("110\n111\n112\n")
        made.beat(S)
        assert tasks(top, "slackwater-BE") == {110, 111, 112}
        made.beat(2 * S)
        assert made.release() == []
        assert tasks(top) == set(ALIVE)


def test_a_new_containers_tasks_join_when_it_is_seen(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, 1, KNOBS, kernel, ("be", "job", "ls")) as made:
        made.obey(ASKED)
        made.beat(0)
        assert tasks(top, "slackwater-BE") == {110, 111, 120, 121}
        (mount / JOB_POD / "c2/tasks").write_text("122\n")
        now = census(("be", "job", "ls"))
        by_pod = [(*each[:-1], Container("9", f"{JOB_POD}/c2")) for each in now.containers if each]
        now = replace(now, containers=((), *by_pod, ()))
        made.follow(now, layout(mount, 1), kernel, kernel.acts)
        made.beat(1)  # no second has gone by: nobody's turn
        assert tasks(top, "slackwater-BE") == {110, 111, 120, 121, 122}


def test_a_task_that_has_ended_is_no_error(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    (mount / BE_POD / "tasks").write_text("110\n555\n111\n")
    resctrl_tree.make_group(top, "slackwater-BE")
    found = Resctrl(str(top), FakeKernel())
    found.add("BE", [110, 555, 111])
    assert tasks(top, "slackwater-BE") == {110, 111}
    found.close()


def test_ic24_without_a_class_left_best_effort_comes_first_and_the_rest_is_said(
    tmp_path: Path,
) -> None:
    mount, top = tree(tmp_path)
    for n in range(6):
        resctrl_tree.make_group(top, f"foreign{n}")
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == (
            "failed",
            "failed:resctrl_group:no_resctrl_group,schemata:closid_exhausted",
        )
        ours = {name: found for name, found in spread(top).items() if "slackwater" in name}
        assert ours == {"slackwater-BE": {110, 111}}
        (top / "foreign0/tasks").unlink()  # its owner has taken it away
        made.beat(31 * S)
        assert made.outcome() == ("applied", "")
        assert made.release() == []
    assert list(spread(top)) == [f"foreign{n}" for n in range(1, 6)]


def test_s4_strangers_groups_and_their_tasks_are_left_alone(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    resctrl_tree.make_group(top, "BE")
    resctrl_tree.move(top, "BE", 110)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert spread(top) == {**OURS, "slackwater-BE": {111}, "BE": {110}}
        assert made.outcome() == ("applied", "")
        assert made.release() == []
    assert spread(top) == {"BE": {110}}


def test_groups_that_nobody_remembers_are_cleaned_at_a_start_and_those_alone(
    tmp_path: Path,
) -> None:
    mount, top = tree(tmp_path)
    for name in ("slackwater-BE", "slackwater-OLD", "LS"):
        resctrl_tree.make_group(top, name)
    resctrl_tree.move(top, "slackwater-OLD", 100)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()):
        assert spread(top) == {"LS": set()}
        assert 100 in tasks(top)
    kernel = FakeKernel()
    journal = Journal(tmp_path / "s2", "k" * 32)
    names = name_online([], (), None)
    surfaces = open_surfaces(layout(mount, 1), [], names, kernel, kernel.acts)
    clean_up(surfaces, journal)
    assert kernel.count == 0
    journal.close()


@pytest.mark.parametrize("before", [True, False])
def test_r10_killed_at_every_write_all_tasks_are_back_and_no_group_is_left(
    tmp_path: Path, before: bool
) -> None:
    at = 0
    while True:
        at += 1
        mount, top = tree(tmp_path / str(at))
        was, state = contents(mount), tmp_path / f"s{at}"
        kernel = FakeKernel(at, before=before)
        try:
            with isolation(state, mount, 1, KNOBS, kernel) as made:
                made.obey(ASKED)
                made.beat(0)
                made.obey(NOTHING)
                made.beat(S)
        except Crash:
            pass
        if at % 2:
            played, journal = FakeKernel(), Journal(state, "k" * 32)
            refused = release_kept(layout(mount, 1), journal, KNOBS, played, played.acts)
            assert refused == []
            journal.close()
        else:
            with isolation(state, mount, 1, KNOBS, FakeKernel()) as made:
                made.beat(0)
        assert contents(mount) == was, f"killed at {at}"
        assert spread(top) == {}
        if kernel.count < at:
            break
    assert at > 12


def test_a_group_taken_away_by_a_remount_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resctrl_surfaces, "FRESH_US", 0)
    mount, top = tree(tmp_path)
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        for name in OURS:
            resctrl_tree.remove_group(top, name)
        made.beat(S)
        made.beat(2 * S)
        assert spread(top) == OURS
        assert made.release() == []
        assert spread(top) == {}


def test_lines_that_cannot_be_read_or_are_empty_write_nothing(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    kernel = FakeKernel()
    with isolation(tmp_path / "s", mount, 1, [SchemataKnob()], kernel) as made:
        for text, reason in (("L3:0=zz", "unreadable"), ("L3:9", "unreadable")):
            made.obey(IsolationSettings(schemata={"BE": text}))
            made.beat(0)
            assert made.outcome() == ("failed", f"failed:schemata:{reason}")
        made.obey(IsolationSettings(schemata={"BE": "L3:0=0;1=0"}))
        made.beat(0)
        assert (top / "slackwater-BE/schemata").read_text() == resctrl_tree.FULL + "\n"
        made.obey(IsolationSettings(schemata={"../../x": BE_LINES, "FOO": BE_LINES}))
        made.beat(0)
        assert spread(top) == {}
    found = Resctrl(str(top), kernel)
    for line in ("", "L3:", "\n"):
        with pytest.raises(UnsafePath):
            found.set_schemata("BE", line)
    for name in ("", "..", "a/b", "x" * 40, "BE\n"):
        with pytest.raises(UnsafePath):
            our(name)
    found.close()


def test_caches_whose_numbers_have_gaps_are_set_by_their_numbers(tmp_path: Path) -> None:
    """Sockets whose caches are 0 to 7 and 16 to 23, and bandwidth by socket."""
    mount, top = tree(tmp_path)
    caches, sockets = [*range(8), *range(16, 24)], (0, 16)
    whole = ";".join(f"{cache}=7ff" for cache in caches)
    (top / "schemata").write_text(f"    MB:0=100;16=100\n    L3:{whole}\n")
    (mount / "proc/cpuinfo").write_text("vendor_id\t: AuthenticAMD\n")
    facts = facts_of(str(mount))
    assert facts is not None
    assert (facts.domain_ids, facts.bandwidth) == (tuple(caches), False)
    asked = ";".join(f"{cache}=7" for cache in caches)
    with isolation(tmp_path / "s", mount, 1, [SchemataKnob()], FakeKernel()) as made:
        made.obey(IsolationSettings(schemata={"BE": f"L3:{asked}\nMB:0=30;16=30"}))
        made.beat(0)
        assert made.outcome() == ("applied", "")
        said = (top / "slackwater-BE/schemata").read_text().replace(" ", "").split()
        assert said == [f"MB:{';'.join(f'{each}=30' for each in sockets)}", f"L3:{asked}"]
        made.obey(IsolationSettings(schemata={"BE": "L3:0=7;9=7"}))  # 9 went with its CPUs
        made.beat(S)
        assert made.outcome() == ("applied", "")
        assert ";9=" not in (top / "slackwater-BE/schemata").read_text()
        assert made.release() == []
        assert spread(top) == {}


def test_what_the_kernel_refuses_leaves_no_group_behind(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    with isolation(tmp_path / "s", mount, 1, [SchemataKnob()], FakeKernel()) as made:
        made.obey(IsolationSettings(schemata={"BE": "L3:0=505"}))  # with holes
        made.beat(0)
        assert made.outcome() == ("failed", "failed:schemata:EINVAL")
        assert spread(top) == {}


def test_r6_an_online_pods_tasks_never_join_best_effort(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    resctrl_tree.make_group(top, "slackwater-BE")
    asked = IsolationSettings(schemata={"BE": BE_LINES}, classes={"LS": {"resctrl_group": 2}})
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(asked)
        made.beat(0)
        assert made.outcome() == ("applied", "not_for_online:resctrl_group")
        assert tasks(top, "slackwater-BE") == set()
    names = name_online([LS_POD], (), BE)
    surface = ResctrlTasks(
        Resctrl(str(top), FakeKernel()), PodTasks(str(mount), 1), [BE, "kubepods"], names
    )
    with pytest.raises(UnsafePath, match="online"):
        surface.write(LS_POD, "group", "BE", "root")
    with pytest.raises(UnsafePath, match="no pod"):
        surface.write("system.slice", "group", "LS", "root")
    with pytest.raises(Named, match="not made"):
        surface.write(LS_POD, "group", "LSR", "root")
    surface.close()


def test_r6_bandwidth_of_online_groups_is_that_of_the_root_at_least(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    with isolation(tmp_path / "s", mount, 1, [SchemataKnob()], FakeKernel()) as made:
        made.obey(IsolationSettings(schemata={"LS": "MB:0=10;1=10", "BE": "MB:0=10;1=10"}))
        made.beat(0)
        assert "0=100;1=100" in (top / "slackwater-LS/schemata").read_text()
        assert "0= 10;1= 10" in (top / "slackwater-BE/schemata").read_text()


def test_bandwidth_in_mb_per_second_is_not_set(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    (mount / "proc/cpuinfo").write_text("vendor_id\t: GenuineIntel\n")
    (mount / "proc/self").mkdir()
    assert not in_mbps(str(mount))
    assert facts_of(str(mount)).bandwidth  # type: ignore[union-attr]
    line = "resctrl /sys/fs/resctrl resctrl rw,relatime,mba_MBps 0 0\n"
    (mount / "proc/self/mounts").write_text(line)
    assert in_mbps(str(mount))
    assert not facts_of(str(mount)).bandwidth  # type: ignore[union-attr]
    with isolation(tmp_path / "s", mount, 1, [SchemataKnob()], FakeKernel()) as made:
        made.obey(IsolationSettings(schemata={"BE": BE_LINES}))
        made.beat(0)
        text = (top / "slackwater-BE/schemata").read_text()
        assert "MB:0=100;1=100" in text
        assert "L3:0=7;1=7" in text


def test_without_resctrl_both_are_left_out_by_name(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    (top / "schemata").unlink()
    with isolation(tmp_path / "s", mount, 1, KNOBS, FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("refused", "no_actuator:resctrl_group,schemata")
    with pytest.raises(FileNotFoundError):
        Resctrl(str(top))


def test_a_refused_move_puts_the_pod_back(tmp_path: Path) -> None:
    mount, top = tree(tmp_path)
    only = IsolationSettings(schemata={"LS": "L3:0=7f8"}, classes={"LS": {"resctrl_group": 1}})
    kernel = FakeKernel(4, errno.EPERM)  # mkdir, lines, the first task, and then
    with isolation(tmp_path / "s", mount, 1, KNOBS, kernel) as made:
        made.obey(only)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:resctrl_group:EPERM")
        assert tasks(top, "slackwater-LS") == set()
        made.beat(31 * S)
        assert made.outcome() == ("applied", "")
        assert tasks(top, "slackwater-LS") == {100, 101, 102}


MASKS = st.integers(1, 0x7FF)
LINES = st.builds("L3:0={:x};1={:x}\nMB:0={};1={}".format, MASKS, MASKS, *[st.integers(0, 100)] * 2)


@given(LINES, LINES, st.booleans())
def test_a_plan_done_leaves_nothing_to_do_and_can_be_undone(
    asked: str, there: str, made: bool
) -> None:
    knob = SchemataKnob()
    bounds = {f"info/{file}": text for file, text in resctrl_tree.BOUNDS.items()}
    raw = {**bounds, "made": str(int(made)), "schemata": there, "whole": resctrl_tree.FULL}
    found = Found("BE", 1, knob.values(0, raw, Machine()))
    ask = Ask("BE", texts={"schemata": asked})
    steps = plan(knob, 0, "BE", ask, [found], {})
    after = steps[-1].after if steps else found.values
    assert plan(knob, 0, "BE", ask, [Found("BE", 1, after)], {"BE": found.values}) == []
    for step in steps:
        for file, text in knob.writes(0, step.before, step.after):
            assert text.strip()
            assert "=;" not in text
            assert not text.endswith("=")
            assert "=0" not in text or file == "made"
    back = plan(knob, 0, "BE", None, [Found("BE", 1, after)], {"BE": found.values})
    assert (back[0].after if back else after) == found.values
