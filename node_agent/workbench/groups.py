"""Groups for the workbench: `<name>/online/<pod>` and `<name>/besteffort/<pod>`, everywhere.

Used by the demo, the closed-loop bench and the tests that need a real kernel. Groups are made in
every hierarchy in use and always taken away again: quota lifted, processes killed, emptiness
awaited, directories removed from the leaves up. What an earlier run left behind goes first.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from node_agent.cgroup.layout import Layout, detect
from node_agent.cgroup.paths import normal_group

Side = Literal["online", "besteffort"]
SIDES: tuple[Side, ...] = ("online", "besteffort")
REMOVE_S = 10.0
POLL_S = 0.005
V2_WANTED = ("cpu", "cpuset", "memory", "io", "pids")


class GroupsError(RuntimeError):
    """Groups could not be made or removed; the message says which and why."""


class Groups:
    """A context: made on entering, gone on leaving."""

    def __init__(self, name: str, layout: Layout | None = None) -> None:
        """``name``: one component, such as ``slackwater-demo``."""
        self.name = normal_group(name)
        self.layout = detect() if layout is None else layout

    def __enter__(self) -> Self:
        """Remove left-overs and make both sides. Raises GroupsError without the right to."""
        remove(self.layout, self.name)
        for side in SIDES:
            self.make(f"{self.name}/{side}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        remove(self.layout, self.name)

    @property
    def be_root(self) -> str:
        """The best-effort root, as the node agent wants it."""
        return f"{self.name}/besteffort"

    def pod(self, side: Side, name: str) -> str:
        """Make a pod's group; its path from the hierarchies' root."""
        path = f"{self.name}/{side}/{normal_group(name)}"
        self.make(path)
        return path

    def enter(self, path: str, pid: int) -> None:
        """Put a process into the group in every hierarchy."""
        enter(self.layout, path, pid)

    def directory(self, controller: str, path: str) -> Path:
        """Where the group is in a controller's hierarchy (or ``unified``)."""
        found = self.layout.directory(controller, path)
        if found is None:
            raise GroupsError(f"this machine has no {controller} hierarchy")
        return Path(found)

    def make(self, path: str) -> None:
        """Make the group of this path, and those above it, in every hierarchy."""
        for mount in self.layout.mounts():
            at = Path(mount)
            for part in normal_group(path).split("/"):
                _delegate(at)
                at = at / part
                try:
                    at.mkdir(exist_ok=True)
                except OSError as error:
                    raise GroupsError(f"cannot make {at}: {error.strerror}; run as root") from error
                _inherit_cpuset(at)


def enter(layout: Layout, path: str, pid: int) -> None:
    """Put a process into the group in every hierarchy."""
    for mount in layout.mounts():
        (Path(mount) / normal_group(path) / "cgroup.procs").write_text(str(pid), "ascii")


def remove(layout: Layout, name: str) -> None:
    """Take the group and all under it away, with their processes; nothing there is fine too.

    Raises GroupsError when something stays for longer than `REMOVE_S`.
    """
    tops = [Path(mount) / normal_group(name) for mount in layout.mounts()]
    until = time.monotonic() + REMOVE_S
    for top in tops:
        _lift(top)
    while sum(_kill(top) for top in tops):
        if time.monotonic() > until:
            raise GroupsError(f"processes of {name} do not end within {REMOVE_S:.0f} s")
        time.sleep(POLL_S)
    for top in tops:
        for directory in reversed(_walk(top)):
            _remove_one(directory, until)


def remove_stale(layout: Layout, prefix: str) -> None:
    """Take away `<prefix>-<pid>` groups whose process is gone: what a killed run left."""
    names = {
        entry.name
        for mount in layout.mounts()
        for entry in Path(mount).glob(f"{prefix}-*")
        if entry.is_dir()
    }
    for name in names:
        pid = name.removeprefix(f"{prefix}-")
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove(layout, name)


def _walk(top: Path) -> list[Path]:
    """The directory and all under it, parents first; empty when it is not there."""
    try:
        children = sorted(entry for entry in top.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    found = [top]
    for child in children:
        found += _walk(child)
    return found


def _lift(top: Path) -> None:
    """No quota anywhere under here: a throttled process dies a second late."""
    for directory in _walk(top):
        for file, text in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
            path = directory / file
            if path.exists():
                path.write_text(text, "ascii")


def _kill(top: Path) -> int:
    """SIGKILL to all processes under here; how many there were."""
    found = 0
    for directory in _walk(top):
        try:
            pids = (directory / "cgroup.procs").read_text("ascii").split()
        except OSError:
            continue
        for pid in pids:
            found += 1
            if int(pid) in (0, os.getpid()):
                raise GroupsError(f"process {pid} in {directory} is not ours to kill")
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
    return found


def _remove_one(directory: Path, until: float) -> None:
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise GroupsError(f"cannot remove {directory}: {error.strerror}") from error
            time.sleep(POLL_S)
        else:
            return


def _delegate(parent: Path) -> None:
    """On v2, hand controllers down; one that is not free here is left out."""
    control = parent / "cgroup.subtree_control"
    if not control.exists():
        return
    free = (parent / "cgroup.controllers").read_text("ascii").split()
    for name in V2_WANTED:
        if name in free:
            control.write_text(f"+{name}", "ascii")


def _inherit_cpuset(group: Path) -> None:
    """A new v1 cpuset is empty and takes no process: give it what its parent has."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        own, parent = group / file, group.parent / file
        if own.exists() and parent.exists() and not own.read_text("ascii").strip():
            text = parent.read_text("ascii")
            if text.strip():
                own.write_text(text, "ascii")
