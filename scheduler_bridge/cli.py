"""`slackwater bridge`: run the bridge. The entry point `bridge` of `slackwater.commands`."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from scheduler_bridge.build import Options, SinkName, check_options, make
from scheduler_bridge.loop import Bridge
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Rules
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    Settings,
)
from scheduler_bridge.sinks import Sink
from schemas.names import check_brokers

app = typer.Typer(
    help="Tell schedulers what batch work may borrow.",
    no_args_is_help=True,
    add_completion=False,
)
DRY = "Options of --sink dry-run"
KUBE = "Options of --sink kubernetes"


class Fsync(StrEnum):
    """When a recorded patch counts as published."""

    always = "always"
    never = "never"


@app.callback()
def bridge() -> None:
    """Tell schedulers what batch work may borrow."""


@app.command()
def run(
    context: typer.Context,
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = "slackwater.",
    sink: Annotated[SinkName, typer.Option(help="Who is told.")] = SinkName.dry_run,
    record: Annotated[
        Path,
        typer.Option(help="JSON lines of every patch; reread at the start.", rich_help_panel=DRY),
    ] = Path("slackwater-bridge.jsonl"),
    fsync: Annotated[
        Fsync, typer.Option(help="always: published means on disk.", rich_help_panel=DRY)
    ] = Fsync.always,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Record patches, print none.", rich_help_panel=DRY)
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="How to reach the API server; none: in-cluster.", rich_help_panel=KUBE),
    ] = None,
    kube_context: Annotated[
        str | None,
        typer.Option(
            "--context", help="Of the kubeconfig; none: its current one.", rich_help_panel=KUBE
        ),
    ] = None,
    lease_namespace: Annotated[
        str | None,
        typer.Option(help="Where bridges elect their leader; none: our own.", rich_help_panel=KUBE),
    ] = None,
    lease_name: Annotated[
        str, typer.Option(help="The Lease they elect it by.", rich_help_panel=KUBE)
    ] = "slackwater-bridge",
    lease_s: Annotated[
        int,
        typer.Option(
            min=1, max=300, help="Another takes over after so long a silence.", rich_help_panel=KUBE
        ),
    ] = 3,
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
) -> None:
    """Follow capacity and tell the sink, until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(soft_wrap=True, highlight=False)
    metrics = Metrics()
    try:
        check_options(sink, _given(context))
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
        options = Options(
            names=(cpu_name, memory_name, mid_cpu_name, mid_memory_name),
            record=record,
            fsync=fsync.value,
            echo=_silent if quiet else console.print,
            kubeconfig=kubeconfig,
            context=kube_context,
            lease_namespace=lease_namespace,
            lease_name=lease_name,
            lease_s=lease_s,
        )
        target = make(sink, options, metrics)
    except (ValueError, OSError) as error:
        typer.echo(f"bridge: {error}", err=True)
        raise typer.Exit(2) from None
    try:
        told = uvloop.run(_run(settings, target, metrics))
    finally:
        target.close()
    typer.echo(f"bridge: stopped; {told} patches told", err=True)


async def _run(settings: Settings, sink: Sink, metrics: Metrics) -> int:
    bridge_ = Bridge(settings, sink, metrics)
    await bridge_.run()
    return bridge_.told


def _given(context: typer.Context) -> set[str]:
    """Options that stand on the command line."""
    names = {"kube_context": "context"}
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        names.get(name, name)
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def _silent(line: str) -> None:
    """Print nothing."""
