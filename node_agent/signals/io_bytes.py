"""Bytes that each group read from and wrote to block devices, children included.

On v1 buffered writes are charged to the root, so only reads and direct writes show there. A file
without a device is a true 0: the group has moved nothing yet. Unknown keys are passed over.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value

NAME = "io_bytes"


def parse_v1(data: bytes) -> tuple[Value, ...]:
    """(bytes) over all devices, from lines such as ``8:0 Read 4096``."""
    moved_bytes = 0
    for line in data.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in (b"Read", b"Write"):
            moved_bytes += int(fields[2])
    return (moved_bytes,)


def parse_v2(data: bytes) -> tuple[Value, ...]:
    """(bytes) over all devices, from lines such as ``8:0 rbytes=4096 wbytes=0 dbytes=0``."""
    moved_bytes = 0
    for word in data.split():
        key, equals, amount = word.partition(b"=")
        if equals and key in (b"rbytes", b"wbytes"):
            moved_bytes += int(amount)
    return (moved_bytes,)


SOURCES = (
    GroupSource(("io_bytes",), Input(("io_bytes",), parse_v1), Input(("io_bytes",), parse_v2)),
)
