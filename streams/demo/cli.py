"""`slackwater demo`: the whole loop on this machine; entry point `demo`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from streams.demo import run, text
from streams.demo.settings import DemoSettings, seconds

app = typer.Typer(add_completion=False)
EXIT_INTERRUPTED = 130


@app.command()
def demo(
    for_: Annotated[
        str | None, typer.Option("--for", help="End by itself after so long, as 60s.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Simulated nodes beside the real one.")] = 50,
    broker_outage: Annotated[
        str | None, typer.Option(help="Take the broker away for so long, as 60s; added to --for.")
    ] = None,
    keep_logs: Annotated[
        Path | None, typer.Option(help="Keep every process's log in this folder.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Record it in this folder, for `slackwater replay`.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real/--no-real", help="Throttle work on this kernel (needs root).")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON on stdout.")] = False,
) -> None:
    """Broker, workers, bridge, a simulated fleet and, as root, this machine as a node of it."""
    settings = DemoSettings(
        for_s=None if for_ is None else seconds(for_),
        nodes=nodes,
        outage_s=0.0 if broker_outage is None else seconds(broker_outage),
        keep_logs=keep_logs,
        record=None if record is None else record.resolve(),
        real=real,
    )
    settings.check()
    # The reader's own complaints about an absent broker are not news: the view says it.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    summary = run.perform(settings)
    if as_json:
        typer.echo(json.dumps(summary.as_json(), indent=2))
    else:
        for line in text.lines(summary):
            typer.echo(line)
    if summary.failures:
        raise typer.Exit(1)
    if summary.interrupted and settings.for_s is not None:
        raise typer.Exit(EXIT_INTERRUPTED)
