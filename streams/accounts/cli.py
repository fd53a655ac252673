"""`slackwater account`: what co-location came to, from a recording, a bundle or live topics.

The entry point `account` of the group `slackwater.commands`. The file that ``-o`` writes is what
``slackwater policy put --account`` asks for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import msgspec
import typer

from schemas.names import check_brokers
from schemas.policy import STAGES
from streams.accounts import prices as price_files
from streams.accounts import statement
from streams.accounts.cells import Span
from streams.accounts.flat import as_csv
from streams.accounts.reading import Progress, read
from streams.accounts.satisfaction import Starving
from streams.accounts.source import first_ms, span_of
from streams.accounts.statement import BYS, By, Statement, Wanted
from streams.accounts.text import page
from streams.moments import moment, shown
from streams.recording import Recording, open_recording
from streams.recording.recording import now_of
from streams.recording.source import Source
from streams.recording.target import check_target, write_whole
from streams.replay.topics import TopicSource
from streams.topic_reader import CannotRun
from streams.topics_cli import INSTALLED_PREFIX, hush

app = typer.Typer(help="Say what co-location came to.", add_completion=False)
LONGEST_MINUTES = 1440


@app.command()
def account(
    recording: Path | None = typer.Argument(
        None, help="A recording or a bundle; without one: the topics, see --brokers."
    ),
    brokers: str = typer.Option(
        "", "--brokers", help="host:port[,...]: read the topics, from --from to --to."
    ),
    prefix: str = INSTALLED_PREFIX,
    begin: str = typer.Option(
        "", "--from", help="UTC as 2026-01-31T12:00:00, log ms, or -24h; default: all there is."
    ),
    end: str = typer.Option("", "--to", help="The same; default: to the end."),
    stage: str = typer.Option(
        "", "--stage", help="Whose nodes: observe, protect, pilot, expand; default: the furthest."
    ),
    by: str = typer.Option("pool", "--by", help="Rows: pool, workload or policy."),
    pool_label: str = typer.Option("pool", "--pool-label", help="The label that names a pool."),
    prices: Path | None = typer.Option(None, "--prices", help="YAML; see --example-prices."),
    baseline: Path | None = typer.Option(
        None, "--baseline", help="An account of the observe stage, to compare with."
    ),
    starved_below: float = typer.Option(
        0.1, min=0.0, max=1.0, help="A pod that gets less than this share of what it asked for..."
    ),
    starved_minutes: int = typer.Option(
        1, min=1, max=LONGEST_MINUTES, help="...for so many minutes in a row is starved."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write the account as JSON."),
    csv: Path | None = typer.Option(None, "--csv", help="Write the rows as CSV."),
    as_json: bool = typer.Option(False, "--json", help="Print the account as JSON."),
    force: bool = typer.Option(False, "--force", help="Replace files that are there."),
    example_prices: bool = typer.Option(
        False, "--example-prices", help="Print a file of prices to begin with, and end."
    ),
) -> None:
    """Sum up what was predicted, lent and used, whom it cost, and what it came to in money.

    The nodes of one stage are accounted for, beside the control group in the same time. What the
    records do not tell is named, never taken for 0.
    """
    if example_prices:
        typer.echo(price_files.example().rstrip("\n"))
        return
    hush()
    _check_targets(recording, output, csv, force=force)
    wanted = _wanted(stage, by, prices, baseline)
    rule = Starving(Fraction(str(starved_below)), starved_minutes)
    times = _times(recording, begin, end)
    if (recording is None) == (not brokers):
        raise CannotRun("name a recording or a bundle, or --brokers with --from: one of the two")
    with _source(recording, brokers, prefix, times[0]) as (source, there):
        found = read(source, _span(there, times), pool_label, rule, _progress())
        said = statement.of(found, wanted)
        said = msgspec.structs.replace(said, lacks=(*said.lacks, *_lost(source, there, times[0])))
    _write(said, output, csv)
    typer.echo(_json(said).decode() if as_json else page(said))


def _times(recording: Path | None, begin: str, end: str) -> tuple[int | None, int | None]:
    """What --from and --to mean; a recording is opened only where times count back from its end."""
    counts_back = any(text == "now" or text.startswith("-") for text in (begin, end))
    now_ms = now_of(recording) if counts_back else 0
    return (
        moment(begin, "--from", now_ms) if begin else None,
        moment(end, "--to", now_ms) if end else None,
    )


def _check_targets(recording: Path | None, *targets: Path | None, force: bool) -> None:
    for target in targets:
        if target is not None:
            check_target(target, recording, force=force)


@contextmanager
def _source(
    recording: Path | None, brokers: str, prefix: str, begin_ms: int | None
) -> Iterator[tuple[Source, Span]]:
    """Where records come from, and the time that is there."""
    if recording is not None:
        with open_recording(recording) as opened:
            yield opened, span_of(opened.manifest)
    elif begin_ms is None:
        raise CannotRun("--brokers needs --from: how far to look back, such as --from -5h")
    else:
        with TopicSource(check_brokers(brokers), prefix) as topics:
            begin_ms = max(begin_ms, first_ms(topics) or begin_ms)
            yield topics, Span(begin_ms, time.time_ns() // 1_000_000)


def _span(there: Span, times: tuple[int | None, ...]) -> Span:
    """The time of the account: what was asked, within what is there."""
    begin_ms, end_ms = times
    span = Span(
        there.from_ms if begin_ms is None else max(begin_ms, there.from_ms),
        there.to_ms if end_ms is None else min(end_ms, there.to_ms),
    )
    if span.ms <= 0:
        raise CannotRun(
            "nothing lies in that time: there are records from "
            f"{shown(there.from_ms)} to {shown(there.to_ms)} UTC"
        )
    return span


def _wanted(stage: str, by: str, prices: Path | None, baseline: Path | None) -> Wanted:
    if stage and stage not in STAGES:
        raise CannotRun(f"--stage {stage!r:.60}: one of {', '.join(STAGES)}")
    if by not in BYS:
        raise CannotRun(f"--by {by!r:.60}: one of {', '.join(BYS)}")
    grouping: By = msgspec.convert(by, By)
    return Wanted(
        stage=stage,
        by=grouping,
        prices=None if prices is None else price_files.read(prices),
        baseline=None if baseline is None else _baseline(baseline),
    )


def _baseline(path: Path) -> Statement:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Statement)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path}: no account of `slackwater account -o`: {error}") from None
    if found.format > statement.FORMAT:
        raise CannotRun(
            f"{path} is of format {found.format}, this version reads up to {statement.FORMAT}"
        )
    return found


def _lost(source: Source, there: Span, begin_ms: int | None) -> Iterator[str]:
    """What was asked for and is not there, or could not be read."""
    if begin_ms is not None and begin_ms < there.from_ms:
        yield f"there is nothing before {shown(there.from_ms)} UTC: the account begins there"
    for gap in source.manifest.gaps:
        yield f"{gap.topic}/{gap.partition} {gap.first}..{gap.last} was not recorded: {gap.why}"
    for problem in source.problems if isinstance(source, Recording) else ():
        yield f"{problem.name} {problem.why}: what it held is left out"


def _write(said: Statement, output: Path | None, csv: Path | None) -> None:
    if output is not None:
        write_whole(output, _json(said) + b"\n")
    if csv is not None:
        write_whole(csv, as_csv(said).encode())


def _json(said: Statement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(said), indent=2)


def _progress() -> Progress | None:
    """A line on stderr that counts partitions; only where somebody looks."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, total: int) -> None:
        typer.echo(f"\rpartition {done} of {total}", err=True, nl=done == total)

    return tell


if __name__ == "__main__":
    app()
