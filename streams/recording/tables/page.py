"""docs/tables.md, made from the tables and views: ``python -m streams.recording.tables.page``.

A test proves that the file is fresh.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pyarrow as pa

from schemas.topics import BY_NAME
from streams.recording.tables import TABLES, Column, Table
from streams.recording.tables.column import CAUSE, SIGNER, WHERE
from streams.recording.views import VIEWS

HEAD = """\
# Tables of a recording

Made from `streams/recording/tables/` by `python -m streams.recording.tables.page`; do not edit.

Each table is decoded from one topic by the version that reads it, one row a record or a part of
one. Units are the ends of names: `_milli` thousandths of a CPU, `_bytes`, `_us`, `_ms`,
`_permille`. Counters only grow, within one start of the agent (`boot`); the views `pod_use` and
`node_use` make rates of them. Records that cannot be read are left out and counted, and so is what
was said again byte for byte after a crash. Integers that may be absent become floats in pandas:
`to_pandas(integer_object_nulls=True)` keeps them whole, as polars does.

    from streams.recording import open_recording
    bundle = open_recording("incident.slack")
    capacity = bundle.table("capacity").to_pandas()

`bundle.table(...)` itself is an Arrow table; `polars.from_arrow` takes it too.

`bundle.table(name, columns=[...], from_ms=..., to_ms=..., nodes=[...])` reads less;
`streams.recording.tables.batches` takes the same and reads in pieces. SQL: `slackwater report
BUNDLE --sql "select ..."`, or `streams.recording.sql.Database(bundle).table("select ...")`; there
`describe TABLE` shows the columns, and figures by name are read as `terms['target']`.
"""


def page() -> str:
    """The whole document."""
    said = [HEAD, "## In every table\n", _columns(WHERE)]
    said += ["In tables of what was decided also, at the end:\n", _columns((SIGNER, *CAUSE))]
    said.append("`signer` is there where topics are signed: samples, acks, inventory, commands and")
    said.append("the audit log.\n")
    for table in TABLES.values():
        said.append(f"## {table.name}\n")
        said.append(f"From topic `{table.topic}`; one row {table.row}.\n")
        said.append(_columns(_own(table)))
    said.append("## Views\n")
    for view in VIEWS:
        said.append(f"### {view.name}\n")
        said.append(f"One row {view.row}: {view.meaning}.\n")
        said.append(f"```sql{dedent(view.sql).rstrip()}\n```\n")
    return "\n".join(said)


def _own(table: Table) -> list[Column]:
    shared = {column.name for column in (*WHERE, SIGNER, *(CAUSE if table.caused else ()))}
    assert table.topic in BY_NAME
    return [column for column in table.columns if column.name not in shared]


def _columns(columns: tuple[Column, ...] | list[Column]) -> str:
    rows = ["| column | type | meaning |", "|---|---|---|"]
    rows += [f"| `{each.name}` | {_type(each.type)} | {each.meaning} |" for each in columns]
    return "\n".join(rows) + "\n"


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    if pa.types.is_map(kind):
        return "numbers by name"
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return "text"
    return {"int64": "integer", "bool": "yes or no"}.get(str(kind), "time, UTC")


if __name__ == "__main__":
    Path("docs/tables.md").write_text(page())
