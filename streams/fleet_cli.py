"""`slackwater fleet`: run the second stage; `slackwater fleet show` reads its public table."""

from __future__ import annotations

import asyncio
import signal

import orjson
import typer
import uvloop

from schemas.names import check_brokers
from streams import logs
from streams.fleet_app import FleetSettings, FleetStage
from streams.health import HealthServer
from streams.leave import leave
from streams.metrics import FLEET_METRICS, Metrics
from streams.tables import read_minutes
from streams.topic_reader import CannotRun
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(help="Second stage: what no single partition knows.", add_completion=False)


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    metrics_host: str = typer.Option("127.0.0.1", help="Address of /metrics."),
    metrics_port: int = typer.Option(0, min=0, max=65535, help="0: any free one, in the log."),
    level: str = typer.Option("info", help="debug, info, warning or error."),
) -> None:
    """Compute fleet facts and keep the public windowed tables, until Ctrl-C or SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    logs.set_up(level)
    uvloop.run(_run(FleetSettings(check_brokers(brokers), prefix), metrics_host, metrics_port))
    leave(0)


@app.command()
def show(
    node: str = typer.Argument(help="Name of the node."),
    minutes: int = typer.Option(5, min=1, max=60, help="How many of the newest rows."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
) -> None:
    """Print the newest rows of a node's minutes as JSON lines, oldest first."""
    hush()
    rows = asyncio.run(read_minutes(brokers, prefix, node, minutes))
    if not rows:
        raise CannotRun(f"no row for node {node!r}: is `slackwater fleet` running, and the node?")
    for row in rows:
        typer.echo(orjson.dumps(row).decode())


async def _run(settings: FleetSettings, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    metrics = Metrics(FLEET_METRICS)
    stage = FleetStage(settings, metrics)
    server = HealthServer(host, port, metrics, stage.live, stage.ready)
    await server.start()
    try:
        await stage.run(stop)
    finally:
        await server.stop()


if __name__ == "__main__":
    app()
