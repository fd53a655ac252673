"""The columns of a packed sample that an account reads, found once for each layout."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.packed import HAS_BITMAP, ROW, PackedSample

NODE_WANTED = (
    "cpu_busy_us", "be_cpu_usage_us", "be_cpu_throttled_us", "be_cpu_quota_milli",
    "be_memory_used_bytes", "oom_kills",
)  # fmt: skip
POD_WANTED = ("cpu_usage_us", "memory_used_bytes", "psi_cpu_some_us", "oom_kills")
OOM = "oom_kills"
_NAMES = {NODE_COLUMNS[name].id: ("node", name) for name in NODE_WANTED} | {
    POD_COLUMNS[name].id: ("pod", name) for name in POD_WANTED
}
_ROW = struct.Struct("<" + "".join(code for _, code, _ in ROW))
_KEPT = 4096
Values = list[int | None]


@dataclass(frozen=True, slots=True)
class _Where:
    name: str
    at: int
    count: int
    bits: int  # word of the presence bitmap; -1: all are there


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a layout has what is wanted; ``ooms``: whether it says who was killed for memory."""

    node: tuple[_Where, ...]
    pod: tuple[_Where, ...]
    ooms: bool


_plans: dict[tuple[bytes, int], Plan] = {}


def plan_of(sample: PackedSample) -> Plan:
    """The plan of a sample's layout."""
    key = (sample.layout, sample.pods)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _KEPT:
            _plans.clear()
        plan = _plans[key] = _made(*key)
    return plan


def _made(layout: bytes, _pods: int) -> Plan:
    found: dict[str, list[_Where]] = {"node": [], "pod": []}
    word = 0
    for column, flags, count in _ROW.iter_unpack(layout):
        bits = -1
        if flags & HAS_BITMAP:
            bits, word = word, word + (count + 63) // 64
        if column in _NAMES:
            scope, name = _NAMES[column]
            found[scope].append(_Where(name, word, count, bits))
        word += count
    ooms = any(where.name == OOM for places in found.values() for where in places)
    return Plan(tuple(found["node"]), tuple(found["pod"]), ooms)


def read(sample: PackedSample, plan: Plan) -> tuple[dict[str, int], dict[str, Values]]:
    """Node values by name (absent ones are missing), and pod columns; absent values are None."""
    words = memoryview(sample.payload).cast("q")
    node: dict[str, int] = {}
    for where in plan.node:
        if where.bits < 0 or words[where.bits] & 1:
            node[where.name] = words[where.at]
    pods: dict[str, Values] = {}
    for where in plan.pod:
        values: Values = list(words[where.at : where.at + where.count])
        if where.bits >= 0:
            present = int.from_bytes(words[where.bits : where.at].tobytes(), "little")
            values = [value if present >> i & 1 else None for i, value in enumerate(values)]
        pods[where.name] = values
    return node, pods
