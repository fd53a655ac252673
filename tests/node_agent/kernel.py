"""A real kernel's groups for a test, or a loud word that there are none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from node_agent.cgroup.layout import LayoutError, detect
from node_agent.workbench.groups import Groups, GroupsError, remove_stale
from tests.support import unavailable

PREFIX = "swa"


@contextmanager
def real_groups() -> Iterator[Groups]:
    """Groups of this process's own; left-overs of killed runs go first."""
    try:
        layout = detect()
        if layout.hierarchy("cpu") is None:
            unavailable("no cpu controller is mounted")
        remove_stale(layout, PREFIX)
        groups = Groups(f"{PREFIX}-{os.getpid()}", layout)
        groups.__enter__()
    except (LayoutError, GroupsError, OSError) as error:
        unavailable(f"control groups cannot be made here: {error}")
    try:
        yield groups
    finally:
        groups.__exit__(None, None, None)


def cpu_usage_us(groups: Groups, path: str) -> int:
    """CPU time of a group and all under it."""
    version = groups.layout.versions()["cpuacct"]
    directory = groups.directory("cpuacct", path)
    if version == 1:
        return int((directory / "cpuacct.usage").read_text()) // 1000
    line = (directory / "cpu.stat").read_text().split("\n", 1)[0]
    return int(line.split()[1])


def cores_over(groups: Groups, path: str, seconds: float) -> float:
    """Cores that a group used in the next ``seconds``."""
    began, used = time.monotonic(), cpu_usage_us(groups, path)
    time.sleep(seconds)  # the measurement itself lasts so long
    return (cpu_usage_us(groups, path) - used) / 1e6 / (time.monotonic() - began)


def eventually(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until the condition holds; an AssertionError that says what did not come."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.005)
