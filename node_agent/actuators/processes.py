"""Processes of pods as a `knob.Surface`: each is a key of its pod's place, by id and start time.

A process that ends in between is no error: it is passed over. It is held by its directory in /proc
while it is written, so an id that another one has taken since is never hit. Best effort may be made
more likely to be killed, an online pod only less likely than it was before us.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from node_agent.actuators.beneath import UnsafePath, Write, safe_parts
from node_agent.actuators.knob import Raw
from node_agent.actuators.online import OnlineNames, TakesAway
from node_agent.actuators.pod_tasks import PodTasks, read_whole
from node_agent.cgroup.paths import strictly_inside

SCORE = "oom_score_adj"
START = 19  # place of the start time in /proc/<pid>/stat, after the name in brackets
ENDED = (ProcessLookupError, FileNotFoundError)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CLOEXEC


class Processes:
    """``proc``: where the kernel's process directories are."""

    version = 0

    def __init__(
        self,
        proc: str,
        tasks: PodTasks,
        roots: Collection[str],
        names: OnlineNames,
        write: Write = os.write,
    ) -> None:
        self._proc, self._tasks, self._write = proc, tasks, write
        self._roots, self._names = tuple(roots), names

    def close(self) -> None:
        """Give the hierarchy back."""
        self._tasks.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The pod itself: its processes are those of all groups in it."""
        return [unit]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The group's inode, and each process's score; without ``files`` none is read."""
        identity = self._tasks.identity(place)
        if identity is None:
            return None
        found = {}
        for pid in self._tasks.processes(place) if files else ():
            with self._held(pid) as (directory, start):
                if directory >= 0:
                    found[f"{pid}:{start}"] = read_whole(directory, SCORE).strip()
        return identity, found

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """One process, by the key that `look` gave. Raises UnsafePath, TakesAway, OSError."""
        online = self._names.holds(safe_parts(place))
        if not online and not any(strictly_inside(place, root) for root in self._roots):
            raise UnsafePath(f"{place!r} is no pod that the inventory names")
        if original is None:
            raise UnsafePath(f"{place!r}: process {file} has no score to go back to")
        if online and int(text) > int(original):
            raise TakesAway(f"{place!r} is online: {text} would be killed before {original}")
        pid, _, start = file.partition(":")
        with self._held(int(pid)) as (directory, now):
            if directory >= 0 and now == start:
                descriptor = os.open(SCORE, _WRITE, dir_fd=directory)
                try:
                    self._write(descriptor, text.encode())
                finally:
                    os.close(descriptor)

    @contextmanager
    def _held(self, pid: int) -> Iterator[tuple[int, str]]:
        """A descriptor of the process and its start time; -1 when it has ended.

        The block may find it ended meanwhile: that ends the block without an error.
        """
        directory, start = -1, ""
        with suppress(*ENDED):
            directory = os.open(f"{self._proc}/{pid}", _DIRECTORY)
            start = read_whole(directory, "stat").rpartition(")")[2].split()[START]
        try:
            with suppress(*ENDED):
                yield (directory, start) if start else (-1, "")
        finally:
            if directory >= 0:
                os.close(directory)
