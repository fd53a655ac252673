"""Core scheduling cookies over a prctl that plays the kernel; threads of the agent are real."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from node_agent.actuators.acts import Acts
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.core_cookies import (
    CREATE,
    GET,
    NONE,
    SHARE_TO,
    THREAD,
    THREAD_GROUP,
    CoreCookies,
    prctl,
)
from node_agent.actuators.cores import Cores
from node_agent.actuators.knobs.core_cookie import CoreCookie
from node_agent.actuators.online import name_online
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.isolation import NOTHING, Isolation, release_kept
from node_agent.journal import Journal
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    BE_POD,
    LS_POD,
    TASKS,
    FakeKernel,
    census,
    layout,
    make_tree,
)
from tests.node_agent.trees import Crash

S = 1_000_000
BATCH, ONLINE = TASKS[BE_POD], (100, 101, 102)
ASKED = IsolationSettings(classes={"BE": {"core_cookie": 7}, "LS": {"core_cookie": 4}})


class Played:
    """What prctl(PR_SCHED_CORE) does: a cookie is made for the caller, and given on by it alone."""

    def __init__(self) -> None:
        self.tasks: dict[int, int] = dict.fromkeys((*BATCH, *ONLINE), NONE)
        self.own: dict[int, int] = {}
        self.made = itertools.count(0xFFFF_8880_0000_0040, 64)

    def __call__(self, operation: int, task: int, scope: int) -> int:
        me = threading.get_native_id()
        if operation == CREATE:
            assert (task, scope) == (0, THREAD)
            self.own[me] = next(self.made)
        elif operation == GET:
            assert scope == THREAD, "EINVAL"
            if task and task not in self.tasks:
                raise ProcessLookupError(errno.ESRCH, "gone")
            return self.tasks[task] if task else self.own.get(me, NONE)
        else:
            assert (operation, scope) == (SHARE_TO, THREAD_GROUP)
            if task not in self.tasks:
                raise ProcessLookupError(errno.ESRCH, "gone")
            self.tasks[task] = self.own.get(me, NONE)
        return 0

    def shared(self, tasks: Collection[int]) -> bool:
        """Whether all have one cookie, and it is none of the others'."""
        mine = {self.tasks[task] for task in tasks}
        rest = {cookie for task, cookie in self.tasks.items() if task not in tasks}
        return len(mine) == 1 and mine.isdisjoint({NONE} | rest)


class Dying(CoreCookies):
    """The agent is gone at the n-th pod that it gives a cookie, before or after."""

    def __init__(self, call: Played, at: int, *, before: bool) -> None:
        super().__init__(call)
        self.left, self.before = at, before

    def give(self, number: int, processes: Collection[int]) -> None:
        self.left -= 1
        if self.left == 0 and self.before:
            raise Crash
        super().give(number, processes)
        if self.left == 0:
            raise Crash


def started(folder: Path, cookies: CoreCookies, name: str = "s") -> Isolation:
    mount = folder / "cgroup"
    if not mount.exists():
        make_tree(mount, 1)
    journal = Journal(folder / name, "k" * 32, fsync="never")
    journal.boot("b", 1)
    made = Isolation(journal, [CoreCookie()])
    made.follow(census(), layout(mount, 1), FakeKernel(), Acts(tc=None, cookies=cookies))
    return made


def test_each_number_has_a_cookie_of_its_own_and_gives_it_back(tmp_path: Path) -> None:
    played = Played()
    made = started(tmp_path, CoreCookies(played))
    made.obey(ASKED)
    made.beat(0)
    assert made.outcome() == ("applied", "")
    assert played.shared(BATCH)
    assert played.shared(ONLINE)
    assert threading.get_native_id() not in played.own, "the agent itself has none"
    made.beat(S)
    assert made.keeper.drift == 0
    made.obey(NOTHING)
    made.beat(2 * S)
    assert set(played.tasks.values()) == {NONE}
    made.close()


