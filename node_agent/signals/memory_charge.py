"""What is charged to each group, cache included, and the limit in force.

Two small files. "No limit" is -1: v2 says ``max``, v1 says 2^63-1 rounded down to a page.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value

NAME = "memory_charge"
NO_LIMIT = -1
_V1_NO_LIMIT_BYTES = (1 << 63) - (1 << 16)  # 2^63-1 rounded to the largest page in use, 64 KiB


def parse_current(data: bytes) -> tuple[Value, ...]:
    """(charged) in bytes."""
    return (int(data),)


def parse_limit(data: bytes) -> tuple[Value, ...]:
    """(limit) in bytes, or `NO_LIMIT`."""
    if data.strip() == b"max":
        return (NO_LIMIT,)
    limit_bytes = int(data)
    return (NO_LIMIT if limit_bytes >= _V1_NO_LIMIT_BYTES else limit_bytes,)


_CURRENT = Input(("memory_current",), parse_current)
_LIMIT = Input(("memory_limit",), parse_limit)
SOURCES = (
    GroupSource(("memory_current_bytes",), _CURRENT, _CURRENT),
    GroupSource(("memory_limit_bytes",), _LIMIT, _LIMIT),
)
