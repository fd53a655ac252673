"""Where reclaim of a best-effort pod begins, short of a limit; never an online pod's.

On v2 memory.high. On v1 the soft limit: it does not slow the pod down, but when the machine is
short of memory what lies above it is reclaimed first, which is what lending needs; neither kills.
"""

from __future__ import annotations

from node_agent.actuators.number import MOST_BYTES, Number, Numbers


class MemoryThrottle(Numbers):
    """-1 is no limit."""

    name = "memory_throttle"
    turns = frozenset({"memory_high_bytes"})
    surface = "memory"
    rows = (
        Number(
            "memory_high_bytes",
            "memory.soft_limit_in_bytes",
            "memory.high",
            0,
            MOST_BYTES,
            more=0,
            pages=True,
            unlimited=True,
        ),
    )
