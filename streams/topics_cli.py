"""`slackwater topics`: create, list, read and document the topics of an installation."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import deque
from importlib.resources import files
from typing import Any

import orjson
import typer

from schemas import codec, generate
from schemas.errors import BadRecord
from schemas.ledger import home
from schemas.policy import Published, parse
from schemas.topics import BY_NAME, MINUTES, PARTITIONS, PREFIX, full_name
from streams import stages, topics_admin
from streams.topic_reader import POLL_MS, CannotRun, consumer, partitions_of, started, to_end

app = typer.Typer(help="Create, list, describe and read the topics.", no_args_is_help=True)
BROKERS = typer.Option(
    "127.0.0.1:9092", "--brokers", envvar="SLACKWATER_BROKERS", help="host:port[,host:port...]"
)
INSTALLED_PREFIX = typer.Option(
    PREFIX, "--prefix", envvar="SLACKWATER_PREFIX", help="What the names of all topics begin with."
)
_TAIL = 10
_HEAD_BYTES = 64


@app.callback()
def _quiet() -> None:
    """Create, list, describe and read the topics."""
    hush()


def hush() -> None:
    """Keep the client's own complaints out of a command's output: it says what matters itself."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def default_policy() -> str:
    """The shipped policy as text."""
    shipped = files("agents") / "policies" / "default.yaml"
    return shipped.read_text("utf-8") if shipped.is_file() else "name: default\n"


@app.command()
def create(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    partitions: int = typer.Option(PARTITIONS, min=1, max=1000, help="Fixed for good."),
    replication: int | None = typer.Option(None, min=1, help="Default: 3, or fewer if no more."),
) -> None:
    """Create all topics, the installation record and the default policy; existing ones stay."""
    text = default_policy()
    made = asyncio.run(topics_admin.create(brokers, prefix, partitions, replication, text))
    for name in made.created:
        typer.echo(f"created {name}")
    policy = "policy kept"
    if made.policy_written:
        policy = f"default policy published: {stages.told(Published(parse(text, '')))}"
    installation = made.installation
    typer.echo(
        f"{len(made.created)} created, {len(BY_NAME) - len(made.created)} kept; "
        f"incarnation {installation.incarnation}, {installation.partitions} partitions, "
        f"replication {made.replication}; {policy}"
    )


@app.command("list")
def list_(
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    as_json: bool = typer.Option(False, "--json", help="One JSON document."),
) -> None:
    """Show each topic as it is beside what it should be; exit 1 when one is missing or differs."""
    states = asyncio.run(topics_admin.states(brokers, prefix))
    if as_json:
        typer.echo(orjson.dumps(states, option=orjson.OPT_INDENT_2).decode())
    else:
        for state in states:
            typer.echo(_line(state))
    if any(_is_off(state) for state in states):
        raise typer.Exit(1)


