"""How many CPUs are online: bounds every rate of CPU time, and falls when one is taken away."""

from __future__ import annotations

from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.signals.base import NodeSource, Value

NAME = "cpus_online"


def parse(data: bytes) -> tuple[Value, ...]:
    """(CPUs) of a list such as ``0,2,4-6``; an empty list says nothing."""
    return (len(parse_cpu_list(data.decode("ascii"))) or None,)


SOURCES = (NodeSource(("cpus_online",), "sys/devices/system/cpu/online", parse),)
