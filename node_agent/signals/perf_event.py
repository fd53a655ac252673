"""Counters of the CPU for one control group: perf_event_open(2) on the group's directory.

Called by `node_agent.signals.perf`, and imported only where the kernel has such counters. One
event counts on one CPU, so that a group takes as many descriptors as CPUs x counters. The
counters of one CPU are a perf group, read at once, with the time they really counted: the kernel
shares the hardware out when more is asked for than it has.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

# struct perf_event_attr, its first version: type, size, config, sample period, sample type, read
# format, flags, wakeup, breakpoint type, breakpoint address.
_ATTR = struct.Struct("<IIQQQQQIIQ")
_READ_FORMAT = 1 | 2 | 8  # time enabled, time running, all counters of the group
_CLOEXEC, _PID_IS_CGROUP = 8, 4
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_LIBC = ctypes.CDLL(None, use_errno=True)

HARDWARE, SOFTWARE = 0, 1
Event = tuple[int, int]  # type, config
CYCLES: Event = (HARDWARE, 0)
INSTRUCTIONS: Event = (HARDWARE, 1)


def scaled(data: bytes, counters: int) -> tuple[int, ...] | None:
    """What one CPU's group counted, scaled to the time it was switched on; None: it never ran.

    ``data``: how many counters, ns enabled, ns running, one 64-bit value each. Raises ValueError
    for anything else.
    """
    words = struct.unpack(f"<{3 + counters}Q", data) if len(data) == 8 * (3 + counters) else ()
    if not words or words[0] != counters:
        raise ValueError(f"{len(data)} bytes are no group of {counters} counters")
    enabled_ns, running_ns = words[1], words[2]
    if running_ns == 0:
        return None
    return tuple(value * enabled_ns // running_ns for value in words[3:])


class GroupCounters:
    """The counters of one control group on all CPUs, counting from the moment they are opened."""

    def __init__(self, directory: str, cpus: Sequence[int], events: Sequence[Event]) -> None:
        """``directory``: the group's in the perf_event hierarchy. Raises OSError; nothing stays
        open then.
        """
        self._events = len(events)
        self._leaders: list[int] = []
        self._members: list[int] = []
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for cpu in cpus:
                leader = _open(events[0], group, cpu, -1)
                self._leaders.append(leader)
                self._members += [_open(event, group, cpu, leader) for event in events[1:]]
        except OSError:
            self.close()
            raise
        finally:
            os.close(group)

    def read(self) -> tuple[int, ...] | None:
        """Sums over all CPUs since they were opened; None: nothing of the group ran."""
        size = 8 * (3 + self._events)
        rows = [scaled(os.read(leader, size), self._events) for leader in self._leaders]
        counted = [row for row in rows if row is not None]
        return tuple(map(sum, zip(*counted, strict=True))) if counted else None

    def close(self) -> None:
        """Stop counting."""
        for fd in (*self._members, *self._leaders):
            os.close(fd)
        self._leaders, self._members = [], []


def _open(event: Event, group: int, cpu: int, leader: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "no number of perf_event_open is known for this machine")
    kind, config = event
    attr = _ATTR.pack(kind, _ATTR.size, config, 0, 0, _READ_FORMAT, 0, 0, 0, 0)
    fd = int(_LIBC.syscall(number, attr, group, cpu, leader, _PID_IS_CGROUP | _CLOEXEC))
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "perf_event_open")
    return fd
