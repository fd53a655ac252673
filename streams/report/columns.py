"""Columns of decoded tables as numpy arrays: names as codes, numbers as float64 or int64.

The builders read in batches, so that a recording of a large fleet never lies in memory whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.recording import Recording
from streams.recording.tables import batches
from streams.report.grid import Floats, Ints


class Codes:
    """Names to small numbers, in the order in which they were met."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self.names: list[str] = list(names)
        self._code = {name: code for code, name in enumerate(self.names)}

    def of(self, column: Any) -> Ints:
        """The code of each value of a text column; an absent one is ""."""
        coded = pc.fill_null(column.cast(pa.string()), "").dictionary_encode()
        known = [self.code(name) for name in coded.dictionary.to_pylist()]
        found: Ints = np.array(known, np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
        return found

    def code(self, name: str) -> int:
        """The code of a name, a new one where it is new."""
        if name not in self._code:
            self._code[name] = len(self.names)
            self.names.append(name)
        return self._code[name]


def read(
    recording: Recording, table: str, columns: Sequence[str], nodes: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Batches of a table that have rows, as Arrow columns by name."""
    for batch in batches(recording, table, columns=columns, nodes=nodes):
        if batch.num_rows:
            yield {name: batch.column(name) for name in columns}


def ints(column: Any) -> Ints:
    """A column without nulls."""
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def floats(column: Any) -> Floats:
    """A column of numbers; null is nan."""
    found: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


def rows(
    recording: Recording, table: str, columns: Sequence[str], nodes: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Row by row, for tables that are small."""
    for batch in batches(recording, table, columns=columns, nodes=nodes):
        yield from batch.to_pylist()
