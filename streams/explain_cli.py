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
from schemas.records import LEASE_KEY
from schemas.topics import full_name
from streams.explain import Line, Reading, told, versions_of
from streams.policy_gate import digest_of
from streams.topic_reader import CannotRun, span_of_key
from streams.topics_admin import DEFAULT_POLICY, policy_versions
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

app = typer.Typer(help="Say why a node is treated as it is.")
TOPICS = ("commands", "capacity", "decisions")
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
    """Print the newest decision of each decider about a node: what, from which figures, and why."""
    hush()
    if not NODE_NAME.fullmatch(node):
        raise CannotRun(f"{node!r:.80} is no node name")
    at_ms = moment(at)
    lines = asyncio.run(_lines(brokers, prefix, node, at_ms, minutes * MINUTE_MS))
    if as_json:
        document = {"node": node, "at_ms": at_ms, "decisions": lines}
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    elif lines:
        typer.echo("\n".join(told(line) for line in lines))
    if not lines:
        raise CannotRun(
            f"no decision about node {node} in the {minutes} minutes before that: look further "
            "back with --minutes; a node in stage observe, or one that nobody knows, has none"
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


async def _lines(brokers: str, prefix: str, node: str, at_ms: int, look_back_ms: int) -> list[Line]:
    reading = Reading(node, at_ms)
    for topic in TOPICS:
        span = (at_ms - look_back_ms, at_ms + LATE_MS)
        name = full_name(prefix, topic)
        async for record in span_of_key(brokers, name, node.encode(), span):
            said = _read(topic, record)
            if said is not None:
                reading.note(said)
    versions = await policy_versions(brokers, prefix, DEFAULT_POLICY)
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
