"""A real kernel's groups for a test, or a loud word that there are none.

A test that asks for them is marked `kernel`; it runs on this machine and, by `make test-vm`, on one
of pure cgroup v2. What only one of them can run says so by a marker of its own, with the reason.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from node_agent.cgroup.layout import Layout, LayoutError, detect
from node_agent.workbench.groups import Groups, GroupsError, remove_stale
from tests.support import SLOWNESS_VARIABLE, patient, unavailable

PREFIX = "swa"
OTHER_KERNEL = "OTHER KERNEL: "
"""How the reason of a skip begins that stands for "the other machine runs this"."""
_ALLOWED = [False]


def allowed(*, marked: bool) -> None:
    """Whether the test that begins may have control groups; set by the conftest."""
    _ALLOWED[0] = marked


def real_layout() -> Layout:
    """This machine's layout, for a test marked `kernel`; without one it is not run (CI: fails)."""
    if not _ALLOWED[0]:
        pytest.fail("a test on real control groups: mark it with pytest.mark.kernel")
    if os.geteuid() != 0:
        unavailable("control groups need root")
    try:
        return detect()
    except LayoutError as error:
        unavailable(str(error))


def why_elsewhere(item: pytest.Item) -> str:
    """The reason why a test belongs to the other kernel; empty when it runs here."""
    for version in (1, 2):
        mark = item.get_closest_marker(f"only_v{version}")
        if mark is not None and _cpu_version() != version:
            return f"cgroup v{version} only: {mark.args[0]}"
    mark = item.get_closest_marker("needs_linux")
    if mark is not None and _linux() < tuple(mark.args):
        return f"needs Linux {'.'.join(map(str, mark.args))}, this is {platform.release()}"
    mark = item.get_closest_marker("only_outside")
    if mark is not None and SLOWNESS_VARIABLE in os.environ:
        return str(mark.args[0])
    return ""


def _cpu_version() -> int | None:
    try:
        return detect().versions().get("cpu")
    except LayoutError:
        return None


def _linux() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split(".")[:2])


@contextmanager
def real_groups() -> Iterator[Groups]:
    """Groups of this process's own; left-overs of killed runs go first."""
    layout = real_layout()
    try:
        if layout.hierarchy("cpu") is None:
            unavailable("no cpu controller is mounted")
        remove_stale(layout, PREFIX)
        groups = Groups(f"{PREFIX}-{os.getpid()}", layout)
        groups.__enter__()
    except (GroupsError, OSError) as error:
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
    until = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < until, f"not within {patient(seconds)} s: {what}"
        time.sleep(0.005)
