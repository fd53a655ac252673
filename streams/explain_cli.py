"""`slackwater explain NODE`: why a node is treated as it is, from the audit log alone."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import orjson
import typer

from schemas import codec
from schemas.errors import BadRecord
from schemas.names import NODE_NAME
from schemas.policy import published
from schemas.records import LEASE_KEY, PolicyRecord
from schemas.topics import full_name
from streams import stages
from streams.explain import Line, Reading, told, versions_of
from streams.policy_files import inventory_of
from streams.policy_gate import digest_of, newest_good
from streams.policy_text import on_node
from streams.topic_reader import CannotRun, span_of_key
from streams.topics_admin import DEFAULT_POLICY, policy_versions
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(help="Say why a node is treated as it is.")
TOPICS = ("commands", "capacity", "decisions")
QUIET = ("observe", stages.CONTROL)
"""Stages in which nothing may have been decided about a node."""
MINUTE_MS = 60_000
LATE_MS = 60_000
"""Records are appended so much later than the log time they carry, at most."""


@app.command()
def explain(
    node: str = typer.Argument(help="Its name."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    at: str = typer.Option("", "--at", help="UTC, as 2026-01-31T12:00:00, or log ms; default now."),
    minutes: int = typer.Option(60, min=1, max=10_080, help="How far to look back."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Print the newest decision of each decider about a node: what, from which figures, and why.

    Before them the stage that the node is in now; one that only observes may have no decision.
    """
    hush()
    if not NODE_NAME.fullmatch(node):
        raise CannotRun(f"{node!r:.80} is no node name")
    at_ms = moment(at)
    versions = asyncio.run(policy_versions(brokers, prefix, DEFAULT_POLICY))
    lines = asyncio.run(_lines(brokers, prefix, node, at_ms, minutes * MINUTE_MS, versions))
    stage, means = asyncio.run(_stage(brokers, prefix, node, versions))
    if as_json:
        document = {"node": node, "at_ms": at_ms, "stage": means, "decisions": lines}
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo("\n".join([f"{node} now: {means}", *(told(line) for line in lines)]))
    if not lines and stage not in QUIET:
        raise CannotRun(
            f"no decision about node {node} in the {minutes} minutes before that: look further "
            "back with --minutes; one that nobody knows has none"
        )


def moment(text: str) -> int:
    """Log time in ms from what `--at` says. Raises CannotRun."""
    if not text:
        return time.time_ns() // 1_000_000
    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise CannotRun(f"--at {text!r}: write 2026-01-31T12:00:00, or milliseconds") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp()) * 1000


async def _stage(
    brokers: str, prefix: str, node: str, versions: list[PolicyRecord]
) -> tuple[str, str]:
    """The stage of a node now, and in words; of the cluster where no inventory is left of it."""
    record = newest_good(versions)
    if record is None:
        return "", stages.NO_POLICY
    try:
        found = on_node(record, await inventory_of(brokers, prefix, node))
    except CannotRun:
        return "", f"it has no inventory; the fleet: {stages.told(published(record))}"
    return found.stage, found.means


async def _lines(
    brokers: str, prefix: str, node: str, at_ms: int, look_back_ms: int,
    versions: list[PolicyRecord],
) -> list[Line]:  # fmt: skip
    reading = Reading(node, at_ms)
    for topic in TOPICS:
        span = (at_ms - look_back_ms, at_ms + LATE_MS)
        name = full_name(prefix, topic)
        async for record in span_of_key(brokers, name, node.encode(), span):
            said = _read(topic, record)
            if said is not None:
                reading.note(said)
    known = versions_of((digest_of(each), each.version) for each in versions)
    return reading.lines(known)


def _read(topic: str, record: Any) -> Any:
    if record.value is None or record.key == LEASE_KEY:
        return None
    try:
        return codec.read(topic, record.key, record.value, record.headers)
    except BadRecord:
        return None  # `topics cat` shows what cannot be read


if __name__ == "__main__":
    app()
