"""What a decoded table is made of: columns with type and meaning, and how a row comes about.

`streams.recording.tables` holds the tables themselves, one family a file. A unit is the end of a
column's name (`_milli`, `_bytes`, `_us`, `_ms`, `_permille`), as in the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa

from schemas.signing import key_id
from streams.recording.segment import Record

INT, FLAG, TEXT = pa.int64(), pa.bool_(), pa.string()
TIME = pa.timestamp("ms")  # UTC, without a zone: so no reader needs a table of zones
CODE = pa.dictionary(pa.int32(), pa.string())  # a text that comes again and again
INTS, TEXTS = pa.list_(INT), pa.list_(TEXT)
FIGURES = pa.map_(TEXT, INT)
UNITS = {
    "_milli": "thousandths of a CPU",
    "_bytes": "bytes",
    "_us": "microseconds",
    "_us_per_s": "microseconds a second",
    "_ms": "milliseconds",
    "_permille": "thousandths",
    "_pages": "pages",
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one row is made from: the record on the topic, what it says, and one part of that."""

    record: Record
    said: Any
    part: Any = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``take`` gives its value for a row, None where there is none."""

    name: str
    type: pa.DataType
    meaning: str
    take: Callable[[Row], Any]

    @property
    def unit(self) -> str:
        """By the end of its name; "" for a bare number, a name, a digest."""
        ends = [end for end in UNITS if self.name.endswith(end)]
        return UNITS[max(ends, key=len)] if ends else ""


@dataclass(frozen=True, slots=True)
class Table:
    """One decoded table, made from the records of one topic that are of ``kind``.

    ``parts``: what of a record has a row of its own; None: the record has one. ``keyed``: the
    record's key is the node, so that others can be passed over unread. ``erased``: what a
    tombstone says here, from its record; None: nothing.
    """

    name: str
    topic: str
    kind: type[Any]
    row: str
    columns: tuple[Column, ...]
    parts: Callable[[Any], Iterable[Any]] | None = None
    keyed: bool = False
    erased: Callable[[Record], Any] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Every column may be null."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def caused(self) -> bool:
        """Whether its records name the record of `samples` that they follow from."""
        return any(column.name == "cause_offset" for column in self.columns)


def said(
    name: str,
    kind: pa.DataType,
    meaning: str,
    path: str = "",
    take: Callable[[Any], Any] | None = None,
) -> Column:
    """A column of what the record says: the field of that name, of ``path``, or ``take`` of it."""
    get = take or attrgetter(path or name)
    return Column(name, kind, meaning, lambda row: get(row.said))


def part(
    name: str, kind: pa.DataType, meaning: str, take: Callable[[Any], Any] | None = None
) -> Column:
    """A column of the part that has the row."""
    get = take or attrgetter(name)
    return Column(name, kind, meaning, lambda row: get(row.part))


def figure(name: str, meaning: str, field: str, key: str) -> Column:
    """A number of a dict that the record carries; null where it is not in it."""

    def take(row: Row) -> Any:
        figures: Mapping[str, int] = getattr(row.said, field)
        return figures.get(key)

    return Column(name, INT, meaning, take)


WHERE = (
    Column("partition", INT, "partition of the topic", lambda row: row.record.partition),
    Column("log_offset", INT, "offset in it", lambda row: row.record.offset),
    Column("log_ms", INT, "append time, since 1970", lambda row: row.record.timestamp),
    Column("time", TIME, "the same as a time, UTC", lambda row: row.record.timestamp),
)
"""Where a row comes from; the first columns of every table."""

CAUSE = (
    said("incarnation", INT, "of the installation; a higher one is newer", "cause.incarnation"),
    said("cause_partition", INT, "partition of `samples` that was folded", "cause.partition"),
    said("cause_offset", INT, "offset of the record that it follows from", "cause.offset"),
    said("cause_log_ms", INT, "that record's log time; never falls", "cause.log_ms"),
    said("policy", TEXT, "digest of the policy it was decided under", "cause.policy"),
    said("law_version", INT, "version of the law", "cause.law_version"),
)
"""Why a row exists, in every table of what was decided."""


SIGNER = Column(
    "signer", TEXT, "id of the key it is signed with (`slackwater keys show`); null: unsigned",
    lambda row: key_id(row.record.headers),
)  # fmt: skip
