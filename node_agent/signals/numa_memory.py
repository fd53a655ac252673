"""Memory that each pod uses on each NUMA node: memory.numa_stat, pages on v1 and bytes on v2.

What is used is what `memory_stat` counts: the anon lists and what is unevictable, children
included. A machine of one node says nothing: it is all there.
"""

from __future__ import annotations

import os

from node_agent.signals.base import GroupSource, Input, Parse, Value, zone_there
from schemas.columns import ZONES_MAX

NAME = "numa_memory"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_V1 = (b"hierarchical_anon=", b"hierarchical_unevictable=")
_V2 = (b"inactive_anon ", b"active_anon ", b"unevictable ")


def used_on(zone: int, keys: tuple[bytes, ...], unit_bytes: int) -> Parse:
    """A parser of (used on this node) in bytes; None where a line or the node is missing."""
    node = f"N{zone}=".encode()

    def parse(data: bytes) -> tuple[Value, ...]:
        total, lines = 0, 0
        for line in data.splitlines():
            if line.startswith(keys):
                amounts = [word for word in line.split() if word.startswith(node)]
                if not amounts:
                    return (None,)
                total += int(amounts[0][len(node) :])
                lines += 1
        return (total * unit_bytes if lines == len(keys) else None,)

    return parse


SOURCES = tuple(
    GroupSource(
        (f"memory_numa{zone}_bytes",),
        Input(("memory_numa",), used_on(zone, _V1, _PAGE_BYTES)),
        Input(("memory_numa",), used_on(zone, _V2, 1)),
        zone_there(zone),
    )
    for zone in range(ZONES_MAX)
)
