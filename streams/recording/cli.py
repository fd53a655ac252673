"""`slackwater record`: keep what is on the topics as files; say what a recording holds.

The entry point `record` of the group `slackwater.commands`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import signal
import sys
import time
from pathlib import Path

import msgspec
import orjson
import typer
import uvloop

from schemas.names import check_brokers
from schemas.topics import BY_NAME, full_name
from streams import logs
from streams.health import HealthServer
from streams.leave import leave
from streams.metrics import RECORD_METRICS, Metrics
from streams.moments import moment, shown
from streams.recording import open_recording
from streams.recording.cut_cli import cut_command
from streams.recording.disk import Sizes
from streams.recording.manifest import Gap, Manifest
from streams.recording.overview import Held, held, next_offsets
from streams.recording.progress import Progress, read
from streams.recording.recorder import Begin, Recorder, Settings
from streams.topic_reader import CannotRun, consumer, partitions_of, started
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(
    help="Keep what is on the topics as files; cut incidents out of them.", add_completion=False
)
FOLDER = typer.Argument(help="A recording: the folder that `slackwater record` fills.")
EITHER = typer.Argument(help="A recording (folder) or a bundle (file).")
UNITS = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000}
LEAST_BYTES = 10_000_000
TELL_JSON_MS = 10_000


app.command("cut")(cut_command)


@app.callback(invoke_without_command=True)
def record(
    context: typer.Context,
    folder: Path | None = typer.Option(
        None, "--folder", envvar="SLACKWATER_RECORDING", help="Where to; made if it is not there."
    ),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    topics: str = typer.Option("", help="Names in the table, with commas; default: all."),
    begin: str = typer.Option(
        "beginning", "--from", help="A new folder begins at: beginning, now, a time (UTC), -15m."
    ),
    max_bytes: str = typer.Option("50GB", help="How large the folder may grow."),
    segment_age: float = typer.Option(60.0, min=1, max=3600, help="Seconds; if it is not small."),
    segment_bytes: str = typer.Option("64MB", help="Of records as they are on the topic."),
    as_json: bool = typer.Option(
        False, "--json", help="A line of JSON every 10 s, and at the end."
    ),
    metrics_host: str = typer.Option("127.0.0.1", help="Where to serve health and metrics."),
    metrics_port: int = typer.Option(0, min=0, max=65535, help="0: a free port, see the log."),
    level: str = typer.Option("info", help="debug, info, warning or error."),
) -> None:
    """Follow the topics into a folder, until Ctrl-C or SIGTERM; goes on where the folder ends."""
    if context.invoked_subcommand is not None:
        return
    if folder is None:
        raise typer.BadParameter("say where to record: --folder, or SLACKWATER_RECORDING")
    settings = Settings(
        folder=folder,
        brokers=check_brokers(brokers),
        prefix=prefix,
        topics=_chosen(topics),
        begin=_begin(begin),
        sizes=Sizes(
            max_bytes=_size("--max-bytes", max_bytes, LEAST_BYTES),
            segment_bytes=_size("--segment-bytes", segment_bytes, 1_000),
            age_s=segment_age,
        ),
    )
    logs.set_up(level)
    _open_many_files()
    uvloop.run(_run(settings, _Teller(as_json=as_json), metrics_host, metrics_port))
    leave(0)


@app.command()
def status(
    folder: Path = FOLDER,
    brokers: str = typer.Option(
        "", envvar="SLACKWATER_BROKERS", help="Ask these how far behind it is."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Show what a recording holds: topics, times, bytes, gaps; and whether it is being written."""
    hush()
    with open_recording(folder) as recording:
        manifest, problems = recording.manifest, recording.problems
    progress = read(folder)
    lags = progress.lag if progress else None
    if brokers:
        lags = asyncio.run(_lags(check_brokers(brokers), manifest, progress))
    lines = held(manifest, lags)
    if as_json:
        document = {
            "prefix": manifest.prefix,
            "incarnation": manifest.incarnation,
            "software": manifest.software,
            "law_versions": manifest.law_versions,
            "policies": manifest.policies,
            "recorder": None if progress is None else msgspec.to_builtins(progress),
            "topics": lines,
            "gaps": [_gap(each) for each in manifest.gaps],
            "problems": [{"name": each.name, "why": each.why} for each in problems],
        }
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo("\n".join(_told(manifest, lines)))
    if progress is not None:
        typer.echo(f"process {progress.pid} is recording into it")
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


