"""`slackwater slis`: ask a Prometheus how services fare, and say it on topic `slis`.

One round a period, at whole multiples of it, so that two of these say the same of the same moment
and count once. What is not answered is not said: silence is a gap, and a gap moves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import typer
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas import codec
from schemas.names import check_brokers
from schemas.records import Sli
from schemas.topics import full_name
from streams import logs
from streams.slis_prometheus import BadAnswer, Prometheus
from streams.slis_queries import Queries, Service, read
from streams.slis_sums import slis_of
from streams.topic_reader import CannotRun, producer, started
from streams.topics_cli import BROKERS, INSTALLED_PREFIX

log = logging.getLogger("slackwater.slis")
app = typer.Typer(help="Say what a Prometheus knows of online services.", add_completion=False)
LONGEST_S = 10.0
Tell = Callable[[list[Sli]], Awaitable[None]]


class Rounds:
    """Asks for every service; complaints are logged when they are new, and when they end."""

    def __init__(self, prometheus: Prometheus, queries: Queries) -> None:
        self.prometheus = prometheus
        self.queries = queries
        self.complaints: set[str] = set()

    async def one(self, at_s: float) -> list[Sli]:
        """What every service is told to be at ``at_s`` (Unix time)."""
        answers = await asyncio.gather(
            *(self._of(service, at_s) for service in self.queries.services)
        )
        found = [said for slis, _ in answers for said in slis]
        self._complain({text for _, wrong in answers for text in wrong})
        return found

    async def _of(self, service: Service, at_s: float) -> tuple[list[Sli], list[str]]:
        names = ("p99", "requests", "errors", *service.more)
        queries = [
            service.p99.query, service.requests.query, service.errors.query,
            *(part.query for part in service.more.values()),
        ]  # fmt: skip
        values = await asyncio.gather(
            *(self.prometheus.ask(query, at_s, service.node_label) for query in queries),
            return_exceptions=True,
        )
        good, wrong = [], []
        for name, value in zip(names, values, strict=True):
            if isinstance(value, BadAnswer):
                wrong.append(f"{service.workload} {name}: {value}")
            elif isinstance(value, BaseException):
                raise value
            else:
                good.append(value)
        if wrong:
            return [], wrong
        p99, requests, errors, *others = good
        more = dict(zip(service.more, others, strict=True))
        return slis_of(service, p99, requests, errors, round(at_s * 1000), more)

    def _complain(self, now: set[str]) -> None:
        for text in sorted(now - self.complaints):
            log.warning("%s", text)
        if self.complaints and not now:
            log.info("every service is heard of again")
        self.complaints = now


@app.callback(invoke_without_command=True)
def run(
    prometheus: str = typer.Option(help="Base of the API, such as http://127.0.0.1:9090."),
    queries: Path = typer.Option(help="What to ask of which service (YAML)."),
    every_s: int = typer.Option(5, min=1, max=3600, help="Seconds between rounds."),
    token_file: Path | None = typer.Option(None, help="A bearer token, read at each request."),
    once: bool = typer.Option(False, "--once", help="One round, then end."),
    as_json: bool = typer.Option(False, "--json", help="Print records, publish none."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    level: str = typer.Option("info", help="debug, info, warning or error."),
) -> None:
    """Ask, publish, wait, until Ctrl-C or SIGTERM."""
    logs.set_up(level)
    asked = read(queries)
    api = Prometheus(prometheus, min(float(every_s), LONGEST_S), token_file)
    rounds = Rounds(api, asked)
    if as_json:
        said = uvloop.run(_loop(rounds, every_s, _printed, once=once))
    else:
        topic = full_name(prefix, "slis")
        said = uvloop.run(publish(rounds, every_s, check_brokers(brokers), topic, once=once))
    if once and not said:
        told = "; ".join(sorted(rounds.complaints)) or "no query names a node"
        raise CannotRun(f"nothing to say: {told}")


async def publish(rounds: Rounds, every_s: int, brokers: str, topic: str, *, once: bool) -> int:
    """Rounds into the topic; how many records were said."""
    async with started(producer(brokers), brokers) as client:

        async def tell(found: list[Sli]) -> None:
            await _send(client, topic, found)

        return await _loop(rounds, every_s, tell, once=once)


async def _loop(rounds: Rounds, every_s: int, tell: Tell, *, once: bool) -> int:
    """Rounds until told to end; how many records were told of."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    told = 0
    await rounds.prometheus.start()
    try:
        while not stop.is_set():
            at_s = time.time() // every_s * every_s
            found = await rounds.one(at_s)
            await tell(found)
            told += len(found)
            if once:
                break
            await _until(stop, at_s + every_s)
    finally:
        await rounds.prometheus.close()
    return told


async def _until(stop: asyncio.Event, at_s: float) -> None:
    """Wait for a moment of the wall clock, or for the end."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), max(at_s - time.time(), 0.0))


async def _printed(found: list[Sli]) -> None:
    for said in found:
        typer.echo(orjson.dumps(said).decode())


async def _send(client: AIOKafkaProducer, topic: str, found: list[Sli]) -> None:
    """All of a round; a broker that is away costs this round."""
    try:
        sent = [
            await client.send(
                topic, codec.encode(said), said.node.encode(), headers=codec.JSON_HEADERS
            )
            for said in found
        ]
        await asyncio.gather(*sent)
    except KafkaError as error:
        log.warning("%d records were not said: %r", len(found), error)


if __name__ == "__main__":
    app()
