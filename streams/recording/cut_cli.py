"""`slackwater record cut`: an incident out of a recording, as one file that travels."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import typer

from schemas.names import check_node_name
from streams.moments import moment, shown
from streams.recording.asking import finish_now
from streams.recording.cut import Wanted, choose, write
from streams.recording.manifest import BadRecording, Manifest
from streams.recording.pseudonyms import pseudonymised, read_key
from streams.recording.recording import open_recording
from streams.recording.target import check_target

SUFFIX = ".slack"
MIB = 1 << 20


def cut_command(
    recording: Path = typer.Argument(help="A recording (folder) or a bundle (file)."),
    output: Path = typer.Option(..., "-o", "--output", help="The bundle to write, NAME.slack."),
    begin: str = typer.Option(
        ..., "--from", help="UTC, as 2026-01-31T12:00:00, or ms, or -15m before its end."
    ),
    end: str = typer.Option("now", "--to", help="The same; now is the end of the recording."),
    node: list[str] = typer.Option([], help="Of these nodes; their whole partitions come along."),
    workload: list[str] = typer.Option([], help="Of the nodes that ran these workloads."),
    pseudonymise: bool = typer.Option(
        False, "--pseudonymise", help="Give every name another; replay holds all the same."
    ),
    key: Path | None = typer.Option(
        None, "--pseudonym-key", help="A file with a secret: names are recognised across bundles."
    ),
    force: bool = typer.Option(False, "--force", help="Replace a file that is there."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Cut an incident out of a recording: one file that replays, explains and opens in SQL.

    It begins at the newest image of the workers' state before --from, so it is read from there
    and not from the beginning of time.
    """
    _check_target(output, recording, force=force)
    if key is not None and not pseudonymise:
        raise BadRecording("--pseudonym-key is for --pseudonymise: give both")
    secret = b"" if key is None else read_key(key)
    for name in node:
        try:
            check_node_name(name)
        except ValueError as error:
            raise BadRecording(str(error)) from None
    finish_now(recording)  # where a recorder is at work, up to this moment
    with open_recording(recording) as source:
        now_ms = source.end_ms
        wanted = Wanted(
            moment(begin, "--from", now_ms),
            moment(end, "--to", now_ms),
            tuple(node),
            tuple(workload),
        )
        chosen = choose(source, wanted)
        if pseudonymise:
            chosen = pseudonymised(source, chosen, secret)
        try:
            manifest = write(chosen, output)
        except OSError as error:
            raise BadRecording(_unwritten(output, error)) from None
        notes = chosen.notes + [f"{each.name}: {each.why}; left out" for each in source.problems]
    _tell(output, manifest, notes, as_json=as_json)


def _check_target(output: Path, recording: Path, *, force: bool) -> None:
    if output.suffix != SUFFIX:
        raise BadRecording(f"-o {output}: the name of a bundle ends in {SUFFIX}")
    check_target(output, recording, force=force)


def _unwritten(output: Path, error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return (
            f"{output}.partial is there: another cut is at work, or one was killed; "
            "wait for it, or remove that file"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no room for {output}: {os.strerror(error.errno)}; nothing was written"
    return f"{output} cannot be written: {error.strerror or error}"


def _tell(output: Path, manifest: Manifest, notes: list[str], *, as_json: bool) -> None:
    size = output.stat().st_size
    places = sorted({segment.topic for segment in manifest.segments})
    if as_json:
        document = {
            "bundle": str(output),
            "size_bytes": size,
            "records": sum(segment.records for segment in manifest.segments),
            "cut": manifest.cut,
            "pseudonymised": manifest.pseudonymised,
            "law_versions": manifest.law_versions,
            "policies": manifest.policies,
            "topics": places,
            "notes": notes,
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
        return
    assert manifest.cut is not None, "a cut says what it was cut to"
    samples = [segment for segment in manifest.segments if segment.topic == "samples"]
    typer.echo(
        f"{output}: {size / MIB:.1f} MiB, {shown(manifest.cut.from_ms)} to "
        f"{shown(manifest.cut.to_ms)} (UTC), {sum(s.records for s in samples)} samples and ticks "
        f"of {len({s.partition for s in samples})} partitions, {len(places)} topics"
    )
    for note in notes:
        typer.echo(note)
