"""`slackwater dev-broker`: run a broker in the foreground until it is told to stop."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path
from types import FrameType

import typer

from streams.dev_broker.broker import DevBroker
from streams.dev_broker.errors import BrokerError
from streams.dev_broker.jars import ensure_jars, find_java, kafka_version
from streams.dev_broker.process import write_whole

app = typer.Typer(add_completion=False)

WATCH_S = 1.0


class _Stop(BaseException):
    """A signal asked us to end; not an Exception, so that nothing on the way swallows it."""


def _on_signal(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one request is enough: the stop is in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stop(number)


@app.command()
def dev_broker(
    data: Path | None = typer.Option(None, help="Folder to keep the data in; default: temporary."),
    port: int = typer.Option(9092, min=0, max=65535, help="Port to listen on; 0: any free one."),
    listen: str = typer.Option("127.0.0.1", help="Address to listen on."),
    heap: str = typer.Option("512m", help="Java's heap."),
    log: Path | None = typer.Option(None, help="The broker's log; default: in the data folder."),
    ready_file: Path | None = typer.Option(
        None, help="Written as JSON {bootstrap, pid} when the broker answers; removed at the end."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the same JSON on stdout."),
    fetch_only: bool = typer.Option(False, "--fetch-only", help="Fetch Kafka's jars and leave."),
) -> None:
    """Run a real Kafka broker (KRaft, one node) until Ctrl-C or SIGTERM."""
    if fetch_only:
        find_java()
        typer.echo(f"Kafka {kafka_version()}: {ensure_jars()}", err=True)
        return
    if log is None and data is None:
        # A temporary data folder goes at the end; its log is kept for the curious.
        log = Path(tempfile.gettempdir()) / "slackwater-dev-broker.log"
    broker = DevBroker(data, port, listen, heap, log, say=lambda line: typer.echo(line, err=True))
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _on_signal) for number in signals}
    interrupted = False
    try:
        broker.start()
        _announce(broker, ready_file, as_json)
        while not broker.wait(WATCH_S):
            pass
        raise BrokerError(f"Kafka ended by itself ({broker.last_error()}): see {broker.log}")
    except _Stop as stop:
        interrupted = stop.args[0] == signal.SIGINT
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        broker.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupted:
        raise typer.Exit(130)


def _announce(broker: DevBroker, ready_file: Path | None, as_json: bool) -> None:
    ready = json.dumps({"bootstrap": broker.bootstrap, "pid": broker.pid})
    if ready_file is not None:
        write_whole(ready_file, ready + "\n")
    if as_json:
        typer.echo(ready)
    else:
        typer.echo(f"Kafka {kafka_version()} answers on {broker.bootstrap} (log: {broker.log})")
