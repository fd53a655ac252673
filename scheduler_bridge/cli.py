"""`slackwater bridge`: run the bridge. The entry point `bridge` of `slackwater.commands`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console

from scheduler_bridge import cli_options as options
from scheduler_bridge.build import OWN_OPTIONS, Options, SinkName, check_options, make
from scheduler_bridge.evictions.cli import evict
from scheduler_bridge.ledger.bound_pods import Names
from scheduler_bridge.ledger.keeper import LedgerTaken
from scheduler_bridge.ledger.setup import LedgerSettings, attach, settings_of
from scheduler_bridge.loop import Bridge
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Rules
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    Settings,
    check_resource_names,
)
from scheduler_bridge.sinks import Sink
from schemas.names import check_brokers

app = typer.Typer(
    help="Tell schedulers what batch work may borrow.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("evict")(evict)


@app.callback()
def bridge() -> None:
    """Tell schedulers what batch work may borrow."""


@app.command()
def run(
    asked: typer.Context,
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = "slackwater.",
    sink: Annotated[SinkName, typer.Option(help="Who is told.")] = SinkName.dry_run,
    record: options.Record = Path("slackwater-bridge.jsonl"),
    fsync: options.FsyncWhen = options.Fsync.always,
    quiet: options.Quiet = False,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    lease_namespace: options.LeaseNamespace = None,
    lease_name: options.LeaseName = "slackwater-bridge",
    lease_s: options.LeaseSeconds = 3,
    yarn: options.Yarn = None,
    yarn_user: options.YarnUser = "yarn",
    yarn_weight: options.YarnWeight = 1,
    kubernetes_weight: options.KubernetesWeight = 1,
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
    said = locals()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # else a line for every request
    metrics = Metrics()
    try:
        check_options(sink, _given(asked))
        settings = _settings(said)
        ledger = settings_of(sink, said)
        target = make(sink, _options(said), metrics)
    except (ValueError, OSError) as error:
        typer.echo(f"bridge: {error}", err=True)
        raise typer.Exit(2) from None
    try:
        told = uvloop.run(_run(settings, target, metrics, ledger, _names(said)))
    except LedgerTaken as error:
        typer.echo(f"bridge: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        target.close()
    typer.echo(f"bridge: stopped; {told} patches told", err=True)


def _settings(said: Mapping[str, Any]) -> Settings:
    return Settings(
        brokers=check_brokers(said["brokers"]),
        prefix=said["prefix"],
        patches_per_s=said["rate"],
        metrics_host=said["metrics_host"],
        metrics_port=said["metrics_port"],
        rules=Rules(
            change_permille=said["change_permille"],
            refresh_ms=said["refresh_s"] * 1000,
            stale_ms=said["stale_s"] * 1000,
        ),
    )


def _options(said: Mapping[str, Any]) -> Options:
    own = {name for names_ in OWN_OPTIONS.values() for name in names_} - {"quiet"}
    return Options(
        names=_names(said),
        echo=_silent if said["quiet"] else Console(soft_wrap=True, highlight=False).print,
        **{name: said[name] for name in own},
    )


def _names(said: Mapping[str, Any]) -> Names:
    names = said["cpu_name"], said["memory_name"], said["mid_cpu_name"], said["mid_memory_name"]
    check_resource_names(names)
    return names


async def _run(
    settings: Settings, sink: Sink, metrics: Metrics, ledger: LedgerSettings | None, names: Names
) -> int:
    bridge_ = Bridge(settings, sink, metrics)
    if ledger is not None:
        attach(bridge_, ledger, names)
    await bridge_.run()
    return bridge_.told


def _given(asked: typer.Context) -> set[str]:
    """Options that stand on the command line."""
    sources = {name: asked.get_parameter_source(name) for name in asked.params}
    return {
        name
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def _silent(line: str) -> None:
    """Print nothing."""
