"""A recording as tables: Arrow, decoded by this version, with units in the columns' names.

    open_recording("incident.slack").table("capacity").to_pandas()

`TABLES` is the only list: docs/tables.md is made from it, and SQL, CSV, report and accounts read
through `table` and `batches`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from streams.recording.manifest import BadRecording
from streams.recording.tables import decided, sampled, told
from streams.recording.tables.column import Column, Table
from streams.recording.tables.read import Found, Span, rows_of

if TYPE_CHECKING:
    from streams.recording.recording import Recording

__all__ = ["TABLES", "Column", "Found", "Table", "batches", "table"]

TABLES: dict[str, Table] = {
    each.name: each for each in (*sampled.TABLES, *decided.TABLES, *told.TABLES)
}
METADATA = b"slackwater"


def batches(
    recording: Recording,
    name: str,
    *,
    columns: Sequence[str] = (),
    from_ms: int | None = None,
    to_ms: int | None = None,
    nodes: Collection[str] = (),
    found: Found | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of a table in batches, partition by partition in offset order; for what is large.

    ``columns``: only these, in this order. ``from_ms``, ``to_ms``: append times in [from, to).
    ``nodes``: only theirs. ``found``: counts what was left out. Raises BadRecording for a name
    that is no table or column.
    """
    wanted = wanted_of(name, columns)
    span = Span(from_ms, to_ms, nodes)
    return rows_of(recording, TABLES[name], wanted, span, Found() if found is None else found)


def table(
    recording: Recording,
    name: str,
    *,
    columns: Sequence[str] = (),
    from_ms: int | None = None,
    to_ms: int | None = None,
    nodes: Collection[str] = (),
) -> pa.Table:
    """All rows of a table; see `batches`. Empty where the recording has none.

    The schema's metadata ``slackwater`` says as JSON what was left out: ``undecodable`` records,
    and those ``repeated`` byte for byte.
    """
    found = Found()
    rows = batches(
        recording, name, columns=columns, from_ms=from_ms, to_ms=to_ms, nodes=nodes, found=found
    )
    schema = pa.schema([(c.name, c.type) for c in wanted_of(name, columns)])
    whole = pa.Table.from_batches(list(rows), schema=schema)
    return whole.replace_schema_metadata({METADATA: orjson.dumps(found)})


def wanted_of(name: str, columns: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns of a table, or those that are named. Raises BadRecording."""
    found = TABLES.get(name)
    if found is None:
        raise BadRecording(f"there is no table {name!r:.80}: want one of {', '.join(TABLES)}")
    if not columns:
        return found.columns
    by_name = {column.name: column for column in found.columns}
    for each in columns:
        if each not in by_name:
            raise BadRecording(
                f"table {name} has no column {each!r:.80}: it has {', '.join(by_name)}"
            )
    return tuple(by_name[each] for each in columns)
