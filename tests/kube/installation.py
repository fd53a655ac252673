"""One installation as processes: worker, second stage, and what the bridge runs, on a real broker.

`tests.kube.test_end_to_end` plays on it. Each process has a log of its own and must end well.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer

from schemas import codec
from schemas.topics import full_name
from streams.topics_admin import create
from tests.streams.fleet_kit import ROOT, WorkerProcess, end, is_ready, until
from tests.support import patient

PARTITIONS = 2
READY_WITHIN_S = 120.0
ENDS_WITHIN_S = 20.0
COMMAND = "from streams.cli import main; main()"
TAIL = 2_000
T = TypeVar("T")


@dataclass(slots=True)
class Installation:
    """Where it is, and what runs of it, by name."""

    brokers: str
    prefix: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, name: str, *words: str) -> None:
        """Start `slackwater WORDS` on this installation; its log is NAME.log in the folder."""
        command = [sys.executable, "-c", COMMAND, *words, "--brokers", self.brokers]
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*command, "--prefix", self.prefix], cwd=ROOT, stdout=log, stderr=log
            )

    def log(self, name: str) -> Path:
        """Where a process writes."""
        return self.folder / f"{name}.log"

    async def says(self, name: str, words: str) -> None:
        """Wait until its log has these words."""

        def has() -> bool:
            text = self.log(name).read_text()
            ended = self.processes[name].poll()
            assert ended is None, f"{name} ended with {ended}:\n{text[-TAIL:]}"
            return words in text

        await until(has, patient(READY_WITHIN_S), f"{words!r} in the log of {name}")

    async def close(self) -> dict[str, int]:
        """End all, told at once; the exit codes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        return {name: await asyncio.to_thread(_end, one) for name, one in self.processes.items()}

    def tails(self) -> str:
        """The last of every log, for a failure."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-TAIL:]}" for log in logs)


@asynccontextmanager
async def installed(
    brokers: str, prefix: str, policy: str, folder: Path
) -> AsyncIterator[Installation]:
    """Topics, policy, one worker and the second stage; all must end in order."""
    await create(brokers, prefix, PARTITIONS, 1, policy)
    one = Installation(brokers, prefix, folder)
    worker = WorkerProcess(brokers, prefix, folder / "worker.log")
    try:
        one.run("fleet", "fleet")
        began = time.monotonic()
        await until(lambda: is_ready(worker), patient(READY_WITHIN_S), "a worker that is ready")
        await one.says("fleet", "fleet runs")
        print(f"installed in {time.monotonic() - began:.1f} s")
        yield one
        codes = {"worker": await end(worker), **await one.close()}
        assert not any(codes.values()), f"{codes}\n{one.tails()}"
    finally:
        worker.kill()
        for process in one.processes.values():
            process.kill()
            process.wait()


def _end(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@dataclass(slots=True)
class Heard:
    """What was said so far: topic of the table, key, record (None: taken back)."""

    consumer: Any
    names: dict[str, str]
    records: list[tuple[str, bytes, Any]] = field(default_factory=list)

    async def until(self, true: Callable[[], bool], what: str, within_s: float) -> None:
        """Read on until it is so."""
        deadline = time.monotonic() + patient(within_s)
        while not true():
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
            for place, records in (await self.consumer.getmany(timeout_ms=50)).items():
                topic = self.names[place.topic]
                for each in records:
                    said = None
                    if each.value is not None:
                        said = codec.read(topic, each.key, each.value, each.headers)
                    self.records.append((topic, each.key, said))

    def under(self, topic: str, key: bytes) -> list[Any]:
        """Everything said under a key, the newest last."""
        return [said for where, own, said in self.records if (where, own) == (topic, key)]

    def of(self, kind: type[T]) -> list[T]:
        """Records of this kind, the newest last."""
        return [said for _, _, said in self.records if isinstance(said, kind)]


@asynccontextmanager
async def listening(one: Installation, *topics: str) -> AsyncIterator[Heard]:
    """All of these topics, from their beginnings."""
    names = {full_name(one.prefix, topic): topic for topic in topics}
    consumer = AIOKafkaConsumer(
        *names,
        bootstrap_servers=one.brokers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )
    await consumer.start()
    try:
        yield Heard(consumer, names)
    finally:
        await consumer.stop()
