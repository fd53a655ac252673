"""`slackwater replay`: decide again what was recorded, and say whether it is the same.

The entry point `replay` of the group `slackwater.commands`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import typer

from schemas.errors import BadPolicy
from schemas.keys import BadKeys
from schemas.names import check_brokers
from schemas.topics import PREFIX
from streams.explain.line import clock
from streams.moments import BadMoment, moment
from streams.recording import BadRecording
from streams.recording.recording import now_of
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.into import check_prefix, into
from streams.replay.result import EXIT, Replayed, replayed
from streams.replay.run import Wanted, opened, replay_all, spare_the_collector
from streams.replay.what_if.command import POLICY, POOL, SORT_BY, SWEEP, what_if
from streams.replay.words import told
from streams.topic_reader import CannotRun
from streams.topics_cli import hush

app = typer.Typer(add_completion=False)
CANNOT = EXIT["cannot"]
KEYS = typer.Option(
    None, "--keys", help="The workers' folder of keys: check signatures instead of believing the "
    "recorded refusals."
)  # fmt: skip
INTO = typer.Option(
    "", "--into", help="Instead of comparing: publish all of it to these brokers, under "
    "--prefix replay.NAME., for other subscribers."
)  # fmt: skip
SOURCE_PREFIX = typer.Option(
    PREFIX, "--source-prefix", help="With --brokers and --into: of the topics that are read."
)
WORTH_PROCESSES = 20_000
"""Records that are folded while another process starts, about."""


WHAT = typer.Argument(
    None, metavar="[BUNDLE|FOLDER]", help="A bundle (file) or a recording (folder)."
)
BROKERS = typer.Option(
    "", "--brokers", help="Instead of a recording: the topics of a cluster, host:port,..."
)
OWN_PREFIX = typer.Option(
    PREFIX, "--prefix", help="Of the topics of --brokers; with --into: of the replay's own."
)
BEGIN = typer.Option("", "--from", help="From the newest image before this (UTC, log ms, or -15m).")
END = typer.Option("", "--to", help="Up to this time, inclusive (UTC, log ms, or -15m).")
SPEED = typer.Option("max", "--speed", help="max, or times real time: 1x, 10x.")
JOBS = typer.Option(0, "--jobs", min=0, help="0: one a core, where it is worth it.")


@app.command()
def replay(
    path: Path | None = WHAT,
    brokers: str = BROKERS,
    prefix: str = OWN_PREFIX,
    publish: str = INTO,
    source_prefix: str = SOURCE_PREFIX,
    begin: str = BEGIN,
    end: str = END,
    partition: list[int] = typer.Option([], "--partition", help="Only these, default all."),
    speed: str = SPEED,
    jobs: int = JOBS,
    keys: Path | None = KEYS,
    accept_unsigned: bool = typer.Option(False, "--accept-unsigned", help="As the workers had it."),
    policy: list[str] = POLICY,
    sweep: list[str] = SWEEP,
    sort_by: str = SORT_BY,
    pool_label: str = POOL,
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Decide again what was recorded, by the same code, and compare every output byte for byte.

    Nothing is published but by --into. Exit code 0: identical; 1: something differs; 2: it cannot
    be replayed; 3: recorded under another law version, so what is shown is a what-if. With
    --policy or --sweep: what another policy would have come to beside what was; 0: answered.
    """
    hush()
    spare_the_collector()
    began = time.monotonic()
    try:
        now_ms = now_of(path) if begin or end else 0
        wanted = Wanted(
            path=path,
            brokers=check_brokers(brokers) if brokers else "",
            prefix=source_prefix if publish else prefix,
            from_ms=moment(begin, "--from", now_ms) if begin else None,
            to_ms=moment(end, "--to", now_ms) if end else None,
            keys=keys,
            accept_unsigned=accept_unsigned,
            speed=speed_of(speed),
        )
        if policy or sweep:
            if keys or wanted.speed or publish:
                raise CannotReplay("what if goes without --keys, --speed and --into")
            what_if(wanted, partition, policy, sweep, sort_by, pool_label, jobs, as_json=as_json)
            return
        if publish:
            typer.echo(republish(wanted, partition, check_brokers(publish), prefix))
            return
        found = run(wanted, partition, jobs)
    except (BadRecording, BadMoment, CannotReplay, CannotRun, BadKeys, BadPolicy) as error:
        typer.echo(f"slackwater: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(CANNOT) from None
    seconds = time.monotonic() - began
    if as_json:
        document = orjson.dumps(found.as_json(seconds), option=orjson.OPT_INDENT_2)
        typer.echo(document.decode())
    else:
        typer.echo("\n".join(told(found, seconds)))
    raise typer.Exit(EXIT[found.verdict])


def run(wanted: Wanted, only: list[int], jobs: int) -> Replayed:
    """Replay what is wanted. Raises what `opened` raises, and CannotReplay.

    ``jobs`` 0: a process a core where there is enough to do.
    """
    with source_of(wanted) as source:
        partitions, laws = chosen(source, only), source.manifest.law_versions
        records = sum(source.last("samples", each) + 1 for each in partitions)
    name = str(wanted.path or f"{wanted.brokers} {wanted.prefix}")
    jobs = jobs or (os.cpu_count() or 1 if records >= WORTH_PROCESSES else 1)
    told = _progress(lambda folded, of: f"{100 * folded // of:3d} %, {folded:,} records")
    found = replay_all(partitions, wanted, jobs, told)
    _end(told)
    return replayed(name, laws, found)


def republish(wanted: Wanted, only: list[int], brokers: str, prefix: str) -> str:
    """Publish what is wanted; in words what was done. Raises what `run` raises."""
    check_prefix(prefix)
    told = _progress(lambda count, ms: f"{count:,} records, {clock(ms)}")
    with source_of(wanted) as source:
        count = into(source, chosen(source, only), wanted, brokers, prefix, told)
    _end(told)
    return (
        f"{count:,} records published to {brokers} under {prefix}; they stay there until you "
        f"delete the topics {prefix}*"
    )


def source_of(wanted: Wanted) -> AbstractContextManager[Source]:
    """The one source that is named. Raises CannotReplay."""
    if (wanted.path is None) == (not wanted.brokers):
        raise CannotReplay("name a bundle or a folder, or the --brokers of a cluster; one of them")
    return opened(wanted)


def chosen(source: Source, only: list[int]) -> list[int]:
    """The partitions that are wanted. Raises CannotReplay."""
    there = source.partitions()
    if unknown := sorted(set(only) - set(there)):
        raise CannotReplay(f"partition {unknown[0]} is not there; there are {list(there)}")
    if not there:
        raise CannotReplay("there are no samples: nothing was decided from it")
    return sorted(set(only)) or list(there)


def speed_of(text: str) -> float:
    """``max`` is 0. Raises CannotReplay."""
    if text == "max":
        return 0.0
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0.001 <= speed <= 100_000:
        raise CannotReplay(f"--speed {text!r}: write max, or times real time such as 1x or 10x")
    return speed


def _progress(text: Callable[[int, int], str]) -> Callable[[int, int], None]:
    """Write how far it is, at most five times a second; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return _silent
    last = [0.0]

    def told(done: int, of: int) -> None:
        now = time.monotonic()
        if of and now - last[0] >= 0.2:
            last[0] = now
            typer.echo(f"\r\033[Kreplay: {text(done, of)}", err=True, nl=False)

    return told


def _end(told: Callable[[int, int], None]) -> None:
    if told is not _silent:
        typer.echo("\r\033[K", err=True, nl=False)


def _silent(done: int, of: int) -> None:
    """Nobody looks."""


if __name__ == "__main__":
    app()
