"""SQL over a recording: the views answer, and a query touches nothing but the recording."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from schemas import codec
from schemas.records import Ack, Cause, Command, Outcome
from streams.recording import open_recording, sql_cli
from streams.recording.export import export
from streams.recording.recording import Recording
from streams.recording.sql import BadQuery, Database
from streams.recording.tables import TABLES, page
from streams.recording.views import VIEWS
from tests.streams.recording import made

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "incident.slack"
    broker, partitions = made.log_of(seconds=30)
    gone = Command("e1", "n0", "evict_memory", Cause(7, 0, 3, 0, "", 6), 0, "memory_full",
                   pods=("n0-best_effort-4",))  # fmt: skip
    broker.append("commands", 0, b"n0", codec.encode(gone))
    said: tuple[tuple[Outcome, str], ...] = (("refused", "cool_down"), ("duplicate", ""))
    for seq, (outcome, reason) in enumerate(said):
        ack = Ack("n0", "ab" * 16, 900 + seq, 0, "evict_memory", outcome, "e1", reason=reason)
        broker.append("acks", 0, b"n0", codec.encode(ack))
    broker.append("capacity", 0, b"n0", b"{")
    made.bundle_of(broker, partitions, path)
    return path


@pytest.fixture(scope="module")
def recording(path: Path) -> Iterator[Recording]:
    with open_recording(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def database(recording: Recording) -> Iterator[Database]:
    with Database(recording) as opened:
        yield opened


def test_tables_are_decoded_when_they_are_named_and_not_before(recording: Recording) -> None:
    with Database(recording) as fresh:
        assert fresh.table("show tables").num_rows == len(TABLES) + len(VIEWS)
        assert not fresh.found
        (row,) = fresh.table("select count(*) as n from Capacity").to_pylist()
        assert row["n"] == recording.table("capacity").num_rows
        assert list(fresh.found) == ["capacity"]
        assert fresh.found["capacity"].undecodable == 1
        pivoted = fresh.table("pivot decisions on decider using count(*) group by node")
        assert {"node", "suppress"} <= set(pivoted.column_names)


def test_every_table_and_view_is_told_in_the_database(database: Database) -> None:
    tables = database.table("select table_name, comment from duckdb_tables()").to_pylist()
    assert {t["table_name"] for t in tables} == set(TABLES)
    columns = database.table("select comment from duckdb_columns() where not internal").to_pylist()
    assert columns
    assert all(table["comment"] for table in tables)
    views = database.table("select view_name, comment from duckdb_views() where not internal")
    assert {v["view_name"]: v["comment"] for v in views.to_pylist()} == {
        view.name: view.meaning for view in VIEWS
    }


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_each_view_has_rows(database: Database, view: object) -> None:
    name = getattr(view, "name", "")
    (row,) = database.table(f"select count(*) as n from {name}").to_pylist()
    assert row["n"], name


def test_use_is_the_rate_between_two_samples(database: Database, recording: Recording) -> None:
    rows = recording.table("pods", nodes=["n1"]).to_pylist()
    last: dict[str, dict[str, int]] = {}
    by_hand = []
    for row in rows:
        before = last.get(row["uid"])
        if before is not None and before["boot"] == row["boot"]:
            used = row["cpu_usage_us"] - before["cpu_usage_us"]
            by_hand.append(used * 1_000 // (row["mono_us"] - before["mono_us"]))
        last[row["uid"]] = row
    said = database.table(
        "select cpu_milli from pod_use where node = 'n1' order by log_offset, uid"
    ).column(0).to_pylist()  # fmt: skip
    assert said == by_hand
    assert any(said)


def test_evicted_pods_have_their_names(database: Database) -> None:
    rows = database.table("select * from evicted_pods where command_id = 'e1'").to_pylist()
    (row,) = rows
    assert (row["uid"], row["name"]) == ("n0-best_effort-4", "n0-best_effort-4")
    assert (row["reason"], row["node_said"], row["node_reason"], row["api_said"]) == (
        "memory_full", "refused", "cool_down", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("drop table pods", "DROP: a recording can only be asked"),
        ("insert into pods select * from pods", "INSERT"),
        ("select 1; select 2", "want one statement"),
        ("set enable_external_access = true", "SET"),
        ("selec 1", "syntax error"),
        ("select * from nobody", "does not exist"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from read_blob('/etc/passwd')", "disabled by configuration"),
        ("select * from glob('/etc/*')", "disabled by configuration"),
        ("select * from read_parquet('https://example.org/a.parquet')", "disabled|extension"),
        ("copy pods to '/tmp/pods.csv'", "COPY"),
        ("attach '/tmp/other.db' as other", "ATTACH"),
        ("install httpfs", "LOAD"),
    ],
)
def test_what_is_no_question_is_refused(database: Database, query: str, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        database.table(query)
    assert database.table("select 1 as one").to_pylist() == [{"one": 1}]


def test_nothing_is_left_behind(recording: Recording, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Database(recording) as fresh:
        fresh.table("select * from acks")
        assert any(tmp_path.iterdir())
    assert not any(tmp_path.iterdir())


QUERY = "select node, terms, null as nothing from decisions where decider = 'suppress' limit 3"


def test_the_answer_in_three_forms(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    sql_cli.ask(recording, QUERY, "json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [set(row) for row in rows] == [{"node", "terms", "nothing"}] * 3
    assert "target" in rows[0]["terms"]
    sql_cli.ask(recording, QUERY, "csv")
    table = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert table[0] == ["node", "terms", "nothing"]
    assert [json.loads(row[1]) for row in table[1:]] == [row["terms"] for row in rows]
    sql_cli.ask(recording, QUERY)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["node", "terms", "nothing"]
    assert lines[-1] == "(3 rows)"
    assert all("…" in line and line.endswith("-") for line in lines[1:-1])


def test_queries_of_standard_input(
    recording: Recording, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "select 1 as one\n;\nselect '\x1b[31m' as red, 2 as red from capacity limit 1"
    monkeypatch.setattr("sys.stdin", io.StringIO(asked))
    sql_cli.ask(recording, "")
    said = capsys.readouterr()
    assert said.out.splitlines() == ["one", "  1", "(1 rows)", "red       red", "\\x1b[31m    2",
                                     "(1 rows)"]  # fmt: skip
    assert "1 records of capacity cannot be read" in said.err
    monkeypatch.setattr("sys.stdin", io.StringIO("drop table pods;"))
    with pytest.raises(BadQuery, match="DROP"):
        sql_cli.ask(recording, "")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_every_table_is_exported(recording: Recording, tmp_path: Path, form: str) -> None:
    heard: list[str] = []
    rows = export(recording, tmp_path / "out's", form, told=lambda *what: heard.append(what[0]))  # type: ignore[arg-type]
    assert list(rows) == heard == list(TABLES)
    assert {p.name for p in (tmp_path / "out's").iterdir()} == {f"{n}.{form}" for n in TABLES}
    read = (
        "read_csv(?, header = true)"
        if form == "csv"
        else "read_json(?, format = 'newline_delimited')"
    )
    with duckdb.connect() as connection:
        for name in ("pods", "decisions", "capacity"):
            file = str(tmp_path / "out's" / f"{name}.{form}")
            found = connection.execute(f"select count(*) from {read}", [file]).fetchone()
            assert found == (rows[name],) == (recording.table(name).num_rows,)
    whole = (tmp_path / "out's" / f"decisions.{form}").read_text()
    if form == "csv":
        first = next(csv.DictReader(io.StringIO(whole)))
        assert json.loads(first["terms"])
    else:
        first = json.loads(whole.splitlines()[0])
        assert isinstance(first["terms"], dict)


def test_the_list_of_tables_is_fresh() -> None:
    assert (ROOT / "docs" / "tables.md").read_text() == page.page(), (
        "run python -m streams.recording.tables.page"
    )


@pytest.mark.parametrize("document", ["README.md", "docs/tables.md"])
def test_three_lines_of_a_notebook(
    path: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines that the documents show run as they stand."""
    lines = (ROOT / document).read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if "import open_recording" in line)
    monkeypatch.chdir(path.parent)
    names: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in lines[begin : begin + 3]), names)
    assert len(names["capacity"])
    assert names["capacity"]["batch_cpu_milli"].max() > 0
    names["bundle"].close()


def test_every_table_is_a_frame_of_polars_and_of_pandas(recording: Recording) -> None:
    for name in TABLES:
        table = recording.table(name)
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        assert frame.shape == table.to_pandas().shape == (table.num_rows, table.num_columns)


def test_a_long_query_draws_no_bar_into_a_pipe(database: Database) -> None:
    found = database.table("select current_setting('enable_progress_bar') as bar")
    assert found["bar"].to_pylist() == [False]
