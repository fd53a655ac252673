"""Samples of many nodes at once as packed bytes: the same bytes as `schemas.packed.encode`.

The tests hold every byte against that one. Made for rates that one sample at a time cannot reach:
one array holds the samples of all nodes whose names and pod sets are equally long.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from node_agent.simulate.trace import IntArray
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.packed import MAGIC, VERSION

HEAD = np.dtype(
    [
        ("magic", "S4"),
        ("total", "<u4"),
        ("crc", "<u4"),
        ("version", "<u2"),
        ("name_bytes", "<u2"),
        ("boot", "V16"),
        ("kernel_boot", "V16"),
        ("seq", "<u8"),
        ("mono_us", "<i8"),
        ("wall_ms", "<i8"),
        ("period_ms", "<u4"),
        ("pods_rev", "<u4"),
        ("pods", "<u4"),
        ("columns", "<u4"),
    ]
)
CHECKED_FROM = 12  # the checksum covers everything after itself


@dataclass(frozen=True, slots=True)
class Batch:
    """Header fields and columns of R samples with ``pods`` pods each.

    ``node`` and ``pod`` map column names to int64 [R] and [R, pods]; no value is absent.
    """

    names: Sequence[bytes]
    boots: Sequence[bytes]
    kernel_boot: bytes
    seq: IntArray
    mono_us: IntArray
    wall_ms: int
    period_ms: int
    pods_rev: IntArray
    pods: int
    node: dict[str, IntArray]
    pod: dict[str, IntArray]


def encode(batch: Batch) -> list[bytes]:
    """One packed sample a row, in order; all names must be of one length."""
    rows, name_bytes = len(batch.names), len(batch.names[0])
    assert all(len(name) == name_bytes for name in batch.names), "names of one length only"
    node = [(c.id, batch.node[n]) for n, c in NODE_COLUMNS.items() if n in batch.node]
    pod = [(c.id, batch.pod[n]) for n, c in POD_COLUMNS.items() if n in batch.pod]
    directory = b"".join(struct.pack("<HHI", each, 0, 1) for each, _ in node)
    directory += b"".join(struct.pack("<HHI", each, 0, batch.pods) for each, _ in pod)
    name_end = HEAD.itemsize + name_bytes
    body = HEAD.itemsize + (name_bytes + 7 & ~7)
    start = body + len(directory)
    size = start + 8 * (len(node) + len(pod) * batch.pods)
    raw: NDArray[np.uint8] = np.zeros((rows, size), np.uint8)
    raw[:, HEAD.itemsize : name_end] = np.frombuffer(b"".join(batch.names), np.uint8).reshape(
        rows, name_bytes
    )
    raw[:, body:start] = np.frombuffer(directory, np.uint8)
    words = raw[:, start:].view("<i8")
    for at, (_, values) in enumerate(node):
        words[:, at] = values
    for at, (_, values) in enumerate(pod):
        begin = len(node) + at * batch.pods
        words[:, begin : begin + batch.pods] = values
    head = raw[:, : HEAD.itemsize].view(HEAD)[:, 0]
    head["magic"], head["version"] = MAGIC, VERSION
    head["total"], head["name_bytes"] = size, name_bytes
    head["boot"] = np.frombuffer(b"".join(batch.boots), "V16")
    head["kernel_boot"] = np.frombuffer(batch.kernel_boot, "V16")[0]
    for name in ("seq", "mono_us", "wall_ms", "period_ms", "pods_rev", "pods"):
        head[name] = getattr(batch, name)
    head["columns"] = len(node) + len(pod)
    return _sealed(raw, head, size)


def _sealed(raw: NDArray[np.uint8], head: NDArray[np.void], size: int) -> list[bytes]:
    """Checksums in, and the rows as bytes."""
    view = raw.data.cast("B")
    starts = range(0, len(view), size)
    head["crc"] = [crc32(view[at + CHECKED_FROM : at + size]) for at in starts]
    whole = raw.tobytes()
    return [whole[at : at + size] for at in starts]
