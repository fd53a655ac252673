"""Memory that is not reclaimed from a pod: min never, low last; cgroup v2 alone has it.

Written to the groups in the pod too, for a parent's protection is not handed down by itself; where
they want more than it has, the kernel shares by use. Law: `agents.isolation.memory_qos`.
"""

from __future__ import annotations

from node_agent.actuators.number import MOST_BYTES, Number, Numbers


class MemoryProtection(Numbers):
    """An online pod's is only ever raised."""

    name = "memory_protection"
    turns = frozenset({"memory_min_bytes", "memory_low_bytes"})
    surface = "memory"
    deep = True
    rows = (
        Number("memory_min_bytes", None, "memory.min", 0, MOST_BYTES, pages=True),
        Number("memory_low_bytes", None, "memory.low", 0, MOST_BYTES, pages=True),
    )
