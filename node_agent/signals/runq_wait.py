"""Run-queue wait: how long runnable threads of each group waited for a CPU.

The kernel keeps it per thread (second field of /proc/<tid>/schedstat, ns), so threads are sampled
and the cost is bounded: at most ``groups`` groups and ``threads`` threads a sweep, round robin.
Each group has a counter of its own that grows by the sum of the sampled threads' increments times
threads / threads sampled. A thread counts from its second reading on and its end takes nothing
away, so that churn never makes the counter fall. A group whose turn it is not is absent.

Called by `node_agent.sampler`, which owns the one `RunqWait`; `node_agent.reflex` keeps a
`GroupWait` a pod where the kernel has no pressure.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from node_agent.cgroup.handles import READ_BYTES, GroupFiles
from node_agent.cgroup.walk import children
from node_agent.signals.base import Value

NAME = "runq_wait"
COLUMN = "runq_wait_us"
GROUPS_PER_S = 16
THREADS_PER_S = 64
THREADS_PER_GROUP = 16
SUBGROUPS_PER_GROUP = 32
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
    """The sampled counters of all groups of one node."""

    def __init__(self, root: str, period_ms: int) -> None:
        """``root``: of the file system; the budgets above are shared out over the periods."""
        self._proc = f"{root.rstrip('/')}/proc"
        self._groups_a_sweep = max(1, GROUPS_PER_S * period_ms // 1000)
        self._threads_a_sweep = max(THREADS_PER_GROUP, THREADS_PER_S * period_ms // 1000)
        self._groups: dict[str, _Group] = {}
        self._next = 0

    def sweep(self, files: Sequence[GroupFiles], now_us: int) -> list[Value]:
        """One value a group, in microseconds; None where it was not the group's turn."""
        values: list[Value] = [None] * len(files)
        threads_left = self._threads_a_sweep
        for _ in range(min(len(files), self._groups_a_sweep)):
            if threads_left <= 0:
                break
            index = self._next % len(files)
            self._next = index + 1
            if files[index].gone:
                continue
            group = self._groups.setdefault(files[index].group, _Group())
            budget = min(threads_left, THREADS_PER_GROUP)
            threads_left -= self._visit(group, files[index], budget, now_us)
            values[index] = group.total_ns // 1000
        return values

    def forget(self, groups: set[str]) -> None:
        """Drop the counters of groups that have left the pod set."""
        for name in groups:
            self._groups.pop(name, None)

    def _visit(self, group: _Group, files: GroupFiles, budget: int, now_us: int) -> int:
        """Read up to ``budget`` threads of one group; return how many were read."""
        place = files.layout.place("threads", files.group)
        if place is None:
            return 0
        if not group.directories or now_us - group.listed_us >= RELIST_US:
            group.directories = _subgroups(place.directory)
            group.listed_us = now_us
        threads: list[int] = []
        for directory in group.directories:
            found = _threads(f"{directory}/{place.file}")
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
        data = _read(f"{self._proc}/{tid}/schedstat", READ_BYTES)
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
        for directory in _subgroups(place.directory):
            found += _threads(f"{directory}/{place.file}") or []
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


def _subgroups(top: str) -> list[str]:
    """``top`` and the groups below it, nearest first, bounded."""
    found = [top]
    for directory in found:
        found.extend(f"{directory}/{name}" for name in children(directory))
        if len(found) >= SUBGROUPS_PER_GROUP:
            return found[:SUBGROUPS_PER_GROUP]
    return found


def _threads(path: str) -> list[int] | None:
    """Thread ids of one group, without its children's; None: it is gone."""
    data = _read(path, LIST_BYTES_MAX)
    return None if data is None else [int(word) for word in data.split()]


def _read(path: str, at_most_bytes: int) -> bytes | None:
    """Up to ``at_most_bytes`` of a file, ending at a line; None when its owner is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    parts: list[bytes] = []
    size = 0
    try:
        while size < at_most_bytes and (part := os.read(fd, READ_BYTES)):
            parts.append(part)
            size += len(part)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    finally:
        os.close(fd)
    data = b"".join(parts)
    return data[: data.rfind(b"\n") + 1]
