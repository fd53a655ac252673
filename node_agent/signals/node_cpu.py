"""CPU time of the whole machine from /proc/stat.

Busy leaves out idle and iowait (waiting for a disk is not use, and iowait may fall); steal, the
time the hypervisor took, is apart. Guest time is already within user.
"""

from __future__ import annotations

import os

from node_agent.signals.base import NodeSource, Value

NAME = "node_cpu"
_US_PER_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


def parse(data: bytes) -> tuple[Value, ...]:
    """(busy, steal) in microseconds over all CPUs, from the first line."""
    fields = data[: data.index(b"\n")].split()
    if fields[0] != b"cpu" or len(fields) < 8:
        raise ValueError("the first line of /proc/stat is not the sum over CPUs")
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:8])
    steal = int(fields[8]) * _US_PER_TICK if len(fields) > 8 else None
    return (user + nice + system + irq + softirq) * _US_PER_TICK, steal


SOURCES = (NodeSource(("cpu_busy_us", "cpu_steal_us"), "proc/stat", parse),)
