"""Scheduling manners: the agent lets whoever wakes go first, also in the middle of its own burst.

Called by `process` for the agent itself and by the workbench. A waking task preempts at once when
its slice is shorter than that of the running one; with equal slices it waits until the running
one has had its protected time (1.4 to 3 ms). So the agent asks for a slice longer than any default.
It keeps its share of CPU. Measured on Linux 6.18 with bursts of 1.5 ms beside an online probe: the
probe's p99 is 1.2 to 1.5 ms with the default slice and 0.13 to 0.23 ms with this one.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

LONG_NS = 10_000_000  # the default is 0.7 ms x (1 + log2(CPUs, at most 8)): at most 2.8 ms
DEFAULT_NS = 0  # as sched_setattr(2) understands it
# struct sched_attr, first version: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTR = struct.Struct("<IIQiIQQQ")
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # glibc has no wrapper before 2.41
_LIBC = ctypes.CDLL(None, use_errno=True)


def set_slice(slice_ns: int = LONG_NS, pid: int | None = None) -> bool:
    """Set the slice of all threads of a process (None: this one), which later children inherit.

    Returns whether the kernel took it for each; one before 6.12 takes it and does nothing. Threads
    that are not of the ordinary policy are left alone, and one that has ended is no failure.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    done = True
    for entry in Path(f"/proc/{os.getpid() if pid is None else pid}/task").glob("*"):
        done = _set(number, int(entry.name), slice_ns) and done
    return done


def _set(number: int, tid: int, slice_ns: int) -> bool:
    try:
        if os.sched_getscheduler(tid) != os.SCHED_OTHER:
            return True
        nice = os.getpriority(os.PRIO_PROCESS, tid)
    except ProcessLookupError:
        return True
    attr = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    return int(_LIBC.syscall(number, tid, attr, 0)) == 0
