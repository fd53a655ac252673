"""`slackwater simulate`: a fleet that is not there. The entry point `simulate`.

Without ``--rate`` the closed loop; with it the load generator.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import orjson
import typer
import uvloop
from aiokafka.errors import KafkaError

from node_agent.options import AcceptUnsigned, KeyFolder, MetricsHost, MetricsPort
from node_agent.settings import parse_period
from node_agent.simulate.load import Load
from node_agent.simulate.loop import Simulation
from node_agent.simulate.settings import Settings
from node_agent.simulate.summary import Summary, serve
from node_agent.simulate.trace import TRACES
from schemas.keys import BadKeys
from schemas.names import check_brokers, check_node_name
from schemas.topics import PREFIX

PROGRESS_S = 5.0
TraceName = Enum("TraceName", {name: name for name in TRACES})  # type: ignore[misc]
app = typer.Typer(help="A simulated fleet driven by real traces.", add_completion=False)

Rate = Annotated[
    int | None,
    typer.Option(
        help="Load only: so many samples a second; 0: all it can. One seed a set of topics."
    ),
]
StateDir = Annotated[Path | None, typer.Option(help="Keep each node's journal in a folder here.")]


@app.callback(invoke_without_command=True)
def simulate(
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = PREFIX,
    nodes: Annotated[int, typer.Option(max=1_000_000, help="How many nodes.")] = 50,
    pods: Annotated[int, typer.Option(help="Room for pods on each; a fifth is for batch.")] = 50,
    period: Annotated[str, typer.Option(help="How often a node samples: 1s, 200ms.")] = "1s",
    speed: Annotated[float, typer.Option(help="Trace seconds that pass in a second.")] = 1.0,
    seed: Annotated[
        int,
        typer.Option(help="Same seed, same fleet."),
    ] = 0,
    trace: Annotated[TraceName, typer.Option(help="Whose use.")] = TraceName["azure"],
    node_prefix: Annotated[str, typer.Option(help="What node names begin with.")] = "sim",
    scheduler: Annotated[bool, typer.Option(help="Lend capacity to batch jobs.")] = True,
    local_law: Annotated[
        bool | None, typer.Option(help="Nodes decide too. Default: up to 100 nodes.")
    ] = None,
    floor_milli: Annotated[
        int, typer.Option(min=10, max=4_096_000, help="Best-effort floor, millicores.")
    ] = 10,
    state_dir: StateDir = None,
    rate: Rate = None,
    total: Annotated[int | None, typer.Option(help="With --rate: end after so many.")] = None,
    for_: Annotated[str, typer.Option("--for", help="End after: 60s, 5m. Default: never.")] = "",
    metrics_host: MetricsHost = "127.0.0.1",
    metrics_port: MetricsPort = None,
    keys: KeyFolder = None,
    accept_unsigned: AcceptUnsigned = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON.")] = False,
) -> None:
    """Many nodes in one process: they sample, obey, run batch jobs. Ctrl-C ends with a summary."""
    _play(
        lambda: Settings(
            brokers=check_brokers(brokers),
            prefix=prefix,
            nodes=nodes,
            pods=pods,
            period_ms=parse_period(period),
            speed=speed,
            seed=seed,
            trace=trace.value,
            node_prefix=check_node_name(node_prefix),
            scheduling=scheduler,
            local_law=local_law,
            floor_milli=floor_milli,
            state_dir=state_dir,
            rate=rate,
            total=total,
            for_s=_seconds(for_) if for_ else None,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            keys=keys,
            accept_unsigned=accept_unsigned,
        ),
        as_json,
    )


def _play(told: Callable[[], Settings], as_json: bool) -> None:
    """Run to the end and say what it was; whatever cannot be is one line and exit 2."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        summary = uvloop.run(_run(told()))
    except (ValueError, KafkaError, OSError, BadKeys) as error:
        typer.echo(f"simulate: {error or type(error).__name__}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"simulate: {summary.line()}", err=True)
    if as_json:
        typer.echo(orjson.dumps(summary.as_dict()).decode())


async def _run(settings: Settings) -> Summary:
    """One of the two loops, with signals, progress and metrics."""
    loop = Simulation(settings) if settings.rate is None else Load(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, loop.stop)
    if settings.metrics_port is not None:
        port = serve(loop.summary, settings.metrics_host, settings.metrics_port)
        typer.echo(f"simulate: metrics on http://{settings.metrics_host}:{port}/metrics", err=True)
    progress = asyncio.create_task(_progress(loop.summary))
    try:
        return await loop.run()
    finally:
        progress.cancel()


def _seconds(text: str) -> float:
    """Seconds of "60s" or "5m". Raises ValueError."""
    scale = {"s": 1.0, "m": 60.0}.get(text[-1:])
    if scale is None or not text[:-1].isdigit() or int(text[:-1]) == 0:
        raise ValueError(f"--for {text!r}: want such as 60s or 5m")
    return int(text[:-1]) * scale


async def _progress(summary: Summary) -> None:
    """A line now and then; runs until cancelled."""
    while True:
        await asyncio.sleep(PROGRESS_S)
        typer.echo(f"simulate: {summary.line()}", err=True)
