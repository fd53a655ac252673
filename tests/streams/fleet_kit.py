"""A small fleet for the worker's tests: topics, nodes that send samples, worker processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.partitioner import DefaultPartitioner

from schemas import codec, packed
from schemas.columns import FAST_NODE_COLUMNS, FAST_POD_COLUMNS
from schemas.records import Inventory, NodeSample, PodFact
from schemas.topics import full_name
from streams.topics_admin import create

ROOT = Path(__file__).resolve().parents[2]
CORES_MILLI = 16_000
GIB = 1 << 30


class Node:
    """One simulated node: counters that grow, a best-effort pod and an online pod."""

    def __init__(self, name: str, boot: int = 1, pods: int = 2) -> None:
        self.name = name
        self.boot = f"{boot:032x}"
        self.seq = 0
        self.pods = pods
        self.online_milli = 2_000
        self.best_effort_milli = 1_000
        self._us = dict.fromkeys(("busy", "be", *map(str, range(pods))), 0)
        self._mono_us = 1_000_000

    def inventory(self) -> Inventory:
        facts = [
            PodFact(
                uid=f"{self.name}-pod-{i}",
                name=f"pod-{i}",
                qos="BE" if i == 0 else "LS",
                priority_class="batch" if i == 0 else "prod",
                priority=5_000 if i == 0 else 9_000,
                cpu_request_milli=1_000,
                memory_request_bytes=GIB,
            )
            for i in range(self.pods)
        ]
        return Inventory(self.name, 1, CORES_MILLI, 64 * GIB, pods=tuple(facts))

    def sample(self, period_ms: int = 1_000) -> NodeSample:
        """The next sample, one period later."""
        self.seq += 1
        self._mono_us += period_ms * 1_000
        online = max(self.pods - 1, 1)
        for i in range(self.pods):
            milli = self.best_effort_milli if i == 0 else self.online_milli // online
            self._us[str(i)] += milli * period_ms
        self._us["be"] += self.best_effort_milli * period_ms
        self._us["busy"] += (self.online_milli + self.best_effort_milli + 200) * period_ms
        said: dict[str, int | None] = dict.fromkeys(FAST_NODE_COLUMNS, 0)
        said |= {
            "cpu_busy_us": self._us["busy"],
            "be_cpu_usage_us": self._us["be"],
            "be_cpu_quota_milli": -1,
            "memory_total_bytes": 64 * GIB,
            "memory_available_bytes": 40 * GIB,
        }
        pod_columns: dict[str, list[int | None]] = {n: [0] * self.pods for n in FAST_POD_COLUMNS}
        pod_columns["cpu_usage_us"] = [self._us[str(i)] for i in range(self.pods)]
        pod_columns["memory_used_bytes"] = [GIB] * self.pods
        return NodeSample(
            node=self.name,
            boot=self.boot,
            kernel_boot="0" * 32,
            seq=self.seq,
            mono_us=self._mono_us,
            wall_ms=0,
            period_ms=period_ms,
            pods_rev=1,
            pods=self.pods,
            node_columns=said,
            pod_columns=pod_columns,
        )


class Fleet:
    """Nodes on real topics."""

    def __init__(self, bootstrap: str, prefix: str, partitions: int, nodes: int) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.partitions = partitions
        self.nodes = [Node(f"node-{i:04d}") for i in range(nodes)]
        self.acknowledged: dict[int, int] = dict.fromkeys(range(partitions), -1)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=2
        )
        self._all = list(range(partitions))
        self._partitioner = DefaultPartitioner()

    async def start(self) -> None:
        await create(self.bootstrap, self.prefix, self.partitions, 1, "rollout: {stage: expand}\n")
        await self._producer.start()
        for node in self.nodes:
            await self.send(
                "inventory", node.name.encode(), codec.encode(node.inventory()), codec.JSON_HEADERS
            )

    async def stop(self) -> None:
        await self._producer.stop()

    def partition_of(self, node: str) -> int:
        return int(self._partitioner(node.encode(), self._all, self._all))

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        partition: int | None = None,
    ) -> Any:
        where = self.partition_of(key.decode()) if partition is None and key else partition
        sent = await self._producer.send_and_wait(
            full_name(self.prefix, topic), value, key=key, partition=where, headers=headers
        )
        if topic == "samples":
            self.acknowledged[sent.partition] = max(self.acknowledged[sent.partition], sent.offset)
        return sent

    async def round(self, period_ms: int = 1_000) -> None:
        """One sample of every node, acknowledged."""
        await asyncio.gather(
            *(
                self.send(
                    "samples",
                    node.name.encode(),
                    packed.encode(node.sample(period_ms)),
                    codec.PACKED_HEADERS,
                )
                for node in self.nodes
            )
        )

    async def keep_sending(self, every_s: float) -> None:
        """Rounds until cancelled, with the online load going up and down."""
        turn = 0
        while True:
            turn += 1
            for node in self.nodes:
                node.online_milli = 2_000 + 6_000 * (turn // 10 % 2)
            await self.round(int(every_s * 1000))
            await asyncio.sleep(every_s)


@asynccontextmanager
async def fleet(
    bootstrap: str, prefix: str, partitions: int = 2, nodes: int = 6
) -> AsyncIterator[Fleet]:
    one = Fleet(bootstrap, prefix, partitions, nodes)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


class WorkerProcess:
    """A `slackwater worker` of its own process; its log goes to a file."""

    def __init__(self, bootstrap: str, prefix: str, log: Path, *options: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "streams.worker_cli", "--brokers", bootstrap]
        command += ["--prefix", prefix, "--image-interval", "2", *options]
        self._from = log.stat().st_size if log.exists() else 0
        self._file = log.open("ab")
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=self._file, stderr=self._file, env={**os.environ}
        )

    @property
    def text(self) -> str:
        return self.log.read_bytes()[self._from :].decode(errors="replace")

    @property
    def base(self) -> str:
        found = re.search(r"metrics and health on (http://\S+)", self.text)
        return found.group(1) if found else ""

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 when nobody answers."""
        if not self.base:
            return 0, ""
        try:
            with urllib.request.urlopen(self.base + path, timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str, **labels: str) -> float:
        """Sum over the series of a metric that carry these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if not line.startswith(f"slackwater_{name}"):
                continue
            head, value = line.rsplit(" ", 1)
            bare = head.split("{")[0]
            fits = all(f'{key}="{text}"' in head for key, text in labels.items())
            if bare == f"slackwater_{name}" and fits:
                total += float(value)
        return total

    @property
    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout_s: float = 15.0) -> int:
        """SIGTERM and the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self._wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.poll() is None:
            self.process.kill()
        self._wait(5)

    def _wait(self, timeout_s: float) -> int:
        self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._file.close()


