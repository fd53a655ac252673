"""What prediction keeps of a partition: models of its pods and of its nodes' classes, and answers.

`agents.state` keeps one while prediction is on and moves its rows with pods and nodes;
`agents.predict` trains and asks it. A pod costs `POD_BYTES`, a node `NODE_BYTES`; a row that was
never trained costs address space only.
"""

from __future__ import annotations

from collections.abc import Iterable

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
_SHORT = Field("short", np.int32, (2,), ABSENT)  # milli, KiB: the level that is worth its price
_CELLS = tuple(Field(f"{name}_cells", np.float32, (b.count,)) for name, b in _KINDS)
_ANSWERS = (
    Field("left", shape=(2,)),  # milli, bytes that may be lent for longer
    Field("stays", shape=(2,), fill=ABSENT),  # the peak that stays with prod pods
    Field("looked", np.int8),  # 0: something changed since it was answered
)
CLASSES = 2
SYSTEM, PROD = range(CLASSES)
"""Rows of a node's classes, one after the other. No pod is of no class once it is classified."""
POD_BYTES = fleet.ROW_BYTES + 4 * 8
"""The models of one pod, since when, both peaks and levels."""
NODE_BYTES = CLASSES * (fleet.ROW_BYTES + 3 * 8) + 4 * 8 + 1
"""The models of its classes, since when and their peaks; what was answered."""


class Bank(Table):
    """Models row by row: histograms of cpu and memory, and what was asked of them last."""

    def __init__(self, size: int, more: Iterable[Field] = ()) -> None:
        self.small = (*_SMALL, *more)
        super().__init__((*self.small, *_CELLS))
        self.grow(size)

    def models(self, half_lives_ms: tuple[int, int], epsilon: float) -> fleet.Models:
        """The same memory as `fleet` trains and asks it; good until the table grows."""
        lives = zip(_KINDS, half_lives_ms, strict=True)
        cpu, memory = (Kind(buckets, life_ms, epsilon) for (_, buckets), life_ms in lives)
        one, other = (
            Histograms(self[f"{name}_cells"], self[f"{name}_total"], self[f"{name}_reference"])
            for name, _ in _KINDS
        )
        return fleet.Models((cpu, memory), (one, other))

    def image(self, rows: Ints) -> dict[str, Array]:
        """What the trained of ``rows`` hold, cell by cell where there is one; exact."""
        place = np.flatnonzero(self["since_ms"].take(rows) != ABSENT)
        rows = rows.take(place)
        arrays: dict[str, Array] = {f.name: self.take(f.name, rows) for f in self.small}
        for name, _ in _KINDS:
            cells = self.take(f"{name}_cells", rows)
            at, bucket = cells.nonzero()
            arrays[f"{name}_filled"] = np.bincount(at, minlength=len(rows)).astype(np.uint8)
            arrays[f"{name}_bucket"] = bucket.astype(np.uint8)
            arrays[f"{name}_weight"] = cells[at, bucket]
        return arrays | {"place": place}

    def restore(self, arrays: dict[str, Array], rows: Ints) -> None:
        """Take over what `image` described, for the same entities in other rows."""
        rows = rows.take(arrays["place"])
        self.write_rows(rows, {f.name: arrays[f.name] for f in self.small})
        for name, _ in _KINDS:
            owner = rows.repeat(arrays[f"{name}_filled"])
            self[f"{name}_cells"][owner, arrays[f"{name}_bucket"]] = arrays[f"{name}_weight"]


class Held:
    """``half_lives_ms``: those that the references count; ``at_ms``: log time of the last look.

    ``pods`` has a row a slot, ``classes`` CLASSES rows a node, ``nodes`` a row a node.
    """

    __slots__ = ("at_ms", "classes", "half_lives_ms", "nodes", "pods")

    def __init__(
        self, half_lives_ms: tuple[int, int], at_ms: int, slots: int, nodes: int
    ) -> None:  # fmt: skip
        self.half_lives_ms = half_lives_ms
        self.at_ms = at_ms
        self.pods = Bank(slots, (_SHORT,))
        self.classes = Bank(0)
        self.nodes = Table(_ANSWERS)
        self.grow_nodes(nodes)

    def grow_nodes(self, size: int) -> None:
        """Room for ``size`` nodes from now on."""
        self.nodes.grow(size)
        self.classes.grow(CLASSES * size)

    def clear_node(self, row: int) -> None:
        """Let a node's row hold nothing."""
        self.nodes.clear(row)
        self.classes.clear(slice(CLASSES * row, CLASSES * (row + 1)))

    def image(self, slots: Ints, rows: Ints) -> dict[str, Array]:
        """All of it for these pods and nodes; exact."""
        lives = np.array([self.at_ms, *self.half_lives_ms], dtype=np.int64)
        classes = self.classes.image(classes_of(rows))
        return (
            {f"pod.{k}": v for k, v in self.pods.image(slots).items()}
            | {f"class.{k}": v for k, v in classes.items()}
            | {f"node.{k}": v for k, v in self.nodes.copy_rows(rows).items()}
            | {"times_ms": lives}
        )

    @classmethod
    def restored(
        cls, arrays: dict[str, Array], slots: Ints, rows: Ints, sizes: tuple[int, int]
    ) -> Held:  # fmt: skip
        """What `image` described, in other slots and rows of arenas of these ``sizes``."""
        at_ms, cpu_ms, memory_ms = arrays["times_ms"].tolist()
        held = cls((cpu_ms, memory_ms), at_ms, *sizes)
        pods, classes, nodes = (
            {k.removeprefix(part): v for k, v in arrays.items() if k.startswith(part)}
            for part in ("pod.", "class.", "node.")
        )
        held.pods.restore(pods, slots)
        held.classes.restore(classes, classes_of(rows))
        held.nodes.write_rows(rows, nodes)
        return held


def classes_of(rows: Ints) -> Ints:
    """Rows of the classes of these nodes, CLASSES a node."""
    return (rows[:, None] * CLASSES + np.arange(CLASSES)).reshape(-1)
