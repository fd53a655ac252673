"""Models of a partition's pods, row by row beside an arena: a table, and its image.

`agents.state` keeps one while prediction is on and moves its rows with the pods; `agents.predict`
trains it. A row costs `ROW_BYTES`, where a row that was never trained costs address space only.
"""

from __future__ import annotations

import numpy as np

from agents.prediction import fleet
from agents.prediction.histogram import Histograms, Kind
from agents.table import ABSENT, Array, Field, Ints, Table

_KINDS = (("cpu", fleet.CPU_BUCKETS), ("memory", fleet.MEMORY_BUCKETS))
_SMALL = (
    Field("cpu_total", np.float32),
    Field("cpu_reference", np.int32, fill=ABSENT),
    Field("memory_total", np.float32),
    Field("memory_reference", np.int32, fill=ABSENT),
    Field("since_ms", fill=ABSENT),  # log time of the first sample
    Field("peak", shape=(2,), fill=ABSENT),  # milli, bytes: p95 of cpu, p98 of memory
)
FIELDS = _SMALL + tuple(
    Field(f"{name}_cells", np.float32, (buckets.count,)) for name, buckets in _KINDS
)
ROW_BYTES = fleet.ROW_BYTES + 3 * 8
"""The models of one pod, since when, and both peaks."""


class Held:
    """``half_lives_ms``: those that the references count; ``at_ms``: log time of the last look."""

    __slots__ = ("at_ms", "half_lives_ms", "table")

    def __init__(self, half_lives_ms: tuple[int, int], at_ms: int, size: int) -> None:
        self.half_lives_ms = half_lives_ms
        self.at_ms = at_ms
        self.table = Table(FIELDS)
        self.table.grow(size)

    def models(self, epsilon: float) -> fleet.Models:
        """The same memory as `fleet` trains and asks it; good until the table grows."""
        lives = zip(_KINDS, self.half_lives_ms, strict=True)
        cpu, memory = (Kind(buckets, life_ms, epsilon) for (_, buckets), life_ms in lives)
        one, other = (
            Histograms(
                self.table[f"{name}_cells"],
                self.table[f"{name}_total"],
                self.table[f"{name}_reference"],
            )
            for name, _ in _KINDS
        )
        return fleet.Models((cpu, memory), (one, other))

    def image(self, slots: Ints) -> dict[str, Array]:
        """What the trained of ``slots`` hold, cell by cell where there is one; exact."""
        table = self.table
        place = np.flatnonzero(table["since_ms"].take(slots) != ABSENT)
        rows = slots.take(place)
        arrays: dict[str, Array] = {f.name: table.take(f.name, rows) for f in _SMALL}
        for name, _ in _KINDS:
            cells = table.take(f"{name}_cells", rows)
            at, bucket = cells.nonzero()
            arrays[f"{name}_filled"] = np.bincount(at, minlength=len(rows)).astype(np.uint8)
            arrays[f"{name}_bucket"] = bucket.astype(np.uint8)
            arrays[f"{name}_weight"] = cells[at, bucket]
        lives = np.array([self.at_ms, *self.half_lives_ms], dtype=np.int64)
        return arrays | {"place": place, "times_ms": lives}

    @classmethod
    def restored(cls, arrays: dict[str, Array], slots: Ints, size: int) -> Held:
        """What `image` described, for the same pods in other slots of an arena of ``size``."""
        at_ms, cpu_ms, memory_ms = arrays["times_ms"].tolist()
        held = cls((cpu_ms, memory_ms), at_ms, size)
        rows = slots.take(arrays["place"])
        held.table.write_rows(rows, {f.name: arrays[f.name] for f in _SMALL})
        for name, _ in _KINDS:
            owner = rows.repeat(arrays[f"{name}_filled"])
            held.table[f"{name}_cells"][owner, arrays[f"{name}_bucket"]] = arrays[f"{name}_weight"]
        return held