async def until(
    condition: Callable[[], bool | Awaitable[bool]], timeout_s: float, what: str
) -> None:
    """Poll a condition; fail with ``what`` at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if not isinstance(answer, bool):
            answer = await answer
        if answer:
            return
        assert time.monotonic() < deadline, f"after {timeout_s} s: not {what}"
        await asyncio.sleep(0.1)


async def read_all(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """Every record of a topic up to its end now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        where = [TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(where)
        ends = await consumer.end_offsets(where)
        await consumer.seek_to_beginning(*where)
        found: list[Any] = []
        while any([await consumer.position(w) < ends[w] for w in where]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


async def is_ready(worker: WorkerProcess) -> bool:
    """Asked in a thread: the fleet goes on sending meanwhile."""
    return await asyncio.to_thread(lambda: worker.ready)


async def metric(worker: WorkerProcess, name: str, **labels: str) -> float:
    return await asyncio.to_thread(lambda: worker.metric(name, **labels))


@asynccontextmanager
async def sending(fleet: Fleet, every_s: float = 0.2) -> AsyncIterator[None]:
    """Samples flow while the block runs."""
    task = asyncio.create_task(fleet.keep_sending(every_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def end(worker: WorkerProcess) -> int:
    """Stop in order, without holding the loop."""
    return await asyncio.to_thread(worker.end)


async def log_ends(fleet: Fleet, topic: str = "samples") -> dict[int, int]:
    """End offset of each partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=fleet.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        name = full_name(fleet.prefix, topic)
        ends = await consumer.end_offsets(
            [TopicPartition(name, p) for p in range(fleet.partitions)]
        )
        return {where.partition: int(end) for where, end in ends.items()}
    finally:
        await consumer.stop()


async def committed(fleet: Fleet) -> dict[int, int]:
    """What the workers' group has committed."""
    client = AIOKafkaAdminClient(bootstrap_servers=fleet.bootstrap)
    await client.start()
    try:
        offsets = await client.list_consumer_group_offsets(f"{fleet.prefix}worker")
        return {where.partition: found.offset for where, found in offsets.items()}
    finally:
        await client.close()


async def reset_group(fleet: Fleet, offsets: dict[int, int]) -> None:
    """Commit other offsets for the (stopped) workers' group, as an operator might."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=fleet.bootstrap,
        group_id=f"{fleet.prefix}worker",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        name = full_name(fleet.prefix, "samples")
        where = {TopicPartition(name, p): offset for p, offset in offsets.items()}
        consumer.assign(list(where))
        await consumer.commit(where)
    finally:
        await consumer.stop()


async def delete_before(fleet: Fleet, topic: str, offsets: dict[int, int]) -> None:
    """What retention does, now."""
    client = AIOKafkaAdminClient(bootstrap_servers=fleet.bootstrap)
    await client.start()
    try:
        name = full_name(fleet.prefix, topic)
        await client.delete_records(
            {
                TopicPartition(name, p): RecordsToDelete(before_offset=offset)
                for p, offset in offsets.items()
            }
        )
    finally:
        await client.close()
