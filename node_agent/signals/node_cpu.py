"""CPU time of the whole machine: /proc/stat, and the root group's own account where there is one.

Busy leaves out idle and iowait (waiting for a disk is not use, and iowait may fall); steal, the
time the hypervisor took, is apart. Guest time is already within user.

Most kernels fill /proc/stat by looking at each tick who runs: work that wakes in step with the tick
is seen always or never, and 200 ms hold 50 ticks a CPU. Groups are accounted to the nanosecond, so
the difference of the two, the system's use, would be off by a tenth of a core. The root group of
v1's cpuacct is exact; on v2 the root's figure is that of /proc/stat.
"""

from __future__ import annotations

import os
from pathlib import Path

from node_agent.cgroup.files import FILES
from node_agent.cgroup.layout import Layout
from node_agent.signals import cpu_usage
from node_agent.signals.base import NodeSource, Value

NAME = "node_cpu"
BUSY = "cpu_busy_us"
_ROOT_ONLY = "release_agent"
_US_PER_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


def parse(data: bytes) -> tuple[Value, ...]:
    """(busy, steal) in microseconds over all CPUs, from the first line."""
    fields = data[: data.index(b"\n")].split()
    if fields[0] != b"cpu" or len(fields) < 8:
        raise ValueError("the first line of /proc/stat is not the sum over CPUs")
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:8])
    steal = int(fields[8]) * _US_PER_TICK if len(fields) > 8 else None
    return (user + nice + system + irq + softirq) * _US_PER_TICK, steal


def exact(layout: Layout) -> NodeSource | None:
    """The exact source of `BUSY` here, read after `SOURCES`; None: that is the best there is."""
    hierarchy = layout.controllers.get("cpuacct")
    if hierarchy is None or hierarchy.version != 1:
        return None
    # In a container's own namespace the mount shows a part of the tree: only its root has this.
    if not Path(f"{hierarchy.mount}/{_ROOT_ONLY}").exists():
        return None
    path = f"{hierarchy.mount}/{FILES['cpu_usage'].v1}"
    below = path.removeprefix(layout.root.rstrip("/")).lstrip("/")
    return NodeSource((BUSY,), below, cpu_usage.parse_v1)


SOURCES = (NodeSource((BUSY, "cpu_steal_us"), "proc/stat", parse),)
