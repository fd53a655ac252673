"""Time and periods in which a quota stopped each group: cpu.stat of both versions.

The kernel counts a group's own quota only, not that of its children. Without the cpu controller
v2 leaves these lines out: absent, not "never throttled".
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value, number_after

NAME = "cpu_throttling"


def parse_v1(data: bytes) -> tuple[Value, ...]:
    """(throttled us, periods throttled); the file says nanoseconds, third of its lines."""
    words = data.split(None, 6)
    if len(words) > 5 and words[2] == b"nr_throttled" and words[4] == b"throttled_time":
        return int(words[5]) // 1000, int(words[3])
    throttled_ns = number_after(data, b"\nthrottled_time ")
    periods = number_after(data, b"\nnr_throttled ")
    return (None if throttled_ns is None else throttled_ns // 1000), periods


def parse_v2(data: bytes) -> tuple[Value, ...]:
    """(throttled us, periods throttled)."""
    return number_after(data, b"\nthrottled_usec "), number_after(data, b"\nnr_throttled ")


V1 = Input(("cpu_stat",), parse_v1)
V2 = Input(("cpu_stat",), parse_v2)
SOURCES = (GroupSource(("cpu_throttled_us", "cpu_throttled_periods"), V1, V2),)
