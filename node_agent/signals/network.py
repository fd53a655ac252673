"""Bytes that each pod received and sent: /proc/PID/net/dev of one process of the pod.

A pod's containers share one network namespace, so any process will do; it is kept until it ends.
``lo`` is left out. A pod in the machine's own namespace (host network) has no figure of its own:
absent. No descriptor is kept, for that would keep the namespace alive after the pod.

All pods are gone round once in `ROUND_MS`. A counter grows by what one namespace counted between
two visits, so that another process or another namespace never makes it jump or fall.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from node_agent.cgroup.handles import GroupFiles
from node_agent.cgroup.once import read_numbers, read_once
from node_agent.cgroup.walk import subgroups
from node_agent.signals.base import Pods, Value
from schemas.columns import RARE_MS

NAME = "network"
COLUMNS = ("net_receive_bytes", "net_transmit_bytes")
ROUND_MS = RARE_MS
VISITS_MOST = 32  # a sweep
PIDS_TRIED = 8
MACHINE_PIDS = (1, 2)  # init, kthreadd
LIST_BYTES_MAX = 4096
_LOOPBACK = b"lo"

Space = tuple[int, int]  # device and inode of a network namespace


def parse(data: bytes) -> tuple[int, int]:
    """(received, sent) in bytes over all interfaces but lo. Raises ValueError for another table."""
    received = sent = 0
    lines = data.splitlines()
    if len(lines) < 2 or not lines[1].lstrip().startswith(b"face"):
        raise ValueError("not the table of /proc/net/dev")
    for line in lines[2:]:
        name, _, figures = line.partition(b":")
        if name.strip() != _LOOPBACK:
            words = figures.split()
            received += int(words[0])
            sent += int(words[8])
    return received, sent


@dataclass(slots=True)
class _Pod:
    """What is known of one pod."""

    pid: int = 0
    space: Space | None = None
    last: tuple[int, int] = (0, 0)
    grown: tuple[int, int] | None = None  # None: no figure of its own


class Network:
    """The counters of all pods of one node."""

    name = NAME
    columns = COLUMNS

    def __init__(self, root: str, period_ms: int) -> None:
        """``root``: of the file system."""
        self._proc = f"{root.rstrip('/')}/proc"
        self._period_ms = period_ms
        self.reason = ""
        self._pods: dict[str, _Pod] = {}
        self._next = 0
        self._owed = 0  # pods times milliseconds

    def visit(self, pods: Pods, _now_us: int, _oom_kills: Value) -> bool:
        """Go on round the pods; nothing here is ever urgent."""
        count = len(pods.files)
        self._owed += count * self._period_ms
        visits = min(self._owed // ROUND_MS, count, VISITS_MOST)
        self._owed = min(self._owed - visits * ROUND_MS, ROUND_MS)
        if visits:
            self.reason = ""
            machine = self._machine_space()
            for _ in range(visits):
                files = pods.files[self._next % count]
                self._next = self._next % count + 1
                if not files.gone and machine is not None:
                    self._look(self._pods.setdefault(files.group, _Pod()), files, machine)
        return False

    def values(self, column: str, pods: Pods) -> list[Value]:
        """Bytes since the first visit; None: not visited yet, or on the machine's network."""
        place = COLUMNS.index(column)
        known = (self._pods.get(files.group) for files in pods.files)
        return [None if pod is None or pod.grown is None else pod.grown[place] for pod in known]

    def forget(self, groups: set[str]) -> None:
        """Drop the counters of groups that have left the pod set."""
        for name in groups:
            self._pods.pop(name, None)

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self, pod: _Pod, files: GroupFiles, machine: Space) -> None:
        space = self._space(pod.pid) if pod.pid else None
        if space is None or space != pod.space:
            pod.pid, space = self._process(files, pod.space)
        if space is None:
            return  # no process now: the counter stands
        if space == machine:
            pod.space, pod.grown = space, None
            return
        data = read_once(f"{self._proc}/{pod.pid}/net/dev")
        if data is None or self._space(pod.pid) != space:
            return  # it ended, and its number may be another's
        now = parse(data)
        if space != pod.space or pod.grown is None:
            pod.space, pod.grown = space, pod.grown or (0, 0)
        else:
            steps = (max(0, now[0] - pod.last[0]), max(0, now[1] - pod.last[1]))
            pod.grown = (pod.grown[0] + steps[0], pod.grown[1] + steps[1])
        pod.last = now

    def _process(self, files: GroupFiles, known: Space | None) -> tuple[int, Space | None]:
        """A process of the pod, in the namespace known before if there is one; (0, None): none."""
        place = files.layout.place("procs", files.group)
        if place is None:
            return 0, None
        found: tuple[int, Space | None] = (0, None)
        tried = 0
        for directory in subgroups(place.directory):
            for pid in read_numbers(f"{directory}/{place.file}", LIST_BYTES_MAX) or ():
                space = self._space(pid) if pid > 0 else None
                if space is not None:
                    if known in (None, space):
                        return pid, space
                    found = found if found[0] else (pid, space)
                tried += 1
                if tried >= PIDS_TRIED:
                    return found
        return found

    def _machine_space(self) -> Space | None:
        """That of the first process, or of the kernel's own where the first is not ours to see."""
        for pid in MACHINE_PIDS:
            space = self._space(pid)
            if space is not None:
                self.reason = ""
                return space
        return None

    def _space(self, pid: int) -> Space | None:
        """The network namespace of a process; None: it has ended, or we may not know."""
        try:
            about = os.stat(f"{self._proc}/{pid}/ns/net")
        except PermissionError:
            self.reason = "denied"  # CAP_SYS_PTRACE is what it takes
            return None
        except (FileNotFoundError, ProcessLookupError):
            return None
        return about.st_dev, about.st_ino
