"""Groups of this machine's own kernel for tests and benches, always cleaned up.

Named ``swt-<pid>-<word>``; what a killed run left behind is removed at the next start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from node_agent.cgroup.layout import Layout
from tests.node_agent import kernel
from tests.support import patient, unavailable

DEADLINE_S = 15.0
PREFIX = "swt-"
WAITING_SPINNER = "import sys; sys.stdin.readline()\nwhile True: pass"
T = TypeVar("T")


def until(ask: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Ask until the answer is true; fail after the deadline."""
    end = time.monotonic() + patient(deadline_s)
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_s} s: {what}")


def real_layout() -> Layout:
    """The layout of this machine, or the test is not run (fails in CI)."""
    layout = kernel.real_layout()
    try:
        probe = Path(layout.anchor) / f"{PREFIX}{os.getpid()}-probe"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        unavailable(f"no writable control groups: {error}")
    return layout


class RealGroups:
    """Groups below one top group of this process, in every hierarchy in use."""

    def __init__(self, layout: Layout, word: str) -> None:
        self.layout = layout
        self.top = f"{PREFIX}{os.getpid()}-{word}"
        self.children: list[subprocess.Popen[bytes]] = []
        self.make("")

    def make(self, path: str) -> str:
        """Create ``<top>/<path>``; return its group path."""
        group = f"{self.top}/{path}".rstrip("/")
        for mount in self.layout.mounts():
            parts = group.split("/")
            for depth in range(1, len(parts) + 1):
                above = Path(mount, *parts[: depth - 1])
                (above / parts[depth - 1]).mkdir(exist_ok=True)
                _open_controllers(above)
        return group

    def write(self, name: str, group: str, text: str) -> None:
        """Write one file of a group by its name in the table."""
        place = self.layout.place(name, group)
        assert place is not None, f"{name} does not exist on this machine"
        Path(place.path).write_text(text)

    def limit_cpu(self, group: str, quota_us: int) -> None:
        """Set a quota over 100 ms."""
        version = self.layout.controllers["cpu"].version
        self.write("cpu_quota", group, f"{quota_us}" if version == 1 else f"{quota_us} 100000")

    def run(self, group: str, code: str, cpu: int | None = None) -> subprocess.Popen[bytes]:
        """Start Python code that waits for a line on stdin, put it into the group, let it go."""
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.children.append(child)
        if cpu is not None:
            os.sched_setaffinity(child.pid, {cpu})
        for mount in self.layout.mounts():
            if not mount.endswith("/cpuset"):  # a new cpuset takes no process until it has CPUs
                Path(mount, group, "cgroup.procs").write_text(str(child.pid))
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        return child

    def stop(self) -> None:
        """End the children and wait for them."""
        for child in self.children:
            child.kill()
        for child in self.children:
            child.wait(DEADLINE_S)
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
        self.children.clear()

    def remove(self, group: str) -> None:
        """Remove one group and those below it from every hierarchy."""
        for mount in self.layout.mounts():
            _remove_tree(Path(mount, group))

    def close(self) -> None:
        self.stop()
        self.remove(self.top)


def _open_controllers(above: Path) -> None:
    """On v2: hand the controllers down one level."""
    try:
        wanted = (above / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        return
    for name in {"cpu", "memory", "io", "pids"}.intersection(wanted):
        (above / "cgroup.subtree_control").write_text(f"+{name}")


def _remove_tree(top: Path) -> None:
    if not top.is_dir():
        return
    for directory, _, _ in os.walk(top, topdown=False):
        until(lambda path=directory: _removed(path), f"{directory} removed")  # type: ignore[misc]


def _removed(directory: str) -> bool:
    try:
        Path(directory).rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # busy while its processes end
        return False
    return True


def sweep_leftovers(layout: Layout) -> None:
    """Remove the groups of runs whose process is gone, with what still runs in them."""
    for mount in layout.mounts():
        for top in Path(mount).glob(f"{PREFIX}*"):
            owner = top.name.removeprefix(PREFIX).partition("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                for procs in top.rglob("cgroup.procs"):
                    for pid in procs.read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                _remove_tree(top)


@contextmanager
def real_groups(word: str) -> Iterator[RealGroups]:
    """`RealGroups` for the time of a test."""
    layout = real_layout()
    sweep_leftovers(layout)
    groups = RealGroups(layout, word)
    try:
        yield groups
    finally:
        groups.close()