def test_another_number_another_cookie_and_new_threads_join(tmp_path: Path) -> None:
    played = Played()
    made = started(tmp_path, CoreCookies(played))
    made.obey(ASKED)
    made.beat(0)
    made.obey(replace(ASKED, classes={"BE": {"core_cookie": 7}, "LS": {"core_cookie": 7}}))
    made.beat(S)
    assert len(set(played.tasks.values())) == 1
    played.tasks[115] = NONE
    for file in ("tasks", "cgroup.procs"):
        (tmp_path / "cgroup" / BE_POD / file).write_text("110\n111\n115\n116\n")  # 116 has ended
    made.beat(2 * S)
    assert played.tasks[115] == played.tasks[110] != NONE
    assert (made.outcome(), made.keeper.drift) == (("applied", ""), 0)
    made.close()


def test_somebody_elses_cookie_is_left_alone(tmp_path: Path) -> None:
    played = Played()
    played.tasks[110] = played.tasks[111] = 0xABC
    made = started(tmp_path, CoreCookies(played))
    made.obey(ASKED)
    made.beat(0)
    assert made.outcome() == ("failed", "failed:core_cookie:foreign_cookie")
    assert (played.tasks[110], played.tasks[111]) == (0xABC, 0xABC)
    assert played.shared(ONLINE)
    for task in ONLINE:
        played.tasks[task] = 0xDEF  # its runtime gives each pod its own now
    made.beat(S)
    assert made.release() == []
    assert {played.tasks[task] for task in ONLINE} == {0xDEF}
    made.close()


@pytest.mark.parametrize("before", [True, False])
def test_r10_gone_at_every_write_nobody_has_a_cookie_in_the_end(
    tmp_path: Path, before: bool
) -> None:
    at, crashed = 0, True
    while crashed:
        at += 1
        played, crashed, name = Played(), False, f"s{at}"
        made = started(tmp_path, Dying(played, at, before=before), name)
        try:
            made.obey(ASKED)
            made.beat(0)
            made.obey(NOTHING)
            made.beat(S)
        except Crash:
            crashed = True
        made._journal.close()
        made.close()
        acts = Acts(tc=None, cookies=CoreCookies(played))  # its threads are gone: other cookies
        if at % 2:
            journal = Journal(tmp_path / name, "k" * 32, fsync="never")
            at_mount = layout(tmp_path / "cgroup", 1)
            assert release_kept(at_mount, journal, [CoreCookie()], FakeKernel(), acts) == []
            journal.close()
        else:
            again = started(tmp_path, CoreCookies(played), name)
            again.beat(0)
            again._journal.close()
            again.close()
        assert set(played.tasks.values()) == {NONE}, f"gone at {at}"
    assert at == 5, "two pods, there and back"


def test_after_a_restart_the_cookies_are_given_anew_and_the_way_back_is_known(
    tmp_path: Path,
) -> None:
    played = Played()
    made = started(tmp_path, CoreCookies(played))
    made.obey(ASKED)
    made.beat(0)
    made._journal.close()
    made.close()
    made = started(tmp_path, CoreCookies(played))
    made.obey(ASKED)
    made.beat(0)
    assert made.outcome() == ("applied", "")
    assert played.shared(BATCH)
    assert played.shared(ONLINE)
    assert made.release() == []
    assert set(played.tasks.values()) == {NONE}
    made.close()


def test_s4_pods_alone_are_given_one(tmp_path: Path) -> None:
    make_tree(tmp_path, 1)
    names = name_online([LS_POD], (), BE)
    cores = Cores(CoreCookies(Played()), PodTasks(str(tmp_path), 1), [BE], names)
    for place in ("system.slice", "kubepods/podother", BE):
        with pytest.raises(UnsafePath):
            cores.write(place, "cookie", "1", "0")
    cores.close()


def test_without_core_scheduling_it_is_left_out_by_name(tmp_path: Path) -> None:
    def refused(_operation: int, _task: int, _scope: int) -> int:
        raise OSError(errno.EINVAL, "not built")

    made = started(tmp_path, CoreCookies(refused))
    made.obey(ASKED)
    made.beat(0)
    assert made.outcome() == ("refused", "no_actuator:core_cookie")
    made.close()
    with pytest.raises(OSError, match="not built"):
        CoreCookies(refused).give(1, [1])


def test_the_system_call_answers_here_as_anywhere() -> None:
    """Either this kernel has it, and this thread has no cookie, or it says so by its errno."""
    if CoreCookies().there():
        assert prctl(GET, 0, THREAD) == NONE
        return
    with pytest.raises(OSError, match=r"\[Errno (22|19)\]"):
        prctl(GET, 0, THREAD)
