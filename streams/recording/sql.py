"""SQL over a recording: DuckDB in the process, tables decoded when a query first names them.

    with Database(recording) as database:
        database.table("select node, max(batch_cpu_milli) from capacity group by node")

What a query does ends in a temporary file that only this process has: it cannot read another file,
write one, or reach a network, and settings are locked. `slackwater report --sql` asks through
`streams.recording.sql_cli`.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

from streams.recording.manifest import BadRecording
from streams.recording.tables import TABLES, Found, Table, batches
from streams.recording.views import VIEWS

if TYPE_CHECKING:
    from streams.recording.recording import Recording

ROWS = 10_000  # of a batch of the answer
_ANSWERS = {"SELECT", "EXPLAIN", "MULTI"}  # the last is what PIVOT is made of
_WORD = re.compile(r"\w+")
_BEHIND = {view.name: view.reads for view in VIEWS}


class BadQuery(BadRecording):
    """The query cannot run; the message is the database's."""


class Database:
    """All tables and views of a recording; ``found``: what was left out of tables, by name."""

    def __init__(self, recording: Recording) -> None:
        self.found: dict[str, Found] = {}
        self._recording = recording
        self._folder = tempfile.TemporaryDirectory(prefix="slackwater-sql-")
        try:
            file = Path(self._folder.name) / "recording"
            self._connection = duckdb.connect(file, config=_config(self._folder.name))
            made = "\n".join(map(_empty, TABLES.values())) + _views()
            self._connection.execute(f"begin;{made}commit;")
            self._connection.execute("set enable_external_access = false")
            self._connection.execute("set enable_progress_bar = false")  # it writes to stdout
            self._connection.execute("set lock_configuration = true")
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget all that was decoded."""
        self._connection.close()
        self._folder.cleanup()

    def rows(self, query: str) -> pa.RecordBatchReader:
        """The answer in batches, for as long as no other query is asked. Raises BadQuery."""
        try:
            for name in self._named(query):
                self._fill(name)
            return self._connection.sql(query).to_arrow_reader(ROWS)
        except duckdb.Error as error:
            raise BadQuery(str(error)) from None

    def table(self, query: str) -> pa.Table:
        """The whole answer. Raises BadQuery."""
        return self.rows(query).read_all()

    def _named(self, query: str) -> list[str]:
        """The tables that a query reads. Raises BadQuery for what is no question."""
        statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise BadQuery(f"want one statement, these are {len(statements)}")
        kind = statements[0].type.name
        if kind not in _ANSWERS:
            raise BadQuery(f"{kind}: a recording can only be asked, with SELECT; nothing was done")
        try:
            named = set(self._connection.get_table_names(query))
        except duckdb.InvalidInputException:  # a PIVOT is several statements
            named = set(_WORD.findall(query))
        named = {name.lower() for name in named}
        for view in named & _BEHIND.keys():
            named.update(_BEHIND[view])
        return [name for name in TABLES if name in named]

    def _fill(self, name: str) -> None:
        """Decode a table, once."""
        if name in self.found:
            return
        found = Found()
        reader = pa.RecordBatchReader.from_batches(
            TABLES[name].schema, batches(self._recording, name, found=found)
        )
        self._connection.register("decoded", reader)
        try:
            self._connection.execute(f'insert into "{name}" select * from decoded')  # noqa: S608
        finally:
            self._connection.unregister("decoded")
        self.found[name] = found


def _config(folder: str) -> dict[str, Any]:
    return {"temp_directory": folder, "autoinstall_known_extensions": False}


def _empty(table: Table) -> str:
    """The table without rows, and what is said of it."""
    columns = ", ".join(f'"{column.name}" {_type(column.type)}' for column in table.columns)
    said = [f'create table "{table.name}" ({columns});']
    said.append(f"comment on table \"{table.name}\" is 'one row {_quoted(table.row)}';")
    said += [
        f'comment on column "{table.name}"."{column.name}" is \'{_quoted(column.meaning)}\';'
        for column in table.columns
    ]
    return "\n".join(said)


def _views() -> str:
    return "\n".join(
        f'create view "{view.name}" as {view.sql};'
        f"comment on view \"{view.name}\" is '{_quoted(view.meaning)}';"
        for view in VIEWS
    )


def _type(kind: pa.DataType) -> str:
    """Arrow's type as DuckDB's."""
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"map({_type(kind.key_type)}, {_type(kind.item_type)})"
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    return {"int64": "bigint", "bool": "boolean", "string": "varchar"}.get(
        str(kind), "timestamp_ms"
    )


def _quoted(text: str) -> str:
    return text.replace("'", "''")
