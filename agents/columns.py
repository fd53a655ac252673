"""The payloads of many samples read side by side, whatever their layouts and pod counts.

`agents.fold` calls this once a wave. All payloads are joined into one vector of 64-bit words; a
plan per (directory, pods), computed once, says at which word each wanted column begins, so that a
column of the whole wave is one gather.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from agents.table import ABSENT, Bools, Ints
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.packed import HAS_BITMAP, PackedSample

NODE_WANTED = (
    "cpu_busy_us",
    "be_cpu_usage_us",
    "memory_total_bytes",
    "memory_available_bytes",
    "be_memory_limit_bytes",
    "be_memory_used_bytes",
    "be_cpu_quota_milli",
)
"""Node columns that a decider reads, in the order of `Payloads.node`."""

COUNTERS = 2  # the first so many of them are counters, the others levels
LEVELS = range(COUNTERS, len(NODE_WANTED))
QUOTA = LEVELS[-1]

POD_WANTED = (
    "cpu_usage_us",
    "memory_used_bytes",
    "psi_cpu_some_us",
    "runq_wait_us",
    "cpu_throttled_us",
)
"""Pod columns that a decider reads; the others stay in the log for its readers."""

CPU, MEMORY, PRESSURE, WAIT, THROTTLED = range(len(POD_WANTED))

_IDS = tuple(NODE_COLUMNS[n].id for n in NODE_WANTED) + tuple(POD_COLUMNS[n].id for n in POD_WANTED)
_PLACE = {column_id: place for place, column_id in enumerate(_IDS)}
_NODES = len(NODE_WANTED)
_ROW = struct.Struct("<HHI")
_ID = struct.Struct("<H")
_LAST = max(_IDS)
_PLANS_KEPT = 4096  # a fleet has some hundred; then all are made anew
_plans: dict[tuple[bytes, int], Ints] = {}


def _plan_of(layout: bytes, pods: int) -> Ints:
    """[2, columns] of word offsets: the values, and the presence bitmap; ABSENT where missing."""
    key = (layout, pods)
    plan = _plans.get(key)
    if plan is None:
        plan = np.full((2, len(_IDS)), ABSENT, dtype=np.int64)
        word = 0
        for column_id, flags, count in _ROW.iter_unpack(layout):
            bitmap = (count + 63) // 64 if flags & HAS_BITMAP else 0
            place = _PLACE.get(column_id)
            if place is not None:
                plan[0, place] = word + bitmap
                if bitmap:
                    plan[1, place] = word
            word += bitmap + count
        if len(_plans) >= _PLANS_KEPT:
            _plans.clear()
        _plans[key] = plan
    return plan


def _read_part(layout: bytes) -> bytes:
    """The directory without the columns at its end that nobody here reads.

    What takes turns stands there: else a fleet would have some thousand directories more.
    """
    end = len(layout)
    while end and _ID.unpack_from(layout, end - _ROW.size)[0] > _LAST:
        end -= _ROW.size
    return layout[:end]


class Payloads:
    """One wave of samples: ``node`` [w, NODE_WANTED] with ``node_has``, pod columns by `pod`."""

    def __init__(self, samples: Sequence[PackedSample]) -> None:
        places: dict[tuple[bytes, int], int] = {}
        distinct: list[Ints] = []
        which: list[int] = []
        for sample in samples:
            key = (_read_part(sample.layout), sample.pods)
            place = places.get(key)
            if place is None:
                place = places[key] = len(distinct)
                distinct.append(_plan_of(*key))
            which.append(place)
        payloads = [sample.payload for sample in samples]
        words = np.frombuffer(b"".join(payloads), dtype="<i8")
        self._words: Ints = words if words.size else np.zeros(1, dtype=np.int64)
        lengths = np.array([len(payload) >> 3 for payload in payloads], dtype=np.int64)
        self._base = np.cumsum(lengths) - lengths
        plan = np.stack(distinct).take(which, axis=0)
        self._at, self._bits = plan[:, 0].copy(), plan[:, 1].copy()
        self._has_bits = bool((self._bits >= 0).any())
        every = np.arange(len(samples)).repeat(_NODES)
        values, has = self._gather(
            np.tile(np.arange(_NODES), len(samples)), every, 0, self._base.repeat(_NODES)
        )
        self.node = values.reshape(-1, _NODES)
        self.node_has = has.reshape(-1, _NODES)

    def pod(self, column: int, owner: Ints, place: Ints) -> tuple[Ints, Bools]:
        """Values and presence of a `POD_WANTED` column for the pods ``place`` of ``owner``.

        ``owner`` indexes the wave's samples and ``place`` the pods within one; absent values are 0.
        """
        return self._gather(_NODES + column, owner, place, self._base.take(owner))

    def _gather(
        self, column: int | Ints, owner: Ints, place: Ints | int, base: Ints
    ) -> tuple[Ints, Bools]:
        at = self._at.reshape(-1).take(owner * len(_IDS) + column)
        has = at >= 0
        if has.all():
            values = self._words.take(base + at + place)
        else:
            values = self._words.take(np.where(has, base + at + place, 0))
            values[~has] = 0
        if self._has_bits:
            bits = self._bits.reshape(-1).take(owner * len(_IDS) + column)
            mapped = bits >= 0
            if mapped.any():
                word = np.where(mapped, base + bits + (np.asarray(place) >> 6), 0)
                bit = self._words.take(word) >> (np.asarray(place) & 63) & 1
                has &= ~mapped | (bit == 1)
        return values, has
