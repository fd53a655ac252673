"""The best-effort root group: its CPU time, its throttling and the quota in force there.

Fills node columns. The quota is read back from the kernel, so that a foreign writer is seen.
"""

from __future__ import annotations

from node_agent.signals import cpu_throttling, cpu_usage
from node_agent.signals.base import GroupSource, Input, Value

NAME = "best_effort"
NO_QUOTA = -1


def parse_quota_v1(quota: bytes, period: bytes) -> tuple[Value, ...]:
    """(quota) in millicores from cfs_quota_us and cfs_period_us; `NO_QUOTA`: none."""
    quota_us = int(quota)
    return (NO_QUOTA if quota_us < 0 else quota_us * 1000 // int(period),)


def parse_quota_v2(data: bytes) -> tuple[Value, ...]:
    """(quota) in millicores from ``cpu.max`` ("50000 100000" or "max 100000")."""
    quota, period = data.split()
    return (NO_QUOTA if quota == b"max" else int(quota) * 1000 // int(period),)


def parse_throttled_v1(data: bytes) -> tuple[Value, ...]:
    """(throttled) in microseconds."""
    return cpu_throttling.parse_v1(data)[:1]


def parse_throttled_v2(data: bytes) -> tuple[Value, ...]:
    """(throttled) in microseconds."""
    return cpu_throttling.parse_v2(data)[:1]


SOURCES = (
    GroupSource(("be_cpu_usage_us",), cpu_usage.V1, cpu_usage.V2),
    GroupSource(
        ("be_cpu_throttled_us",),
        Input(("cpu_stat",), parse_throttled_v1),
        Input(("cpu_stat",), parse_throttled_v2),
    ),
    GroupSource(
        ("be_cpu_quota_milli",),
        Input(("cpu_quota", "cpu_period"), parse_quota_v1),
        Input(("cpu_quota",), parse_quota_v2),
    ),
)
