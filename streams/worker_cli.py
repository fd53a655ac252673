"""`slackwater worker`: run one worker, or check what workers said.

The entry point `worker` of the group `slackwater.commands`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from pathlib import Path
from typing import NoReturn

import orjson
import typer
import uvloop

from schemas.names import check_brokers
from schemas.topics import PREFIX
from streams import logs
from streams.intake import Check, unchecked
from streams.keyring import Folder
from streams.leave import leave
from streams.settings import WorkerSettings
from streams.topic_reader import CannotRun
from streams.worker import Worker

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def worker(
    context: typer.Context,
    brokers: str = typer.Option(
        "127.0.0.1:9092", envvar="SLACKWATER_BROKERS", help="host:port,..."
    ),
    prefix: str = typer.Option(PREFIX, envvar="SLACKWATER_PREFIX", help="Prefix of the topics."),
    metrics_host: str = typer.Option("127.0.0.1", help="Where to serve health and metrics."),
    metrics_port: int = typer.Option(0, min=0, max=65535, help="0: a free port, see the log."),
    instance: str = typer.Option("", help="Stable unique name for static group membership."),
    image_interval: float = typer.Option(10.0, min=0.5, max=600, help="Seconds between images."),
    image_records: int = typer.Option(50_000, min=1, help="An image after so many records."),
    cold_lookback: float = typer.Option(600.0, min=0, help="Seconds folded when no image is left."),
    keys: Path | None = typer.Option(
        None, envvar="SLACKWATER_KEYS", help="Folder of keys: sign, and check who says what."
    ),
    accept_unsigned: bool = typer.Option(
        False, "--accept-unsigned", help="With --keys: let unsigned records in, for a change-over."
    ),
    level: str = typer.Option("info", help="debug, info, warning or error."),
) -> None:
    """Fold samples, decide, publish commands and capacity."""
    if context.invoked_subcommand is not None:
        return
    logs.set_up(level)
    spare_the_collector()
    settings = WorkerSettings(
        brokers=check_brokers(brokers),
        prefix=prefix,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        instance=instance,
        image_interval_s=image_interval,
        image_records=image_records,
        cold_lookback_ms=int(cold_lookback * 1000),
        keys=keys,
        accept_unsigned=accept_unsigned,
    )
    uvloop.run(run(settings))


@app.command("check")
def check_topics(
    brokers: str = typer.Option(
        "127.0.0.1:9092", envvar="SLACKWATER_BROKERS", help="host:port,..."
    ),
    prefix: str = typer.Option(PREFIX, envvar="SLACKWATER_PREFIX", help="Prefix of the topics."),
    journal: list[Path] = typer.Option([], help="Journals of nodes, as many as wanted."),
    keys: Path | None = typer.Option(
        None, envvar="SLACKWATER_KEYS", help="The workers' folder of keys, as they had it."
    ),
    accept_unsigned: bool = typer.Option(False, "--accept-unsigned", help="As the workers had it."),
) -> None:
    """Refold the log and compare: no record lost or folded twice, repeats byte-identical."""
    try:
        from streams.checker import check  # noqa: PLC0415  (brings Arrow, which no worker needs)
    except ModuleNotFoundError as error:
        raise CannotRun(
            f"'worker check' needs the package {error.name!r}: pip install slackwater[replay]"
        ) from error
    believe: Check = unchecked
    if keys is not None:
        believe = Folder(keys).checker(prefix, accept_unsigned=accept_unsigned).check
    verdict = asyncio.run(check(brokers, prefix, journal, believe=believe))
    typer.echo(orjson.dumps(verdict.as_json(), option=orjson.OPT_INDENT_2).decode())
    raise typer.Exit(0 if verdict.ok else 1)


def spare_the_collector() -> None:
    """Cyclic garbage is rare here, long-lived objects are many: look less often.

    With the defaults every seventh CPU second of a 5,000-node worker was spent looking.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def run(settings: WorkerSettings) -> NoReturn:
    """One worker until SIGTERM or SIGINT; ends the process with its exit code."""
    one = Worker(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, one.stop)
    leave(await one.run())


if __name__ == "__main__":
    app()
