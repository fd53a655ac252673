"""Run-queue wait: how long runnable threads of each online group waited for a CPU.

The kernel keeps it per thread (second field of /proc/<tid>/schedstat, ns), so threads are sampled
and the cost is bounded: the groups are gone round in `ROUND_MS` or a whole part of it, so that two
readings `ROUND_MS` apart hold the same number of visits, and few threads of each are read.
Each group has a counter of its own that grows by the sum of their increments times
threads / threads read. A thread counts from its second reading on and its end takes nothing
away, so that churn never makes the counter fall. Between visits the counter stands.

Best-effort groups are absent: they wait by order. Called by `node_agent.sampler`;
`node_agent.reflex` keeps a `GroupWait` a pod where the kernel has no pressure.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from node_agent.cgroup.handles import READ_BYTES, GroupFiles
from node_agent.cgroup.once import read_numbers, read_once
from node_agent.cgroup.walk import subgroups
from node_agent.signals.base import Pods, Value

NAME = "runq_wait"
COLUMN = "runq_wait_us"
ROUND_MS = 10_000  # the centre takes a point so often
GROUPS_PER_S = 8
THREADS_PER_S = 64
THREADS_PER_GROUP = 16
THREADS_LEAST = 2  # of a visit, however many groups there are
GROUPS_MOST_PER_S = 100  # beyond 1,000 groups a round takes longer
RELIST_US = 30_000_000  # how long a list of sub-groups is believed while all of them are there
SHORT_THREADS = 4  # of a group that is looked at every few tens of milliseconds
SHORT_RELIST_US = 1_000_000
LIST_BYTES_MAX = 65_536  # of one list of threads: some 10,000 of them
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


def parse(data: bytes) -> int:
    """Nanoseconds that one thread waited on a run queue since its start."""
    return int(data.split(None, 2)[1])


@dataclass(slots=True)
class _Group:
    """One group's threads as last read, and its counter."""

    waited_ns: dict[int, int] = field(default_factory=dict)  # thread id -> its counter
    total_ns: int = 0
    directories: list[str] = field(default_factory=list)
    listed_us: int = 0


