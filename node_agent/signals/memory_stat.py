"""Memory of each group by kind, children included, page cache apart: memory.stat.

Used = inactive_anon + active_anon + unevictable: what cannot be had back without swap or a kill.
tmpfs and shared memory lie on the anon lists and are in it. The dearest file of all: read at most
once a second, however short the period.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value, number_after

NAME = "memory_stat"


def parse_v1(data: bytes) -> tuple[Value, ...]:
    """(used, file, inactive_file, shmem, unevictable) in bytes, from the ``total_`` lines."""
    return _values(data, b"\ntotal_", b"cache")


def parse_v2(data: bytes) -> tuple[Value, ...]:
    """(used, file, inactive_file, shmem, unevictable) in bytes."""
    return _values(b"\n" + data, b"\n", b"file")


def _values(data: bytes, prefix: bytes, file: bytes) -> tuple[Value, ...]:
    begin = max(0, data.find(prefix))  # v1: past the group's own lines
    inactive_anon = number_after(data, prefix + b"inactive_anon ", begin)
    active_anon = number_after(data, prefix + b"active_anon ", begin)
    unevictable = number_after(data, prefix + b"unevictable ", begin)
    used = None
    if inactive_anon is not None and active_anon is not None and unevictable is not None:
        used = inactive_anon + active_anon + unevictable
    return (
        used,
        number_after(data, prefix + file + b" ", begin),
        number_after(data, prefix + b"inactive_file ", begin),
        number_after(data, prefix + b"shmem ", begin),
        unevictable,
    )


SOURCES = (
    GroupSource(
        (
            "memory_used_bytes",
            "memory_file_bytes",
            "memory_inactive_file_bytes",
            "memory_shmem_bytes",
            "memory_unevictable_bytes",
        ),
        Input(("memory_stat",), parse_v1),
        Input(("memory_stat",), parse_v2),
        every_ms=1000,
    ),
)