class _Teller:
    """Says how it goes: a line that is written over on a terminal, or lines of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._before: Progress | None = None
        self._told_ms = 0

    def __call__(self, now: Progress) -> None:
        if self._json:
            if now.ended or now.at_ms - self._told_ms >= TELL_JSON_MS:
                self._told_ms = now.at_ms
                typer.echo(msgspec.json.encode(now).decode())
        elif sys.stderr.isatty():
            typer.echo(f"\r{self._line(now)}\x1b[K", err=True, nl=now.ended)
        self._before = now

    def _line(self, now: Progress) -> str:
        before = self._before or now
        seconds = max(now.at_ms - before.at_ms, 1) / 1000
        rate = (sum(now.records.values()) - sum(before.records.values())) / seconds
        return (
            f"{rate:,.0f} records/s, {sum(now.lag.values()):,} behind, {now.segments} segments, "
            f"{now.size_bytes / 1e9:.2f} of {now.max_bytes / 1e9:.2f} GB, {now.gaps} gaps"
        )


async def _run(settings: Settings, tell: _Teller, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics(RECORD_METRICS)
    recorder = Recorder(settings, metrics, tell)
    server = HealthServer(host, port, metrics, recorder.live, recorder.ready)
    await server.start()
    try:
        await recorder.run(stop)
    finally:
        await server.stop()


async def _lags(
    brokers: str, manifest: Manifest, progress: Progress | None
) -> dict[str, int] | None:
    """Records by topic that brokers have beyond the recording; None when none answers."""
    at = {f"{topic}/{number}": next_ for (topic, number), next_ in next_offsets(manifest).items()}
    at |= progress.next if progress else {}
    lags: dict[str, int] = {}
    try:
        async with started(consumer(brokers), brokers) as client:
            for topic in {name.partition("/")[0] for name in at}:
                parts = await partitions_of(client, full_name(manifest.prefix, topic))
                ends = await client.end_offsets(parts)
                lags[topic] = sum(
                    max(int(end) - at.get(f"{topic}/{part.partition}", 0), 0)
                    for part, end in ends.items()
                )
    except CannotRun as error:
        typer.echo(f"how far behind is not known: {error}", err=True)
        return None
    return lags


def _chosen(text: str) -> tuple[str, ...]:
    if not text:
        return tuple(BY_NAME)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in BY_NAME:
            raise typer.BadParameter(f"--topics: no topic {name!r}; there are {', '.join(BY_NAME)}")
    return names


def _begin(text: str) -> Begin:
    if text in ("beginning", "now"):
        return text
    return moment(text, "--from", time.time_ns() // 1_000_000)


def _size(option: str, text: str, least: int) -> int:
    """Bytes from 50GB, 500 MB, 1000000. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    size = float(found[1]) * UNITS[found[2].upper()] if found else -1
    if size < least:
        raise typer.BadParameter(
            f"{option} {text!r}: a size such as 50GB or 500MB, at least {least / 1e6:g} MB"
        )
    return int(size)


def _open_many_files() -> None:
    """Each partition of each topic has a file of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _told(manifest: Manifest, lines: list[Held]) -> list[str]:
    total = sum(line.size_bytes for line in lines)
    origin = f"{manifest.prefix} (incarnation {manifest.incarnation})"
    said = [f"{manifest.kind} of {origin}, {total / 1e6:,.1f} MB, slackwater {manifest.software}"]
    for line in lines:
        more = "" if line.lag is None else f", {line.lag:,} behind"
        gaps = f", {line.gaps} GAPS" if line.gaps else ""
        said.append(
            f"{line.topic:24} {line.records:>12,} records {line.size_bytes / 1e6:>10,.1f} MB "
            f"{line.segments:>6} segments  {shown(line.first_ms)} to {shown(line.last_ms)}"
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


if __name__ == "__main__":
    app()