class RunqWait:
    """The sampled counters of all online groups of one node."""

    name = NAME
    columns = (COLUMN,)
    reason = ""

    def __init__(self, root: str, period_ms: int) -> None:
        """``root``: of the file system; the budgets above are shared out over the periods."""
        self._proc = f"{root.rstrip('/')}/proc"
        self._period_ms = period_ms
        self._threads_a_sweep = max(THREADS_PER_GROUP, THREADS_PER_S * period_ms // 1000)
        self._groups: dict[str, _Group] = {}
        self._next = 0
        self._owed = 0  # thousandths of a visit

    def visit(self, pods: Pods, now_us: int, _oom_kills: Value) -> bool:
        """Go on round the online groups; nothing here is ever urgent."""
        online = [
            files
            for files, fact in zip(pods.files, pods.facts, strict=True)
            if fact.qos != "BE" and not files.gone
        ]
        visits = self._visits(len(online))
        threads_left = max(self._threads_a_sweep, visits * THREADS_LEAST)
        for left in range(visits, 0, -1):
            files = online[self._next % len(online)]
            self._next = self._next % len(online) + 1
            group = self._groups.setdefault(files.group, _Group())
            budget = min(threads_left // left, THREADS_PER_GROUP)
            threads_left -= self._look(group, files, budget, now_us)
        return False

    def values(self, _column: str, pods: Pods) -> list[Value]:
        """Microseconds; None for a group that was not visited yet."""
        known = (self._groups.get(files.group) for files in pods.files)
        return [None if group is None else group.total_ns // 1000 for group in known]

    def forget(self, groups: set[str]) -> None:
        """Drop the counters of groups that have left the pod set."""
        for name in groups:
            self._groups.pop(name, None)

    def close(self) -> None:
        """Nothing is held open."""

    def _visits(self, online: int) -> int:
        """How many groups this sweep looks at: whole rounds within `ROUND_MS`."""
        if online == 0:
            return 0
        rounds = GROUPS_PER_S * ROUND_MS // 1000 // online
        rounds = max(1, min(rounds, ROUND_MS // self._period_ms))
        most_milli = GROUPS_MOST_PER_S * self._period_ms
        self._owed += min(online * rounds * 1000 * self._period_ms // ROUND_MS, most_milli)
        visits = min(online, self._owed // 1000)
        self._owed = min(self._owed - visits * 1000, 1000)
        return visits

    def _look(self, group: _Group, files: GroupFiles, budget: int, now_us: int) -> int:
        """Read up to ``budget`` threads of one group; return how many were read."""
        place = files.layout.place("threads", files.group)
        if place is None:
            return 0
        if not group.directories or now_us - group.listed_us >= RELIST_US:
            group.directories = subgroups(place.directory)
            group.listed_us = now_us
        threads: list[int] = []
        for directory in group.directories:
            found = read_numbers(f"{directory}/{place.file}", LIST_BYTES_MAX)
            if found is None:
                group.listed_us = now_us - RELIST_US
            else:
                threads += found
        alive = set(threads)
        chosen = [tid for tid in group.waited_ns if tid in alive][:budget]
        fresh = [tid for tid in threads if tid not in group.waited_ns]
        chosen += _spread(fresh, budget - len(chosen))
        waited_ns, grown_ns, known = {}, 0, 0
        for tid in chosen:
            now_ns = self._wait_ns(tid)
            if now_ns is None:
                continue
            before_ns = group.waited_ns.get(tid)
            waited_ns[tid] = now_ns
            if before_ns is not None and now_ns >= before_ns:
                grown_ns += now_ns - before_ns
                known += 1
        if known:
            group.total_ns += grown_ns * len(threads) // known
        group.waited_ns = waited_ns
        return len(chosen)

    def _wait_ns(self, tid: int) -> int | None:
        """One thread's counter; None: it has ended."""
        data = read_once(f"{self._proc}/{tid}/schedstat")
        return None if data is None else parse(data)


class GroupWait:
    """One group at short intervals, where the kernel keeps no pressure: a few threads, kept open.

    Its counter grows by the longest wait among them, which is at most the time that passed.
    """

    __slots__ = ("_at_ns", "_files", "_held", "_proc", "_relist_us", "_total_ns")

    def __init__(self, files: GroupFiles) -> None:
        self._files = files
        self._proc = f"{files.layout.root.rstrip('/')}/proc"
        self._held: dict[int, int] = {}  # thread id -> descriptor
        self._at_ns: dict[int, int] = {}  # thread id -> its counter
        self._relist_us = self._total_ns = 0

    def total_us(self, now_us: int) -> int | None:
        """Microseconds so far; None: no thread to look at."""
        if now_us >= self._relist_us:
            self._relist_us = now_us + SHORT_RELIST_US
            self._relist()
        longest_ns = 0
        for tid, descriptor in list(self._held.items()):
            try:
                now_ns = parse(os.pread(descriptor, READ_BYTES, 0))
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self._drop(tid)
                continue
            longest_ns = max(longest_ns, now_ns - self._at_ns.get(tid, now_ns))
            self._at_ns[tid] = now_ns
        self._total_ns += longest_ns
        return self._total_ns // 1000 if self._held else None

    def close(self) -> None:
        """Give the descriptors back; the counter stays."""
        for tid in list(self._held):
            self._drop(tid)

    def _relist(self) -> None:
        """Other threads, if there are more than are looked at; those that stay keep their count."""
        place = self._files.layout.place("threads", self._files.group)
        if place is None:
            return
        found: list[int] = []
        for directory in subgroups(place.directory):
            found += read_numbers(f"{directory}/{place.file}", LIST_BYTES_MAX) or []
        wanted = set(_spread(found, SHORT_THREADS))
        for tid in self._held.keys() - wanted:
            self._drop(tid)
        for tid in wanted - self._held.keys():
            try:
                self._held[tid] = os.open(
                    f"{self._proc}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC
                )
            except OSError as error:
                if error.errno not in _GONE:
                    raise

    def _drop(self, tid: int) -> None:
        os.close(self._held.pop(tid))
        self._at_ns.pop(tid, None)


def _spread(threads: list[int], count: int) -> list[int]:
    """``count`` of the threads, evenly over the list."""
    if count <= 0:
        return []
    return threads if len(threads) <= count else threads[:: -(-len(threads) // count)]
