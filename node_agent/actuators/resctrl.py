"""The kernel's resctrl tree: cache and memory bandwidth groups, and the tasks in them.

Groups of ours are told by a prefix; no other is ever made, written, emptied or removed. Opened by
`node_agent.surfaces`; what is turned there is in `knobs/schemata.py` and `knobs/resctrl_group.py`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from node_agent.actuators.acts import KERNEL, Acts
from node_agent.actuators.beneath import GONE, UnsafePath, Write
from node_agent.actuators.failure import Named
from node_agent.actuators.pod_tasks import read_whole
from node_agent.cgroup.once import read_once

MOUNT = "sys/fs/resctrl"
PREFIX = "slackwater-"
ROOT = ""
"""The group of all that is in no other."""
_OF_KERNEL = frozenset({"info", "mon_data", "mon_groups"})
_NAME = re.compile(r"[A-Za-z0-9_]{1,32}", re.ASCII)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o755


def in_mbps(root: str) -> bool:
    """Whether bandwidth is in MB/s here (mount option mba_MBps), where policy speaks of percent.

    ``root``: of the file system, without a slash at its end.
    """
    table = read_once(f"{root}/proc/self/mounts") or b""
    lines = (line.split() for line in table.decode("utf-8", "replace").splitlines())
    return any(words[2:3] == ["resctrl"] and "mba_MBps" in words[3].split(",") for words in lines)


class Resctrl:
    """One mount; holds its descriptor. Names are those of settings: LSR, LS, BE."""

    def __init__(self, mount: str, write: Write = os.write, acts: Acts = KERNEL) -> None:
        """Raises OSError where resctrl is not mounted."""
        self._write, self._acts = write, acts
        self._mount = os.open(mount, _DIRECTORY)
        try:
            os.stat("schemata", dir_fd=self._mount)
        except OSError:
            os.close(self._mount)
            raise

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._mount)

    def groups(self) -> list[str]:
        """Directories of control groups, without the root's."""
        with os.scandir(self._mount) as entries:
            found = (e.name for e in entries if e.is_dir(follow_symlinks=False))
            return sorted(name for name in found if name not in _OF_KERNEL)

    def read(self, directory: str, file: str) -> str | None:
        """A file of a directory of the tree (`ROOT`: the top); None where there is none."""
        try:
            with self._open(directory) as at:
                return read_whole(at, file)
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def make(self, name: str) -> None:
        """A group of ours. Raises Named when the hardware has no class left for it."""
        try:
            self._acts.make(our(name), _MODE, dir_fd=self._mount)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno == errno.ENOSPC:
                text = f"no class of service is left for resctrl group {our(name)}"
                raise Named(errno.ENOSPC, "closid_exhausted", text) from None
            raise

    def remove(self, name: str) -> None:
        """A group of ours; its tasks fall back to the root's."""
        with suppress(FileNotFoundError):
            self._acts.remove(our(name), dir_fd=self._mount)

    def set_schemata(self, name: str, line: str) -> None:
        """One line of one resource. Raises UnsafePath for an empty one."""
        if "=" not in line:
            raise UnsafePath(f"refusing to write {line!r} to the schemata of {our(name)}")
        self._put(our(name), "schemata", f"{line}\n")

    def add(self, name: str, tasks: Collection[int]) -> None:
        """Tasks into a group of ours, or (`ROOT`) into none; one that has ended is no error."""
        for task in tasks:
            with suppress(ProcessLookupError):
                self._put(our(name) if name else ROOT, "tasks", f"{task}\n")

    def whereabouts(self) -> dict[int, str]:
        """Directory of the group of each task that is in one."""
        found: dict[int, str] = {}
        for directory in self.groups():
            text = self.read(directory, "tasks")
            found.update((int(line), directory) for line in (text or "").split())
        return found

    def clean(self, kept: Collection[str]) -> None:
        """Take away groups of ours that nobody remembers; ``kept``: names that are."""
        for directory in self.groups():
            name = directory.removeprefix(PREFIX)
            if name != directory and _NAME.fullmatch(name) and name not in kept:
                self.remove(name)

    def _put(self, directory: str, file: str, text: str) -> None:
        with self._open(directory) as at:
            descriptor = os.open(file, _WRITE, dir_fd=at)
            try:
                self._write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    @contextmanager
    def _open(self, directory: str) -> Iterator[int]:
        """A descriptor of a directory of the tree."""
        at = os.open(directory or ".", _DIRECTORY, dir_fd=self._mount)
        try:
            yield at
        finally:
            os.close(at)


def our(name: str) -> str:
    """The directory of a group of ours. Raises UnsafePath for a name that is none."""
    if not _NAME.fullmatch(name):
        raise UnsafePath(f"{name!r} is no name of a resctrl group; want one such as BE")
    return f"{PREFIX}{name}"
