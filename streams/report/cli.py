"""`slackwater report`: a recording as one page, as tables in files, as JSON, or asked in SQL.

The entry point `report` of the group `slackwater.commands`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import typer

from schemas.errors import BadPolicy
from streams.printable import of_error, one_line
from streams.recording import BadRecording, Recording, open_recording
from streams.recording.export import export
from streams.recording.sql_cli import ask
from streams.recording.tables import TABLES
from streams.recording.target import BadTarget, check_target, write_whole
from streams.replay.errors import CannotReplay
from streams.report import beside
from streams.report.build import NODES, Wish, build
from streams.report.model import Report
from streams.report.page import MADE_BY, render

app = typer.Typer(add_completion=False)
MOST_NODES = 200


@app.command()
def report(
    path: Path = typer.Argument(
        ..., metavar="BUNDLE|FOLDER", help="A bundle (file) or a recording (folder)."
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The page. Default: the recording's name with .html, here."
    ),
    node: list[str] = typer.Option([], "--node", help="Show this node closely; may be repeated."),
    nodes: int = typer.Option(
        NODES, "--nodes", min=1, max=MOST_NODES,
        help="Nodes to show closely in all, the most concerned first.",
    ),
    policy: str = typer.Option(
        "", "--policy",
        help="Show what another policy would have done: a file, or version:N of the recording.",
    ),
    what_if: Path | None = typer.Option(
        None, "--what-if",
        help="The same, as replay --policy --json wrote it.",
    ),
    csv: Path | None = typer.Option(
        None, "--csv", metavar="DIR", help="Every table as DIR/NAME.csv, instead of a page."
    ),
    json_lines: Path | None = typer.Option(
        None, "--json-lines", metavar="DIR",
        help="Every table as DIR/NAME.json, one object a line, instead of a page.",
    ),
    sql: str | None = typer.Option(
        None, "--sql", help='Answer this query in SQL instead (docs/tables.md); "": a prompt.'
    ),
    as_json: bool = typer.Option(
        False, "--json", help="What the page shows, or the query's answer, as JSON."
    ),
    force: bool = typer.Option(
        False, "--force", help="Replace files that are there, not only an earlier page."
    ),
) -> None:  # fmt: skip
    """Say what happened in a recording: what stands out, timelines, decisions and their reasons.

    The page is one file that loads nothing from a network. Exit code 2: it cannot be made.
    """
    page = out or Path(f"{path.stem}.html")
    try:
        _check_targets(path, page, csv, json_lines, force=force)
        with open_recording(path) as recording:
            if sql is not None:
                ask(recording, sql, "json" if as_json else "table")
            elif csv is not None or json_lines is not None:
                _tables(recording, csv, json_lines)
            else:
                wish = Wish(path.name, tuple(node), nodes)
                made = build(recording, wish, _beside(path, policy, what_if), _progress)
                _progress("")
                _write(made, page, as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (BadRecording, BadTarget, CannotReplay, BadPolicy, OSError) as error:
        typer.echo(f"slackwater: {of_error(error)}", err=True)
        raise typer.Exit(2) from None


def _check_targets(
    path: Path, page: Path, csv: Path | None, json_lines: Path | None, *, force: bool
) -> None:
    """Raise BadTarget where something that is no earlier page would be written over."""
    check_target(page, path, force=force, ours=lambda head: MADE_BY.encode() in head)
    for folder, form in ((csv, "csv"), (json_lines, "json")):
        if folder is not None and folder.is_dir():
            for name in TABLES:
                check_target(folder / f"{name}.{form}", path, force=force)


def _beside(path: Path, policy: str, answer: Path | None) -> beside.Told | None:
    """What another policy would have done, where it is named."""
    if answer is not None:
        return beside.told(beside.read(answer))
    if not policy:
        return None
    _progress("what the other policy would have done")
    return beside.told(beside.run(path, policy))


def _progress(doing: str) -> None:
    """What is being read, on a terminal; "": nothing any more."""
    if sys.stderr.isatty():
        typer.echo("\r\033[K" + (f"reading: {doing}" if doing else ""), err=True, nl=False)


def _tables(recording: Recording, csv: Path | None, json_lines: Path | None) -> None:
    for folder, form in ((csv, "csv"), (json_lines, "json")):
        if folder is not None:
            written = export(recording, folder, form)  # type: ignore[arg-type]
            rows = sum(written.values())
            typer.echo(f"{folder}: {len(written)} tables, {rows} rows")


def _write(made: Report, out: Path, *, as_json: bool) -> None:
    """The page beside its findings in words; or all of it as JSON, and no page."""
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(made) + b"\n")
        return
    write_whole(out, render(made).encode())
    for finding in made.findings:
        typer.echo(f"- {one_line(finding.text)}")
    size = out.stat().st_size / 1e6
    close = len(made.details)
    typer.echo(f"{out}: {size:.1f} MB, {made.about.nodes} nodes, {close} of them closely")
