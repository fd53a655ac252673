"""Page cache that nobody has touched for long: memory.idle_page_stats of Anolis kernels (kidled).

Cold is what lay idle for `COLD_SCANS` scans or more on the inactive file lists, clean or dirty
(koordinator, `util/system/kidled_util.go` and `util/cold_page.go`): charged memory less this is
memory with the hot part of its page cache. The scan's period and that it counts hierarchies
(``use_hierarchy``) are set by whoever set the machine up.
"""

from __future__ import annotations

from pathlib import Path

from node_agent.cgroup.files import FILES
from node_agent.cgroup.layout import Layout
from node_agent.signals.base import GroupSource, Input, NodeSource, Value

NAME = "cold_memory"
COLD_SCANS = 5
_KINDS = (b"cfei", b"dfei", b"cfui", b"dfui")  # clean or dirty, file, evictable or not, inactive
_SWITCH = "sys/kernel/mm/kidled/scan_period_in_seconds"


def there(root: str) -> bool:
    """Whether this kernel scans for idle pages, now."""
    try:
        return int(Path(f"{root}/{_SWITCH}").read_bytes()) > 0
    except (OSError, ValueError):
        return False


def parse(data: bytes) -> tuple[Value, ...]:
    """(cold) in bytes; None before the first scan has ended."""
    bounds: list[int] = []
    scans, cold, rows = 1, 0, 0
    for line in data.splitlines():
        words = line.split()
        if line.startswith(b"# buckets:"):
            bounds = [int(word) for word in words[2].split(b",")]
        elif line.startswith((b"# scans:", b"# page_scans:")):
            scans = int(words[2])
        elif words and words[0] in _KINDS:
            rows += 1
            cold += sum(
                int(amount)
                for bound, amount in zip(bounds, words[1:], strict=True)
                if bound >= COLD_SCANS
            )
    if not bounds or not rows:
        raise ValueError("no buckets in memory.idle_page_stats")
    return (cold if scans else None,)


def of_machine(layout: Layout) -> NodeSource | None:
    """The root group's file; None without a memory controller."""
    row = FILES["memory_idle"]
    home = layout.hierarchy(row.controller)
    if home is None:
        return None
    below = home.mount.removeprefix(layout.root.rstrip("/")).lstrip("/")
    return NodeSource(("memory_cold_bytes",), f"{below}/{row.v1}", parse, there)


_INPUT = Input(("memory_idle",), parse)
SOURCES = (GroupSource(("memory_cold_bytes",), _INPUT, _INPUT, there),)
