"""Growing columns of equal length: the arenas of a partition's state.

`agents.state` builds two of them (one row a node, one slot a pod); every decider declares the
columns it keeps as `Field`s in its own module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
ABSENT = -1
"""What an integer column holds where nothing is known; every real value is 0 or more."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its type, inner shape, and the value of a row that holds nothing."""

    name: str
    dtype: type[np.integer[Any] | np.float32] = np.int64
    shape: tuple[int, ...] = ()
    fill: int = 0


class Table:
    """Columns by name; all are ``size`` long. Rows are handed out and cleared by the owner."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = tuple(fields)
        self.size = 0
        self._columns: dict[str, Array] = {f.name: _filled(f, 0) for f in self.fields}
        self._records: dict[str, Array] = {}
        assert len(self._columns) == len(self.fields), "two columns of one name"

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def take(self, name: str, rows: Ints) -> Array:
        """A copy of these rows; much cheaper than fancy indexing for columns with inner shape."""
        return self._columns[name].take(rows, axis=0)

    def put(self, name: str, rows: Ints, values: Array) -> None:
        """Write whole rows of a column with inner shape, as if each row were one item."""
        records = self._records.get(name)
        if records is None:
            records = self._records[name] = _as_records(self._columns[name])
        source = np.ascontiguousarray(values, dtype=self._columns[name].dtype)
        records[rows] = _as_records(source)

    def grow(self, size: int) -> None:
        """At least ``size`` rows from now on; new rows hold nothing."""
        if size <= self.size:
            return
        for field in self.fields:
            bigger = _filled(field, size)
            bigger[: self.size] = self._columns[field.name]
            self._columns[field.name] = bigger
        self._records.clear()
        self.size = size

    def clear(self, rows: Any) -> None:
        """Let these rows hold nothing."""
        for field in self.fields:
            self._columns[field.name][rows] = field.fill

    def copy_rows(self, rows: Ints) -> dict[str, Array]:
        """These rows of every column, compact."""
        return {f.name: self._columns[f.name].take(rows, axis=0) for f in self.fields}

    def write_rows(self, rows: Ints, values: dict[str, Array]) -> None:
        """What `copy_rows` gave, into other rows. A column that is missing keeps its fill."""
        for field in self.fields:
            if field.name in values:
                self._columns[field.name][rows] = values[field.name]


def spans(start: Ints, count: Ints) -> tuple[Ints, Ints, Ints]:
    """(slots, owner, place) of consecutive runs: run i has ``count[i]`` items from ``start[i]``."""
    end = np.cumsum(count)
    owner = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(owner)) - (end - count).take(owner)
    return start.take(owner) + place, owner, place


def spread(values: Array, owner: Ints) -> Array:
    """``values.take(owner)``, read-only; without a copy where all values are equal."""
    if len(values) and (values == values[0]).all():
        return np.broadcast_to(values[:1], owner.shape)
    return values.take(owner)


def _filled(field: Field, size: int) -> Array:
    shape = (size, *field.shape)
    if field.fill == 0:
        return np.zeros(shape, dtype=field.dtype)  # untouched pages cost no memory
    return np.full(shape, field.fill, dtype=field.dtype)


def _as_records(values: Array) -> Array:
    """One opaque item a row, sharing memory with ``values``."""
    width = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
    return values.reshape(-1).view(np.dtype((np.void, width)))
