"""`slackwater ledger`: who holds and may hold what, by the logs as they stand now.

The entry point `ledger` of `slackwater.commands`. Only `forget` writes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from scheduler_bridge.ledger.amounts import NOTHING, less
from scheduler_bridge.ledger.book import Held, NodeBook, figures
from scheduler_bridge.ledger.forget import keys, still_held
from scheduler_bridge.ledger.log import LedgerLog
from scheduler_bridge.life import mono_ms
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.source import Source
from scheduler_bridge.view import View
from schemas import codec
from schemas.errors import BadRecord
from schemas.ledger import check_scheduler
from schemas.names import check_brokers

app = typer.Typer(help="Show what is lent to whom.", add_completion=False)
CONNECT_S = 10.0
POLL_MS = 200
WIDE = 200
"""Characters of a line that no terminal bounds: names are not cut for whoever reads a pipe."""
CLASSES = {"batch": ("cpu_milli", "memory_bytes"), "mid": ("mid_cpu_milli", "mid_memory_bytes")}


Brokers = Annotated[
    str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
]
Prefix = Annotated[
    str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
]


@app.callback(invoke_without_command=True)
def show(
    asked: typer.Context,
    brokers: Brokers = "127.0.0.1:9092",
    prefix: Prefix = "slackwater.",
    node: Annotated[str | None, typer.Option(help="This node only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a row.")] = False,
) -> None:
    """Show node, scheduler, class, what is held, releasing and granted, and what is left."""
    if asked.invoked_subcommand is not None:
        return
    view = _view(brokers, prefix)
    _check_node(view, node)
    lines = rows(view, view.now_ms(mono_ms()), node)
    if as_json:
        for line in lines:
            typer.echo(orjson.dumps(line).decode())
    else:
        _print(lines)


@app.command()
def forget(
    scheduler: Annotated[str, typer.Argument(help="Its name in the ledger, such as hadoop-yarn.")],
    brokers: Brokers = "127.0.0.1:9092",
    prefix: Prefix = "slackwater.",
    node: Annotated[str | None, typer.Option(help="On this node only.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Even where it holds something.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was ended, as JSON.")] = False,
) -> None:
    """End all that stands for a scheduler that borrows no more; after its last bridge has ended."""
    try:
        check_scheduler(scheduler)
    except ValueError as error:
        typer.echo(f"ledger: {error}", err=True)
        raise typer.Exit(2) from None
    view = _view(brokers, prefix)
    _check_node(view, node)
    running = still_held(view.book, scheduler, node)
    if running and not held:
        typer.echo(
            f"ledger: {scheduler} holds something on {', '.join(running)[:200]}: end its work "
            "first, or say --held if none runs any more",
            err=True,
        )
        raise typer.Exit(1)
    ended = list(keys(view.book, scheduler, node))
    asyncio.run(_end(brokers, prefix, ended))
    if as_json:
        typer.echo(orjson.dumps({"ended": [key.decode() for key in ended]}).decode())
    else:
        typer.echo(f"ledger: {len(ended)} records of {scheduler} ended")


def rows(view: View, now_ms: int, only: str | None = None) -> list[dict[str, Any]]:
    """One line a node, scheduler and class; a node on which nobody counts has one of ``""``.

    ``remainder``: what of the node's capacity nobody holds or may hold. Milli and bytes.
    """
    found: list[dict[str, Any]] = []
    for node in sorted(view.desired.keys() | view.book.nodes.keys()):
        if only not in (None, node):
            continue
        want, book = view.desired.get(node), view.book.of(node)
        could = want.amount if want is not None and not want.removed else NOTHING
        left = less(could, book.counted(now_ms))
        for scheduler in book.schedulers() or [""]:
            found += _lines(node, scheduler, book, left, now_ms)
    return found


def _lines(
    node: str, scheduler: str, book: NodeBook, left: Amount, now_ms: int
) -> list[dict[str, Any]]:
    held = book.held.get(scheduler, Held(NOTHING))
    parts = {
        "allocated": figures(held.amount),
        "releasing": figures(held.releasing),
        "granted": figures(book.granted(scheduler, now_ms)),
        "remainder": figures(left),
    }
    found = []
    for class_, (cpu, memory) in CLASSES.items():
        line: dict[str, Any] = {"node": node, "scheduler": scheduler, "class": class_}
        for name, of in parts.items():
            line[f"{name}_cpu_milli"], line[f"{name}_memory_bytes"] = of[cpu], of[memory]
        if class_ == "batch" or any(of[cpu] or of[memory] for of in parts.values()):
            found.append(line)
    return found


def _print(lines: list[dict[str, Any]]) -> None:
    table = Table("node", "scheduler", "class", "allocated", "releasing", "granted", "remainder")
    for line in lines:
        table.add_row(
            line["node"], line["scheduler"] or "-", line["class"],
            *(
                f"{line[f'{name}_cpu_milli']}m {line[f'{name}_memory_bytes'] >> 20} MiB"
                for name in ("allocated", "releasing", "granted", "remainder")
            ),
        )  # fmt: skip
    width = None if sys.stdout.isatty() else WIDE
    Console(soft_wrap=True, width=width).print(table)


def _view(brokers: str, prefix: str) -> View:
    """What the logs say now; without them it says so and ends with 2."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        return asyncio.run(_read(check_brokers(brokers), prefix))
    except (ValueError, TimeoutError) as error:
        said = str(error) or f"no topics of {prefix!r} within {CONNECT_S:.0f} s at {brokers}"
        typer.echo(f"ledger: {said}; see --brokers and --prefix", err=True)
        raise typer.Exit(2) from None


def _check_node(view: View, node: str | None) -> None:
    known = sorted(view.desired.keys() | view.book.nodes.keys())
    if node is not None and node not in known:
        some = f"such as {', '.join(known[:3])}" if known else "none"
        typer.echo(f"ledger: nothing is known of node {node!r}; known: {some}", err=True)
        raise typer.Exit(1)


async def _end(brokers: str, prefix: str, ended: list[bytes]) -> None:
    log = LedgerLog(brokers, prefix)
    await log.start()
    try:
        await log.write([(key, None) for key in ended])
    finally:
        await log.stop()


async def _read(brokers: str, prefix: str) -> View:
    """Both logs to the ends that they have now. Raises TimeoutError."""
    view, source = View(), Source(brokers, prefix, 1.0)
    async with asyncio.timeout(CONNECT_S):
        await source.start()
    try:
        while not source.caught_up:
            for topic, record in await source.records(POLL_MS):
                _fold(view, topic, record)
    finally:
        await source.stop()
    return view


def _fold(view: View, topic: str, record: Any) -> None:
    view.saw(record.timestamp, mono_ms())
    try:
        if record.value is not None:
            codec.encoding_of(record.headers)
        if topic == "capacity":
            view.fold_capacity(record.key, record.value, record.timestamp)
        else:
            view.fold_ledger(
                record.key, record.value, record.partition, record.offset, record.timestamp
            )
    except BadRecord as error:
        logging.getLogger("slackwater.bridge").debug("%s %d: %s", topic, record.offset, error)
