"""The order of the kernel's memory killer: scores of processes that come, fork and go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.knob import Ask, Found, plan
from node_agent.actuators.knobs.oom_score import OomScore
from node_agent.actuators.online import TakesAway, name_online
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.actuators.processes import Processes
from node_agent.isolation import NOTHING, release_kept
from node_agent.journal import Journal
from node_agent.workbench.groups import Groups
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    LS_POD,
    FakeKernel,
    isolation,
    layout,
    make_process,
    make_tree,
)
from tests.node_agent.kernel import real_groups
from tests.node_agent.test_real_isolation import kernel_boot, killed, started

S = 1_000_000
ASKED = IsolationSettings(classes={"BE": {"oom_score_adj": 900}, "LS": {"oom_score_adj": -300}})


def scores(mount: Path) -> dict[int, int]:
    """Of every process of the tree."""
    return {
        int(path.parent.name): int(path.read_text())
        for path in sorted(mount.glob("proc/*/oom_score_adj"))
    }


def has(mount: Path, group: str, *pids: int) -> None:
    (mount / group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def gone(mount: Path, pid: int) -> None:
    for path in (mount / f"proc/{pid}").iterdir():
        path.unlink()
    (mount / f"proc/{pid}").rmdir()


def test_who_is_born_later_gets_what_the_first_had_and_who_is_gone_is_forgotten(
    tmp_path: Path,
) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    make_process(mount, 110, 200, start=1)
    make_process(mount, 111, 300, start=2)
    with isolation(tmp_path / "s", mount, 1, [OomScore()], FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        make_process(mount, 112, 900, start=9)  # a child of 111, which ends
        gone(mount, 111)
        has(mount, BE_POD, 110, 112)
        made.beat(S)
        make_process(mount, 113, 900, start=10)
        make_process(mount, 114, 17, start=11)  # a container that its runtime has just made
        has(mount, BE_POD, 110, 112, 113, 114)
        made.beat(2 * S)
        assert scores(mount)[114] == 900
        assert made.keeper.drift == 0
    journal, kernel = Journal(tmp_path / "s", "k" * 32), FakeKernel()
    make_process(mount, 115, 900, start=12)
    has(mount, BE_POD, 110, 112, 113, 114, 115)
    knobs = [OomScore()]
    assert release_kept(layout(mount, 1), journal, knobs, kernel, kernel.acts) == []
    journal.close()
    found = scores(mount)
    assert {pid: found[pid] for pid in (110, 112, 113, 114, 115)} == {
        110: 200, 112: 200, 113: 200, 114: 17, 115: 200,
    }  # fmt: skip
    assert found[100] == 0


def test_s4_an_id_that_another_process_has_now_is_not_written(tmp_path: Path) -> None:
    make_tree(tmp_path, 1)
    make_process(tmp_path, 110, 5, start=77)
    kernel = FakeKernel()
    with surface(tmp_path, kernel) as processes:
        processes.write(BE_POD, "110:5000", "900", "0")
        processes.write(BE_POD, "4444:5000", "900", "0")
        assert kernel.count == 0
        processes.write(BE_POD, "110:77", "900", "5")
    assert scores(tmp_path)[110] == 900


@contextmanager
def surface(mount: Path, kernel: FakeKernel) -> Iterator[Processes]:
    names = name_online([LS_POD], (), BE)
    found = Processes(str(mount / "proc"), PodTasks(str(mount), 1), [BE], names, kernel)
    yield found
    found.close()


def test_r6_an_online_process_is_only_ever_made_safer(tmp_path: Path) -> None:
    make_tree(tmp_path, 1)
    with surface(tmp_path, FakeKernel()) as processes:
        for original in ("0", "-500"):
            with pytest.raises(TakesAway):
                processes.write(LS_POD, "100:5000", "1", original)
        for place in ("system.slice", "kubepods/podother"):
            with pytest.raises(UnsafePath, match="no pod"):
                processes.write(place, "100:5000", "-1", "0")
        with pytest.raises(UnsafePath, match="no score"):
            processes.write(LS_POD, "100:5000", "-1", None)
    assert set(scores(tmp_path).values()) == {0}


def test_a_sandbox_that_its_runtime_keeps_alive_stays_so(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    make_tree(mount, 1)
    make_process(mount, 110, -998)
    with isolation(tmp_path / "s", mount, 1, [OomScore()], FakeKernel()) as made:
        made.obey(ASKED)
        made.beat(0)
        assert (scores(mount)[110], scores(mount)[111]) == (-998, 900)


SCORES = st.dictionaries(
    st.builds("{}:{}".format, st.integers(2, 9), st.integers(1, 9)),
    st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)),
    max_size=5,
)


@given(SCORES, st.integers(-2000, 2000), st.booleans())
def test_a_plan_never_takes_from_an_online_pod_and_can_be_undone(
    both: dict[str, tuple[int, int]], asked: int, online: bool
) -> None:
    knob = OomScore()
    first = {process: str(own) for process, (own, _) in both.items()}
    found = Found("p", 1, {process: str(now) for process, (_, now) in both.items()})
    ask = Ask("p", {"oom_score_adj": asked}, online)
    steps = plan(knob, 0, "p", ask, [found], {"p": first})
    then = steps[0].after if steps else found.values
    for process, own in first.items():
        assert -1000 <= int(then[process]) <= 1000
        assert int(then[process]) <= int(own) or not online
        assert int(then[process]) >= int(own) or online or int(own) <= -900
    assert plan(knob, 0, "p", ask, [Found("p", 1, then)], {"p": first}) == []
    back = plan(knob, 0, "p", None, [Found("p", 1, then)], {"p": first})
    assert (back[0].after if back else then) == first


FORKS = """
import os, signal, sys
print(os.getpid(), flush=True)
sys.stdin.readline()
child = os.fork()
if child:
    print(child, flush=True)
