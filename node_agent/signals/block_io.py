"""Block io of each group, children included: bytes, operations, and latency where it is told.

On v1 buffered writes are charged to the root, so only reads and direct writes show there. A file
without a device is a true 0: the group has moved nothing yet. Unknown keys are passed over. The
mean latency stands in io.stat only where ``io.latency`` is in use and the kernel runs with
``blkcg_debug_stats``; io pressure (`group_psi`) says everywhere what waiting for a disk costs.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input, Value

NAME = "block_io"
_NEVER = 0  # a mean of nothing


def parse_v1(data: bytes) -> tuple[Value, ...]:
    """(bytes or operations) over all devices, from lines such as ``8:0 Read 4096``."""
    moved = 0
    for line in data.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in (b"Read", b"Write"):
            moved += int(fields[2])
    return (moved,)


def parse_v2(data: bytes) -> tuple[Value, ...]:
    """(bytes) over all devices, from lines such as ``8:0 rbytes=4096 wbytes=0 dbytes=0``."""
    return (sum(_amounts(data, b"rbytes", b"wbytes")),)


def parse_operations_v2(data: bytes) -> tuple[Value, ...]:
    """(operations) over all devices."""
    return (sum(_amounts(data, b"rios", b"wios")),)


def parse_latency_v2(data: bytes) -> tuple[Value, ...]:
    """(mean latency) in microseconds, of the slowest device; None where none tells it."""
    return (max(_amounts(data, b"avg_lat"), default=_NEVER) or None,)


def _amounts(data: bytes, *keys: bytes) -> list[int]:
    """The numbers of these keys, over all devices."""
    found: list[int] = []
    for word in data.split():
        key, equals, amount = word.partition(b"=")
        if equals and key in keys:
            found.append(int(amount))
    return found


SOURCES = (
    GroupSource(("io_bytes",), Input(("io_bytes",), parse_v1), Input(("io_bytes",), parse_v2)),
    GroupSource(
        ("io_operations",),
        Input(("io_operations",), parse_v1),
        Input(("io_operations",), parse_operations_v2),
    ),
    GroupSource(("io_latency_us",), None, Input(("io_bytes",), parse_latency_v2)),
)
