"""Processes that the kernel killed for want of memory, by pod.

The machine's own count (vmstat, every second) says when there is something to look for: only then
are the pods' files read, `LOOKS` a sweep, and what has grown goes out with that very sample. v2:
``oom_kill`` of memory.events, which counts the groups below too. v1 counts in each group alone, so
those below a pod are read as well and added up; what a group counted stays counted when it goes.
Without the machine's count (kernels before 4.13) there is no file to read either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node_agent.cgroup.files import FILES
from node_agent.cgroup.handles import GroupFiles
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.once import read_once
from node_agent.cgroup.walk import SUBGROUPS_MAX, subgroups
from node_agent.signals.base import Pods, Value, number_after

NAME = "oom"
COLUMN = "oom_kills"
LOOKS = 64  # a sweep
DIRECTORIES_KEPT = 8 * SUBGROUPS_MAX  # of a pod that makes new groups all the time


def parse(data: bytes) -> Value:
    """Kills of one group, from memory.events or memory.oom_control; None before kernel 4.13."""
    return number_after(b"\n" + data, b"\noom_kill ")


@dataclass(slots=True)
class _Pod:
    """One pod's count; ``last``: directory -> what its file said."""

    kills: Value = None
    last: dict[str, int] = field(default_factory=dict)


class OomKills:
    """The count of each pod of one node."""

    name = NAME
    columns = (COLUMN,)
    reason = ""

    def __init__(self, layout: Layout) -> None:
        home = layout.hierarchy(FILES["oom"].controller)
        self._deep = home is not None and home.version == 1
        self._machine: Value = None
        self._pods: dict[str, _Pod] = {}
        self._waiting: dict[str, GroupFiles] = {}  # to be looked at, in this order

    def visit(self, pods: Pods, _now_us: int, oom_kills: Value) -> bool:
        """Look at all pods after a kill somewhere, at new pods always; True: a count has grown."""
        moved = oom_kills is not None and self._machine not in (None, oom_kills)
        if oom_kills is not None:
            self._machine = oom_kills
        for files in pods.files:
            if not files.gone and (moved or files.group not in self._pods):
                self._waiting[files.group] = files
        grown = False
        for group in list(self._waiting)[:LOOKS]:
            grown |= self._look(self._waiting.pop(group))
        return grown

    def values(self, _column: str, pods: Pods) -> list[Value]:
        """Kills so far; None where the kernel does not say."""
        known = (self._pods.get(files.group) for files in pods.files)
        return [None if pod is None else pod.kills for pod in known]

    def forget(self, groups: set[str]) -> None:
        """Drop the counts of groups that have left the pod set."""
        for name in groups:
            self._pods.pop(name, None)
            self._waiting.pop(name, None)

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self, files: GroupFiles) -> bool:
        """Read one pod's files; whether its count has grown since the last look."""
        pod = self._pods.setdefault(files.group, _Pod())
        place = files.layout.place("oom", files.group)
        if place is None:
            return False
        before = pod.kills
        for directory in subgroups(place.directory) if self._deep else (place.directory,):
            data = read_once(f"{directory}/{place.file}")
            kills = None if data is None else parse(data)
            if kills is not None:
                last = pod.last.get(directory, 0)
                # Less than before: another group under the old name.
                pod.kills = (pod.kills or 0) + (kills - last if kills >= last else kills)
                pod.last.pop(directory, None)  # to the end: the longest unseen are forgotten
                pod.last[directory] = kills
        while len(pod.last) > DIRECTORIES_KEPT:
            del pod.last[next(iter(pod.last))]
        return before is not None and pod.kills != before
