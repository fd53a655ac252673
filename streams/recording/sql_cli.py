"""Asking a recording in SQL from the command line: one query, or a prompt for several.

`slackwater report BUNDLE --sql` calls `ask`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TextIO

import orjson
import pyarrow as pa
import typer

from streams.recording.manifest import BadRecording
from streams.recording.sql import Database

if TYPE_CHECKING:
    from streams.recording.recording import Recording

Form = Literal["table", "json", "csv"]
WIDEST = 60
"""Characters of one cell of a table; `json` and `csv` show all."""
SAMPLE = 200  # rows that say how wide the columns are
PROMPT, MORE = "slackwater> ", "        ...> "
HELLO = "One query, ended by ;  `show tables;` lists what there is, `describe NAME;` its columns."


def ask(recording: Recording, query: str, form: Form = "table") -> None:
    """Print the answer to ``query``; "": to each query that is read from standard input.

    Raises BadQuery for a query that cannot run; at a prompt it is said, and the next one asked.
    """
    with Database(recording) as database:
        if query:
            _answer(database, query, form, sys.stdout)
            return
        talking = sys.stdin.isatty()
        if talking:
            typer.echo(HELLO, err=True)
        for one in _queries(talking):
            try:
                _answer(database, one, form, sys.stdout)
            except BadRecording as error:
                if not talking:
                    raise
                typer.echo(f"{error}", err=True)


def _queries(talking: bool) -> Iterator[str]:
    """What is typed, up to each semicolon at the end of a line; the last may lack it."""
    if talking:
        import readline  # noqa: F401, PLC0415  (lines can be edited once it is there)
    lines: list[str] = []
    while True:
        try:
            line = input(MORE if lines else PROMPT) if talking else input()
        except EOFError:
            break
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
    if "".join(lines).strip():
        yield "\n".join(lines)


def _answer(database: Database, query: str, form: Form, out: TextIO) -> None:
    reader = database.rows(query)
    if form == "json":
        out.writelines(orjson.dumps(row, default=str).decode() + "\n" for row in _rows(reader))
    elif form == "csv":
        writer = csv.writer(out)
        writer.writerow(reader.schema.names)
        writer.writerows([_text(value, "") for value in row.values()] for row in _rows(reader))
    else:
        _table(reader, out)
    for name, found in database.found.items():
        if found.undecodable:
            typer.echo(
                f"slackwater: {found.undecodable} records of {name} cannot be read and are not in "
                f"it ({found.examples[0]})", err=True,
            )  # fmt: skip


def _table(reader: pa.RecordBatchReader, out: TextIO) -> None:
    """Columns side by side, as wide as the first rows need."""
    names = reader.schema.names
    right = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in reader.schema]
    rows = ([_text(value, "-") for value in row.values()] for row in _rows(reader))
    first = [row for row, _ in zip(rows, range(SAMPLE), strict=False)]
    widths = [
        min(max(map(len, (name, *(row[i] for row in first)))), WIDEST)
        for i, name in enumerate(names)
    ]
    count = 0
    for row in (names, *first):
        _line(row, widths, right, out)
        count += 1
    for row in rows:
        _line(row, widths, right, out)
        count += 1
    out.write(f"({count - 1} rows)\n")


def _line(row: list[str], widths: list[int], right: list[bool], out: TextIO) -> None:
    cells = []
    for text, width, number in zip(row, widths, right, strict=True):
        short = text if len(text) <= width else text[: width - 1] + "…"
        cells.append(short.rjust(width) if number else short.ljust(width))
    out.write("  ".join(cells).rstrip() + "\n")


def _rows(reader: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Each row by column name; figures by name as a dict. Two columns of one name keep both."""
    maps = [pa.types.is_map(field.type) for field in reader.schema]
    names = _distinct(reader.schema.names)
    for batch in reader:
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield {
                name: dict(value) if is_map and value is not None else value
                for name, value, is_map in zip(names, row, maps, strict=True)
            }


def _distinct(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _text(value: Any, nothing: str) -> str:
    """A cell; control characters are shown, so that no name can write on the terminal."""
    if value is None:
        return nothing
    if isinstance(value, dict | list):
        return orjson.dumps(value, default=str).decode()
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()
