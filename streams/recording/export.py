"""The decoded tables as files that any tool opens: CSV, or JSON with one object a line.

`slackwater report BUNDLE --csv DIR` and `--json-lines DIR` call `export`. A list, or figures by
name, are JSON within their CSV field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import duckdb
import pyarrow as pa

from streams.recording.tables import TABLES, Column, Found, batches, wanted_of

if TYPE_CHECKING:
    from streams.recording.recording import Recording

Form = Literal["csv", "json"]
_HOW: dict[Form, str] = {"csv": "format csv, header", "json": "format json"}


def export(
    recording: Recording,
    folder: Path,
    form: Form,
    names: Collection[str] = (),
    *,
    told: Callable[[str, int, Found], None] = lambda name, rows, found: None,  # noqa: ARG005
) -> dict[str, int]:
    """Write ``FOLDER/NAME.csv`` (or .json) for each table; rows by table.

    What is there is replaced. ``names``: only these tables. ``told`` hears of each file that is
    done. Raises OSError, and BadRecording for a name that is no table.
    """
    for name in names:
        wanted_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    with duckdb.connect() as connection:
        for name in names or TABLES:
            table, found = TABLES[name], Found()
            reader = pa.RecordBatchReader.from_batches(
                table.schema, batches(recording, name, found=found)
            )
            connection.register("decoded", reader)
            columns = ", ".join(_column(column, form) for column in table.columns)
            partial = folder / f"{name}.{form}.partial"
            target = str(partial).replace("'", "''")
            try:
                done = connection.execute(
                    f"copy (select {columns} from decoded) to '{target}' ({_HOW[form]})"  # noqa: S608
                ).fetchone()
            except duckdb.IOException as error:
                raise OSError(f"{partial} cannot be written: {error}") from None
            finally:
                connection.unregister("decoded")
            partial.replace(folder / f"{name}.{form}")
            written[name] = done[0] if done else 0
            told(name, written[name], found)
    return written


def _column(column: Column, form: Form) -> str:
    nested = pa.types.is_list(column.type) or pa.types.is_map(column.type)
    if nested and form == "csv":
        return f'to_json("{column.name}")::varchar as "{column.name}"'
    return f'"{column.name}"'
