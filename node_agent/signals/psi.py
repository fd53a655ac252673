"""How to read a pressure file; used by the signals of the node and of the groups.

Only ``total=``, the stall time in microseconds since the start, is taken: averages are slow and
differ between kernels.
"""

from __future__ import annotations

from node_agent.signals.base import Value

_TOTAL = b"total="


def total(data: bytes, kind: bytes) -> Value:
    """``total=`` of the line that begins with ``kind`` (b"some" or b"full"), in microseconds.

    None: no such line (kernels before 5.13 have no ``full`` for cpu). Raises ValueError for a line
    without a total.
    """
    start = data.find(kind + b" ")
    if start < 0:
        return None
    end = data.find(b"\n", start)
    line = data[start:end] if end >= 0 else data[start:]
    return int(line[line.index(_TOTAL) + len(_TOTAL) :])


def first_total(data: bytes) -> int:
    """``total=`` of the first line, which is ``some`` on every kernel; the shortest way to it."""
    start = data.index(_TOTAL) + len(_TOTAL)
    return int(data[start : data.index(b"\n", start)])


def parse_some(data: bytes) -> tuple[Value, ...]:
    """(some) in microseconds; read of every group each period, so the usual form goes straight."""
    end = data.find(b"\n")
    line = data[:end] if end >= 0 else data
    if not line.startswith(b"some "):
        return (total(data, b"some"),)
    return (int(line[line.index(_TOTAL) + len(_TOTAL) :]),)


def parse_some_full(data: bytes) -> tuple[Value, ...]:
    """(some, full) in microseconds."""
    return total(data, b"some"), total(data, b"full")