@app.command()
def cat(
    topic: str = typer.Argument(help="Name in the table, without prefix: samples, commands, ..."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    from_beginning: bool = typer.Option(False, "--from-beginning", help="All that is kept."),
    follow: bool = typer.Option(False, "--follow", help="Go on with what comes, until Ctrl-C."),
    node: str | None = typer.Option(None, help="Only records keyed by this node."),
    limit: int | None = typer.Option(None, min=1, help="Stop after so many."),
) -> None:
    """Print records as JSON lines, whatever their encoding; by default the newest ten."""
    if topic not in BY_NAME:
        raise CannotRun(f"no topic {topic!r} in the table; there are: {', '.join(BY_NAME)}")
    reading = _Cat(brokers, prefix, topic, node)
    try:
        if from_beginning or follow:
            asyncio.run(reading.stream(limit, from_beginning=from_beginning, follow=follow))
        else:
            asyncio.run(reading.tail(limit or _TAIL))
    except BrokenPipeError:  # the reader of our output has gone: nothing left to do
        sys.stderr.close()


@app.command()
def doc() -> None:
    """Print the AsyncAPI 3.0 document of all topics."""
    typer.echo(generate.asyncapi_text(), nl=False)


@app.command()
def acls(prefix: str = INSTALLED_PREFIX) -> None:
    """Print the Kafka ACLs that the table implies, as JSON."""
    typer.echo(json.dumps(generate.acls(prefix), indent=1))


class _Cat:
    """One reading of one topic."""

    def __init__(self, brokers: str, prefix: str, topic: str, node: str | None) -> None:
        self.brokers = brokers
        self.topic = topic
        self.name = full_name(prefix, topic)
        self.node = node

    async def stream(self, limit: int | None, *, from_beginning: bool, follow: bool) -> None:
        left = limit
        async with started(consumer(self.brokers), self.brokers) as client:
            parts = await partitions_of(client, self.name)
            client.assign(parts)
            seek = client.seek_to_beginning if from_beginning else client.seek_to_end
            await seek(*parts)
            records = _follow(client) if follow else to_end(client, parts)
            async for record in records:
                if not self._wanted(record):
                    continue
                _emit(show(self.topic, record))
                if left is not None:
                    left -= 1
                    if left == 0:
                        return

    async def tail(self, limit: int) -> None:
        kept: dict[int, deque[Any]] = {}
        async with started(consumer(self.brokers), self.brokers) as client:
            parts = await partitions_of(client, self.name)
            client.assign(parts)
            if self.node is None:
                firsts = await client.beginning_offsets(parts)
                for part, end in (await client.end_offsets(parts)).items():
                    client.seek(part, max(firsts[part], end - limit))
            else:
                await client.seek_to_beginning(*parts)
            async for record in to_end(client, parts):
                if self._wanted(record):
                    kept.setdefault(record.partition, deque(maxlen=limit)).append(record)
        records = sorted(
            (record for part in kept.values() for record in part),
            key=lambda record: (record.timestamp, record.partition, record.offset),
        )
        for record in records[-limit:]:
            _emit(show(self.topic, record))

    def _wanted(self, record: Any) -> bool:
        if self.node is None:
            return True
        if self.topic == MINUTES:
            return (record.key or b"").startswith(orjson.dumps([self.node])[:-1] + b",")
        return home(record.key or b"") == self.node.encode()


async def _follow(client: Any) -> Any:
    while True:
        for records in (await client.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                yield record


def show(topic: str, record: Any) -> dict[str, Any]:
    """A record as a JSON document: where it is, and what it says or why it cannot be read."""
    key = record.key
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "log_ms": record.timestamp,
        "key": None if key is None else key.decode("utf-8", "backslashreplace"),
    }
    value = record.value
    if value is None:
        return shown | {"record": None}
    if not BY_NAME[topic].records:
        return shown | {"size_bytes": len(value), "head_hex": value[:_HEAD_BYTES].hex()}
    try:
        said = codec.read(topic, key, value, record.headers)
    except BadRecord as error:
        bad = {"reason": error.reason, "detail": error.detail, "size_bytes": len(value)}
        return shown | {"unreadable": bad | {"head_hex": value[:_HEAD_BYTES].hex()}}
    return shown | {"kind": type(said).__name__, "record": said}


def _emit(document: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document) + b"\n")
    sys.stdout.buffer.flush()


def _is_off(state: topics_admin.TopicState) -> bool:
    return bool(not state.exists or state.partitions != state.expected_partitions or state.differs)


def _line(state: topics_admin.TopicState) -> str:
    if not state.exists:
        return f"MISSING  {state.name}: `slackwater topics create` makes it"
    words = [f"{state.partitions} partitions"]
    if state.partitions != state.expected_partitions:
        words.append(f"EXPECTED {state.expected_partitions}")
    words += [f"{name} is {a}, EXPECTED {b}" for name, (a, b) in state.differs.items()]
    return f"{'DIFFERS' if _is_off(state) else 'ok':8} {state.name}: {'; '.join(words)}"


if __name__ == "__main__":
    app()
