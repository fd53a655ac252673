"""`slackwater record`: keep what is on the topics as files; say what a recording holds.

The entry point `record` of the group `slackwater.commands`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson
import typer

from streams.recording import open_recording
from streams.recording.cut_cli import cut_command
from streams.recording.manifest import Gap, Manifest
from streams.recording.overview import Held, held

app = typer.Typer(
    help="Keep what is on the topics as files; cut incidents out of them.",
    add_completion=False,
    no_args_is_help=True,
)
FOLDER = typer.Argument(help="A recording: the folder that `slackwater record` fills.")
EITHER = typer.Argument(help="A recording (folder) or a bundle (file).")


app.command("cut")(cut_command)


@app.callback()
def _record() -> None:
    """Keep what is on the topics as files; cut incidents out of them."""


@app.command()
def status(
    folder: Path = FOLDER,
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Show what a recording holds: topics, times, bytes, gaps."""
    with open_recording(folder) as recording:
        manifest, problems = recording.manifest, recording.problems
    lines = held(manifest)
    if as_json:
        document = {
            "prefix": manifest.prefix,
            "incarnation": manifest.incarnation,
            "software": manifest.software,
            "law_versions": manifest.law_versions,
            "policies": manifest.policies,
            "topics": lines,
            "gaps": [_gap(each) for each in manifest.gaps],
            "problems": [{"name": each.name, "why": each.why} for each in problems],
        }
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo("\n".join(_told(manifest, lines)))
    for problem in problems:
        typer.echo(f"PROBLEM  {problem.name}: {problem.why}")


@app.command()
def verify(
    path: Path = EITHER,
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Check every segment against its checksum; exit 1 when one is damaged or missing."""
    with open_recording(path) as recording:
        sound = recording.verify()
        problems, segments = recording.problems, len(recording.manifest.segments)
    if as_json:
        document = {
            "sound": sound,
            "segments": segments,
            "problems": [{"name": each.name, "why": each.why} for each in problems],
        }
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        for problem in problems:
            typer.echo(f"{problem.name}: {problem.why}")
        typer.echo(f"{segments} segments, {len(problems)} problems")
    if not sound:
        raise typer.Exit(1)


def _told(manifest: Manifest, lines: list[Held]) -> list[str]:
    total = sum(line.size_bytes for line in lines)
    origin = f"{manifest.prefix} (incarnation {manifest.incarnation})"
    said = [f"{manifest.kind} of {origin}, {total / 1e6:,.1f} MB, slackwater {manifest.software}"]
    for line in lines:
        more = "" if line.lag is None else f", {line.lag:,} behind"
        gaps = f", {line.gaps} GAPS" if line.gaps else ""
        said.append(
            f"{line.topic:24} {line.records:>12,} records {line.size_bytes / 1e6:>10,.1f} MB "
            f"{line.segments:>6} segments  {_when(line.first_ms)} to {_when(line.last_ms)}"
            f"{more}{gaps}"
        )
    said += [
        f"gap      {gap.topic}/{gap.partition} {gap.first} to {gap.last}: {gap.why}"
        for gap in manifest.gaps
    ]
    return said


def _gap(gap: Gap) -> dict[str, object]:
    return {"topic": gap.topic, "partition": gap.partition, "first": gap.first, "last": gap.last,
            "why": gap.why}  # fmt: skip


def _when(log_ms: int) -> str:
    return datetime.fromtimestamp(log_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


if __name__ == "__main__":
    app()
