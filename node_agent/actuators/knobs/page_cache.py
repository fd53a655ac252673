"""Limit of a best-effort pod's page cache, for kernels with memory.pagecache_limit.*.

Never an online pod's. Law: `agents.isolation.memory_qos`.
"""

from __future__ import annotations

from node_agent.actuators.knob import Ask
from node_agent.actuators.number import MOST_BYTES, Number, Numbers

SIZE, SYNC, ENABLE = (
    "memory.pagecache_limit.size", "memory.pagecache_limit.sync", "memory.pagecache_limit.enable",
)  # fmt: skip


class PageCache(Numbers):
    """Size and manner first, then the switch."""

    name = "page_cache"
    turns = frozenset({"page_cache_bytes", "page_cache_sync", "page_cache_enabled"})
    surface = "memory"
    rows = (
        Number("page_cache_bytes", SIZE, SIZE, 0, MOST_BYTES, more=0),
        Number("page_cache_sync", SYNC, SYNC, 0, 1, more=0),
        Number("page_cache_enabled", ENABLE, ENABLE, 0, 1, more=0),
    )

    def takes(self, ask: Ask) -> frozenset[str]:
        """A limit that is switched off takes nothing."""
        off = ask.knobs.get("page_cache_enabled") == 0
        return frozenset() if off else super().takes(ask)
