"""Commands as processes, and records for the second stage: shared by the tests of both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from schemas import codec
from schemas.records import Capacity, Cause, PartitionHealth, Reservation, Signal
from schemas.topics import full_name
from tests.streams.fleet_kit import ROOT, WorkerProcess

MAIN = "import sys; from streams.cli import run; sys.exit(run(sys.argv[1:]))"
Done = subprocess.CompletedProcess[str]


def command(*arguments: str) -> list[str]:
    """`slackwater ARGUMENTS` as it is run."""
    return [sys.executable, "-c", MAIN, *arguments]


def environment(broker: str, prefix: str) -> dict[str, str]:
    return os.environ | {"SLACKWATER_BROKERS": broker, "SLACKWATER_PREFIX": prefix}


def opened(broker: str, prefix: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that goes on, with pipes for what it says."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(broker, prefix),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class Slackwater:
    """The command line against one broker and prefix, both by environment."""

    def __init__(self, broker: str, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix

    def __call__(self, *arguments: str, timeout_s: float = 30.0) -> Done:
        return subprocess.run(
            command(*arguments),
            env=environment(self.broker, self.prefix),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def good(self, *arguments: str) -> str:
        """Standard output of a command that must succeed and complain of nothing."""
        done = self(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """The one line of a command that must fail."""
        done = self(*arguments)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr.startswith("slackwater: ")
        assert done.stderr.count("\n") == 1
        return done.stderr


class StageProcess(WorkerProcess):
    """A `slackwater fleet` of its own process."""

    def __init__(self, bootstrap: str, prefix: str, log: Path) -> None:
        self.log = log
        self._from = log.stat().st_size if log.exists() else 0
        self._file = log.open("ab")
        self.process = subprocess.Popen(
            command("fleet"),
            env=environment(bootstrap, prefix),
            cwd=ROOT,
            stdout=self._file,
            stderr=self._file,
        )


class Teller:
    """Says what workers would say: partition health, capacity, reservations, signals."""

    def __init__(
        self, producer: AIOKafkaProducer, prefix: str, incarnation: int, count: int
    ) -> None:
        self._producer = producer
        self._prefix = prefix
        self._partitions = list(range(count))
        self._choose = DefaultPartitioner()
        self.incarnation = incarnation

    async def send(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] = tuple(codec.JSON_HEADERS),
    ) -> Any:
        return await self._producer.send_and_wait(
            full_name(self._prefix, topic), value, key, partition, headers=list(headers)
        )

    def partition_of(self, node: str) -> int:
        return int(self._choose(node.encode(), self._partitions, self._partitions))

    def cause(self, partition: int, offset: int, log_ms: int) -> Cause:
        return Cause(self.incarnation, partition, offset, log_ms, "digest", 1)

    async def health(self, partition: int, nodes: int, ill: int = 0, wanted: int = 0) -> Any:
        health = PartitionHealth(self.cause(partition, 0, 0), nodes, 0, ill, wanted)
        return await self.send("fleet", f"partition/{partition}".encode(), codec.encode(health))

    async def capacity(self, node: str, offset: int, log_ms: int, milli: int) -> None:
        cause = self.cause(0, offset, log_ms)
        await self._of_node("capacity", node, Capacity(node, cause, milli, 1 << 30, "rose"))

    async def reservation(self, node: str, offset: int, log_ms: int, usage: int) -> None:
        cause = self.cause(0, offset, log_ms)
        lines = {"limit": 9_000, "usage": usage, "short": usage + 10, "long": usage + 20}
        memory = {"limit": 1 << 34, "usage": 1 << 33, "short": 1 << 33, "long": 1 << 33}
        record = Reservation(node, cause, 1_000, lines, memory)
        await self._of_node("reservations", node, record)

    async def signal(self, node: str, offset: int, log_ms: int, score: int | None) -> None:
        cause = self.cause(0, offset, log_ms)
        ill = (score or 0) > 6_000
        record = Signal(node, cause, ill, ("a", "b"), [1, None], [1, None], [score, None])
        await self._of_node("signals", node, record)

    async def _of_node(self, topic: str, node: str, record: Any) -> None:
        where = self.partition_of(node)
        await self.send(topic, node.encode(), codec.encode(record), where)


@asynccontextmanager
async def teller(
    bootstrap: str, prefix: str, incarnation: int, partitions: int
) -> AsyncIterator[Teller]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        yield Teller(producer, prefix, incarnation, partitions)
    finally:
        await producer.stop()
