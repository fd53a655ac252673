"""Cycles and instructions of each online pod: what CPI is made of.

Counting is dear: a counter a CPU and kind, and work at each switch between groups. So few pods are
counted at a time, each for `WINDOW_US`, in turn, within `DESCRIPTORS_MOST` descriptors; a machine
of more CPUs counts one pod at a time. The two columns grow by what a window counted and stand
between windows: their ratio over any time is the pod's CPI, a rate over time says nothing. Both
are sent as they stood at one moment. A window without instructions adds nothing.

Machines without such counters (most virtual ones) load none of this but the question.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.cgroup.handles import REPROBE_US, GroupFiles
from node_agent.cgroup.layout import Layout
from node_agent.signals.base import Pods, Value

NAME = "perf"
COLUMNS = ("cpu_cycles", "cpu_instructions")
WINDOW_US = 10_000_000
DESCRIPTORS_MOST = 256
_SOURCES = "sys/bus/event_source/devices"
_ONLINE = "sys/devices/system/cpu/online"


class Counters(Protocol):
    """One pod's counters, counting."""

    def read(self) -> tuple[int, ...] | None: ...

    def close(self) -> None: ...


Opener = Callable[[str, Sequence[int]], Counters]
"""(directory of the group, CPUs) -> counters; raises OSError."""


def there(root: str) -> bool:
    """Whether the kernel has a source of hardware events for its CPUs."""
    try:
        found = os.listdir(f"{root}/{_SOURCES}")
    except OSError:
        return False
    return any(name.startswith(("cpu", "armv")) for name in found)


def open_hardware(directory: str, cpus: Sequence[int]) -> Counters:
    """Cycles and instructions of the hardware."""
    from node_agent.signals import perf_event as pe  # noqa: PLC0415  (where the kernel has them)

    return pe.GroupCounters(directory, cpus, (pe.CYCLES, pe.INSTRUCTIONS))


class Perf:
    """The counters of all online pods of one node."""

    name = NAME
    columns = COLUMNS

    def __init__(self, layout: Layout, opener: Opener = open_hardware) -> None:
        self.reason = ""
        self._layout = layout
        self._root = layout.root.rstrip("/")
        self._open = opener
        self._counted: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, tuple[int, int]] = {}  # as of the last turn of the first column
        self._running: dict[str, Counters] = {}
        self._ends_us = 0
        self._next = 0

    def visit(self, pods: Pods, now_us: int, _oom_kills: Value) -> bool:
        """End a window that is over and begin the next; nothing here is ever urgent."""
        if now_us >= self._ends_us:
            self._finish()
            self._ends_us = now_us + WINDOW_US
            self._begin(pods, now_us)
        return False

    def values(self, column: str, pods: Pods) -> list[Value]:
        """What was counted so far; None for a pod that had no window yet."""
        place = COLUMNS.index(column)
        if place == 0:
            self._sent = dict(self._counted)
        known = (self._sent.get(files.group) for files in pods.files)
        return [None if counted is None else counted[place] for counted in known]

    def forget(self, groups: set[str]) -> None:
        """Drop what is known of groups that have left the pod set."""
        for name in groups:
            self._counted.pop(name, None)
            running = self._running.pop(name, None)
            if running is not None:
                running.close()

    def close(self) -> None:
        """Stop counting."""
        self.forget(set(self._running))

    def _finish(self) -> None:
        """Add up what the running windows counted; a failure of one is told after all are shut."""
        running, self._running = self._running, {}
        failure: Exception | None = None
        for group, counters in running.items():
            try:
                counted = counters.read()
            except (OSError, ValueError) as error:
                counted, failure = None, error
            counters.close()
            if counted is not None and counted[1] > 0:
                before = self._counted.get(group, (0, 0))
                self._counted[group] = before[0] + counted[0], before[1] + counted[1]
        if failure is not None:
            raise failure

    def _begin(self, pods: Pods, now_us: int) -> None:
        """Open the counters of the next pods in turn."""
        online = [
            files
            for files, fact in zip(pods.files, pods.facts, strict=True)
            if fact.qos != "BE" and not files.gone
        ]
        if not online:
            return
        with open(f"{self._root}/{_ONLINE}", encoding="ascii") as file:
            cpus = parse_cpu_list(file.read())
        at_once = max(1, DESCRIPTORS_MOST // (len(COLUMNS) * len(cpus)))
        for _ in range(min(at_once, len(online))):
            files = online[self._next % len(online)]
            self._next = self._next % len(online) + 1
            try:
                self._running[files.group] = self._open(self._directory(files), cpus)
            except OSError as error:
                if not os.path.isdir(files.anchor):
                    continue
                if not self._running:  # else descriptors have run out: fewer at a time
                    refused = error.errno in (errno.EACCES, errno.EPERM)
                    self.reason = "denied" if refused else "not_built"
                    self._ends_us = now_us + REPROBE_US
                return
        self.reason = ""

    def _directory(self, files: GroupFiles) -> str:
        """The pod's in the hierarchy that perf counts by."""
        mount = self._layout.perf_event
        if mount is None:
            raise OSError(errno.ENOENT, "no hierarchy of perf_event is mounted")
        return f"{mount}/{files.group}"