signal.pause()
"""


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        made.pod("online", "web")
        made.make(f"{made.pod('besteffort', 'job')}/c1")
        yield made


@contextmanager
def process(groups: Groups, path: str, score: int) -> Iterator[subprocess.Popen[str]]:
    """One that forks when it is told to."""
    child = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        Path(f"/proc/{child.pid}/oom_score_adj").write_text(str(score))
        groups.enter(path, child.pid)
        assert int(child.stdout.readline()) == child.pid
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


REAL = IsolationSettings(classes={"BE": {"oom_score_adj": 800}, "LS": {"oom_score_adj": 100}})


def test_real_processes_are_set_and_all_that_live_get_their_own_back(
    groups: Groups, tmp_path: Path
) -> None:
    job, web = f"{groups.be_root}/job/c1", f"{groups.name}/online/web"
    with (
        process(groups, job, 300) as batch,
        process(groups, web, 500) as online,
        started(tmp_path / "state", groups) as made,
    ):
        made.obey(REAL)
        made.beat(0)
        assert made.outcome() == ("applied", "")
        assert (score(batch.pid), score(online.pid)) == (800, 100)
        assert batch.stdin is not None
        assert batch.stdout is not None
        batch.stdin.write("fork\n")
        batch.stdin.flush()
        child = int(batch.stdout.readline())
        assert score(child) == 800
        made.beat(S)
        assert made.release() == []
        assert (score(batch.pid), score(child), score(online.pid)) == (300, 300, 500)
        made.obey(REAL)
        made.beat(2 * S)
        assert score(child) == 800
        batch.kill()
        batch.wait()
        made.obey(NOTHING)
        made.beat(3 * S)
        assert made.outcome() == ("applied", "")
        assert (score(child), score(online.pid)) == (300, 500)


def test_r10_kill_9_at_every_write_the_processes_get_their_own_back(
    groups: Groups, tmp_path: Path
) -> None:
    job, web = f"{groups.be_root}/job/c1", f"{groups.name}/online/web"
    with process(groups, job, 300) as batch, process(groups, web, 500) as online:
        at, dead = 0, True
        while dead:
            at += 1
            state = tmp_path / f"state{at}"
            dead = killed(state, groups, at, REAL)
            if at % 2:
                with started(state, groups) as made:
                    made.beat(0)
            else:
                journal = Journal(state, kernel_boot())
                assert release_kept(groups.layout, journal) == []
                journal.close()
            assert (score(batch.pid), score(online.pid)) == (300, 500), f"killed at {at}"
        assert at == 5, "two processes, there and back"
