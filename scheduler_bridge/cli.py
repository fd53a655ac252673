"""`slackwater bridge`: run the bridge. The entry point `bridge` of `slackwater.commands`."""

from __future__ import annotations

import logging
import sys
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from scheduler_bridge.loop import Bridge
from scheduler_bridge.reconcile import Rules
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    Settings,
)
from scheduler_bridge.sinks import SINKS
from schemas.names import check_brokers

app = typer.Typer(
    help="Tell schedulers what batch work may borrow.",
    no_args_is_help=True,
    add_completion=False,
)
SinkName = Enum("SinkName", {sink.NAME: sink.NAME for sink in SINKS})  # type: ignore[misc]


class Fsync(StrEnum):
    """When a recorded patch counts as published."""

    always = "always"
    never = "never"


@app.callback()
def bridge() -> None:
    """Tell schedulers what batch work may borrow."""


@app.command()
def run(
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = "slackwater.",
    sink: Annotated[SinkName, typer.Option(help="Who is told.")] = SinkName["dry-run"],
    record: Annotated[
        Path, typer.Option(help="JSON lines of every patch; reread at the start.")
    ] = Path("slackwater-bridge.jsonl"),
    fsync: Annotated[Fsync, typer.Option(help="always: published means on disk.")] = Fsync.always,
    rate: Annotated[int, typer.Option(help="Patches a second at most.")] = 20,
    change_permille: Annotated[int, typer.Option(help="Smaller changes are not told.")] = 100,
    refresh_s: Annotated[int, typer.Option(help="Told again after so long.")] = 300,
    stale_s: Annotated[int, typer.Option(help="Withdrawn after so long a silence.")] = 900,
    cpu_name: Annotated[str, typer.Option(help="Resource name, integer milli.")] = CPU_NAME,
    memory_name: Annotated[str, typer.Option(help="Resource name, bytes.")] = MEMORY_NAME,
    mid_cpu_name: Annotated[str, typer.Option(help="The same of mid, milli.")] = MID_CPU_NAME,
    mid_memory_name: Annotated[str, typer.Option(help="And bytes.")] = MID_MEMORY_NAME,
    metrics_host: Annotated[str, typer.Option(help="Address of the metrics.")] = "127.0.0.1",
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port of /metrics, /healthz, /readyz; 0: a free one."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Record patches, print none.")] = False,
) -> None:
    """Follow capacity and tell the sink, until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(soft_wrap=True, highlight=False)
    chosen = next(one for one in SINKS if sink.value == one.NAME)
    try:
        settings = Settings(
            brokers=check_brokers(brokers),
            prefix=prefix,
            patches_per_s=rate,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            rules=Rules(
                change_permille=change_permille,
                refresh_ms=refresh_s * 1000,
                stale_ms=stale_s * 1000,
            ),
        )
        target = chosen(
            record, _silent if quiet else console.print, cpu_name, memory_name, fsync.value,
            mid_names=(mid_cpu_name, mid_memory_name),
        )  # fmt: skip
    except (ValueError, OSError) as error:
        typer.echo(f"bridge: {error}", err=True)
        raise typer.Exit(2) from None
    try:
        told = uvloop.run(_run(settings, target))
    finally:
        target.close()
    typer.echo(f"bridge: stopped; {told} patches told", err=True)


async def _run(settings: Settings, sink: object) -> int:
    bridge_ = Bridge(settings, sink)  # type: ignore[arg-type]
    await bridge_.run()
    return bridge_.told


def _silent(line: str) -> None:
    """Print nothing."""
