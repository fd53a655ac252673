"""What each NUMA node of the machine has left: /sys/devices/system/node/nodeN/meminfo.

Available = free + file lists + reclaimable slab, in kB (koordinator, `util/meminfo.go`, has used =
total - this). How much a node has at all stands in the inventory. A node that has memory and no
CPU counts like any other.
"""

from __future__ import annotations

from node_agent.signals.base import NodeSource, Value, zone_there
from schemas.columns import ZONES_MAX

NAME = "node_numa"
_LEFT = (b"MemFree:", b"Active(file):", b"Inactive(file):", b"SReclaimable:")


def parse(data: bytes) -> tuple[Value, ...]:
    """(available) in bytes, from lines such as ``Node 0 MemFree:  1024 kB``."""
    left_kb: dict[bytes, int] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) == 5 and words[2] in _LEFT and words[4] == b"kB":
            left_kb[words[2]] = int(words[3])
    if _LEFT[0] not in left_kb:
        raise ValueError("no MemFree in the meminfo of a NUMA node")
    return (sum(left_kb.values()) * 1024,)


SOURCES = tuple(
    NodeSource(
        (f"numa{zone}_available_bytes",),
        f"sys/devices/system/node/node{zone}/meminfo",
        parse,
        zone_there(zone),
    )
    for zone in range(ZONES_MAX)
)
