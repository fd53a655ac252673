"""Triggers of this very kernel: those of 2 s anybody may have, shorter ones need a capability."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.cgroup.layout import detect
from node_agent.pressure_triggers import WINDOW_US, Triggers
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from tests.node_agent.kernel import real_groups
from tests.node_agent.kernels import KERNELS
from tests.support import patient, unavailable

pytestmark = pytest.mark.kernel
ANYBODYS_US = 2_000_000


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.fixture
def triggers(groups: Groups) -> Iterator[Triggers]:
    opened = Triggers.open(groups.layout, ANYBODYS_US)
    if opened is None:
        unavailable("this kernel has no pressure triggers")
    yield opened
    opened.close()


async def test_a_group_that_stalls_wakes_the_loop(
    groups: Groups, triggers: Triggers, tmp_path: Path
) -> None:
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        triggers.note_fired()
        woken.set()

    loop.add_reader(triggers.descriptor, wake)
    web = groups.pod("online", "web")
    triggers.arm({web: 50_000})
    greedy = Greedy(web, 2 * (os.cpu_count() or 1), tmp_path / "counts")
    try:
        await asyncio.wait_for(woken.wait(), patient(30))
        assert triggers.fired >= 1
    finally:
        await asyncio.to_thread(greedy.stop)
    await asyncio.to_thread(groups.__exit__, None, None, None)  # all groups go
    await asyncio.sleep(0.2)
    fired = triggers.fired
    await asyncio.sleep(0.5)  # an armed group that went would wake us all the time
    assert triggers.fired - fired <= 1
    loop.remove_reader(triggers.descriptor)


def test_exactly_the_groups_that_were_named_are_armed(groups: Groups, triggers: Triggers) -> None:
    one, two = groups.pod("online", "one"), groups.pod("online", "two")
    triggers.arm({one: 50_000, two: 50_000, "never/made": 50_000})
    before = dict(triggers._armed)
    assert set(before) == {one, two}
    triggers.arm({one: 50_000, two: 60_000})
    assert triggers._armed[one] == before[one]
    assert triggers._armed[two][1] == 60_000
    triggers.arm({})
    assert triggers._armed == {}


def test_a_short_window_is_granted_or_it_is_said_that_it_is_not(
    groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    opened = Triggers.open(groups.layout)
    if opened is None:
        assert f"no pressure triggers of {WINDOW_US // 1000} ms here" in caplog.text
    else:
        opened.close()


def test_a_machine_without_pressure_has_no_triggers(tmp_path: Path) -> None:
    shutil.copytree(KERNELS / "v1-centos", tmp_path / "kernel")
    assert Triggers.open(detect(str(tmp_path / "kernel"))) is None
