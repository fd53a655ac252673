"""CPU time of each group, children included: v1 cpuacct.usage (ns), v2 cpu.stat (us)."""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value, number_after

NAME = "cpu_usage"


def parse_v1(data: bytes) -> tuple[Value, ...]:
    """(usage) in microseconds."""
    return (int(data) // 1000,)


def parse_v2(data: bytes) -> tuple[Value, ...]:
    """(usage) in microseconds; there without any controller enabled."""
    return (number_after(b"\n" + data, b"\nusage_usec "),)


V1 = Input(("cpu_usage",), parse_v1)
V2 = Input(("cpu_usage",), parse_v2)
SOURCES = (GroupSource(("cpu_usage_us",), V1, V2),)
