"""A packed sample as what-if needs it: a few raw counters out of it, and others put in.

`streams.replay.what_if.twin` calls this once a sample. What stays where it is costs a copy of the
payload; a pod that comes or goes costs a decoding and an encoding.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from schemas import packed
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.packed import HAS_BITMAP, PackedSample

WANTED = (
    "cpu_busy_us", "be_cpu_usage_us", "be_cpu_throttled_us", "be_cpu_quota_milli",
    "memory_available_bytes", "be_memory_used_bytes",
)  # fmt: skip
BUSY, BEST_EFFORT, THROTTLED, QUOTA, AVAILABLE, LIMITED = range(len(WANTED))
POD_CPU, POD_MEMORY = "cpu_usage_us", "memory_used_bytes"
Values = tuple[int | None, ...]
"""In the order of `WANTED`; None: absent."""
_IDS = tuple(NODE_COLUMNS[name].id for name in WANTED)
_POD_IDS = {POD_COLUMNS[name].id: name for name in (POD_CPU, POD_MEMORY)}
_ROW = struct.Struct("<" + "".join(code for _, code, _ in packed.ROW))
_PLANS_KEPT = 4096
WORD, WORD_BITS = 8, 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the words lie: (values, bitmap or -1) of the node's columns, and of the pods'."""

    node: tuple[tuple[int, int], ...]
    pods: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Extra:
    """A pod that is not in a sample and shall be: its counter of CPU time, and what it holds."""

    cpu_us: int
    memory_bytes: int


@lru_cache(_PLANS_KEPT)
def plan_of(layout: bytes) -> Plan:
    """Where a sample of this directory has what is wanted."""
    found: dict[int, tuple[int, int]] = {}
    word = 0
    for column, flags, count in _ROW.iter_unpack(layout):
        bitmap = -(-count // WORD_BITS) if flags & HAS_BITMAP else 0
        found[column] = (word + bitmap, word if bitmap else -1)
        word += bitmap + count
    node = tuple(found.get(column, (-1, -1)) for column in _IDS)
    return Plan(node, {name: found[c] for c, name in _POD_IDS.items() if c in found})


def read(sample: PackedSample) -> Values:
    """The node's values of `WANTED`."""
    words = memoryview(sample.payload).cast("q")
    return tuple(
        words[at] if at >= 0 and (bits < 0 or words[bits] & 1) else None
        for at, bits in plan_of(sample.layout).node
    )


def read_pods(sample: PackedSample, name: str) -> list[int | None]:
    """One value a pod; all None where the sample does not have the column."""
    where = plan_of(sample.layout).pods.get(name)
    if where is None:
        return [None] * sample.pods
    at, bits = where
    words = memoryview(sample.payload).cast("q")
    values: list[int | None] = words[at : at + sample.pods].tolist()  # type: ignore[assignment]
    if bits >= 0:
        present = [words[bits + i // WORD_BITS] >> (i % WORD_BITS) & 1 for i in range(sample.pods)]
        values = [value if there else None for value, there in zip(values, present, strict=True)]
    return values


def written(
    sample: PackedSample, node: Mapping[int, int], pods: Mapping[str, Mapping[int, int]]
) -> PackedSample:
    """A copy with these values where it has any: by place in `WANTED`; by pod column and pod."""
    plan = plan_of(sample.layout)
    payload = bytearray(sample.payload)
    words = memoryview(payload).cast("q")
    for place, value in node.items():
        at, bits = plan.node[place]
        if at >= 0 and (bits < 0 or words[bits] & 1):
            words[at] = value
    for name, values in pods.items():
        at, _ = plan.pods.get(name, (-1, -1))
        if at >= 0:
            for place, value in values.items():
                words[at + place] = value
    words.release()
    result = copy.copy(sample)
    result.payload = bytes(payload)
    return result


def with_pods(sample: PackedSample, keep: Sequence[int], extra: Sequence[Extra]) -> PackedSample:
    """A copy with the pods at ``keep`` alone, then ``extra``."""
    record = packed.spread(sample)
    columns: dict[str, list[int | None]] = {
        name: [*(values[place] for place in keep), *(_value(name, each) for each in extra)]
        for name, values in record.pod_columns.items()
    }
    count = len(keep) + len(extra)
    return PackedSample(packed.encode(replace(record, pods=count, pod_columns=columns)))


def _value(name: str, pod: Extra) -> int | None:
    return {POD_CPU: pod.cpu_us, POD_MEMORY: pod.memory_bytes}.get(name)
