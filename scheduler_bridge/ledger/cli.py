"""`slackwater ledger`: who holds and may hold what, by the logs as they stand now.

The entry point `ledger` of `slackwater.commands`. Reads, and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from scheduler_bridge.ledger.amounts import NOTHING, less
from scheduler_bridge.ledger.book import Held, NodeBook, figures
from scheduler_bridge.life import mono_ms
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.source import Source
from scheduler_bridge.view import View
from schemas import codec
from schemas.errors import BadRecord
from schemas.names import check_brokers

app = typer.Typer(help="Show what is lent to whom.", add_completion=False)
CONNECT_S = 10.0
POLL_MS = 200
CLASSES = {"batch": ("cpu_milli", "memory_bytes"), "mid": ("mid_cpu_milli", "mid_memory_bytes")}


@app.callback(invoke_without_command=True)
def show(
    brokers: Annotated[
        str, typer.Option(envvar="SLACKWATER_BROKERS", help="Kafka, host:port[,host:port].")
    ] = "127.0.0.1:9092",
    prefix: Annotated[
        str, typer.Option(envvar="SLACKWATER_PREFIX", help="What topic names begin with.")
    ] = "slackwater.",
    node: Annotated[str | None, typer.Option(help="This node only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a row.")] = False,
) -> None:
    """Show node, scheduler, class, what is held, releasing and granted, and what is left."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        view = asyncio.run(_read(check_brokers(brokers), prefix))
    except (ValueError, TimeoutError) as error:
        said = str(error) or f"no topics of {prefix!r} within {CONNECT_S:.0f} s at {brokers}"
        typer.echo(f"ledger: {said}; see --brokers and --prefix", err=True)
        raise typer.Exit(2) from None
    lines = rows(view, view.now_ms(mono_ms()), node)
    if as_json:
        for line in lines:
            typer.echo(orjson.dumps(line).decode())
    else:
        _print(lines)


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
    Console(soft_wrap=True).print(table)


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
