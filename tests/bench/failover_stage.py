"""The stage of the failover proof: topics, a fleet under load, nodes with journals, workers.

`tests.bench.failover` and `tests.e2e.test_failover` play on it. Everything here blocks, for all
that moves is in processes of its own; `close` ends them.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DeleteGroupsRequest

from schemas.topics import full_name
from streams import images
from streams.topics_admin import create, installation_of
from tests.streams.fleet_kit import ROOT, WorkerProcess

POLL_S = 0.1
JOURNALS = "journals"


@dataclass(frozen=True, slots=True)
class Plan:
    """How large the stage is. ``rate`` 0: no load beside the nodes with journals."""

    nodes: int
    pods: int
    rate: int
    partitions: int
    lease_nodes: int = 12
    lease_pods: int = 10
    lease_speed: float = 60.0
    policy: str = "rollout: {stage: expand}\n"
    options: tuple[str, ...] = ()  # of each worker
    ready_s: float = 120.0


class Stage:
    """One installation under its own prefix, with all that runs on it."""

    def __init__(self, brokers: str, prefix: str, plan: Plan, folder: Path) -> None:
        self.brokers, self.prefix, self.plan, self.folder = brokers, prefix, plan, folder
        self.workers: list[WorkerProcess] = []
        self.summaries: dict[str, dict[str, Any]] = {}
        self._fleets: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0
        folder.mkdir(parents=True, exist_ok=True)

    def open(self) -> None:
        """Topics, then the fleet: a loaded one, and nodes that obey and keep journals."""
        plan = self.plan
        asyncio.run(create(self.brokers, self.prefix, plan.partitions, 1, plan.policy))
        self._simulate(
            "lease", plan.lease_nodes, plan.lease_pods,
            "--speed", str(plan.lease_speed), "--state-dir", str(self.folder / JOURNALS),
        )  # fmt: skip
        if plan.rate:
            self._simulate("load", plan.nodes, plan.pods, "--rate", str(plan.rate))

    def close(self) -> None:
        """End everything, in whatever state it is; all are told before any is waited for."""
        for process in [*(worker.process for worker in self.workers), *self._fleets.values()]:
            if process.poll() is None:
                process.kill()
        for worker in self.workers:
            worker.kill()
        for process in self._fleets.values():
            process.communicate()

    def start_worker(self) -> WorkerProcess:
        """One more worker; its log is in the folder."""
        self._made += 1
        log = self.folder / f"worker-{self._made}.log"
        worker = WorkerProcess(self.brokers, self.prefix, log, *self.plan.options)
        self.workers.append(worker)
        return worker

    def until(self, what: str, condition: Callable[[], bool], within_s: float = 0.0) -> float:
        """Poll; returns the seconds it took. Fails with ``what`` and the tails of the logs."""
        begun = time.monotonic()
        while not condition():
            late = time.monotonic() - begun > (within_s or self.plan.ready_s)
            ended = [w.log.name for w in self.workers if w.process.poll() not in (None, 0, -9)]
            dead = [name for name, process in self._fleets.items() if process.poll() is not None]
            if late or ended or dead:
                tails = "\n".join(self._sight(worker) for worker in self.live())
                raise AssertionError(f"not {what}; workers {ended}, fleets {dead} ended\n{tails}")
            time.sleep(POLL_S)
        return time.monotonic() - begun

    @staticmethod
    def _sight(worker: WorkerProcess) -> str:
        """What a worker says of itself, and the tail of its log."""
        gates, lag = open_partitions(worker), worker.metric("lag_records")
        ready = worker.get("/readyz")[1].strip()
        return f"{worker.log.name}: open {gates}, behind {lag}, {ready}\n{worker.text[-1500:]}"

    def live(self) -> list[WorkerProcess]:
        """Workers that run (a stopped one counts)."""
        return [worker for worker in self.workers if worker.process.poll() is None]

    def shared(self) -> bool:
        """Every partition has one open owner, every live worker has some, little is behind."""
        gates = [open_partitions(worker) for worker in self.live()]
        if not all(gates) or sorted(p for each in gates for p in each) != self._all:
            return False
        return all(worker.ready for worker in self.live()) and self._behind() <= self._little

    def followed(self) -> bool:
        """Everything that is in the log has been folded."""
        return self._behind() == 0

    def imaged(self) -> bool:
        """Every worker has cut two images a partition: it runs as it does for ever."""
        return all(w.metric("images_total") >= 2 * len(open_partitions(w)) for w in self.live())

    @property
    def _all(self) -> list[int]:
        return list(range(self.plan.partitions))

    @property
    def _little(self) -> int:
        return 2 * (self.plan.rate + self.plan.lease_nodes) + 4 * self.plan.partitions

    def _behind(self) -> float:
        return sum(worker.metric("lag_records") for worker in self.live())

    def end_fleet(self) -> None:
        """The fleet ends in order: what it says it sent, Kafka has."""
        for process in self._fleets.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._fleets.items():
            said, _ = process.communicate(timeout=60)
            self.summaries[name] = orjson.loads(said)
        self._fleets.clear()

    def end_workers(self) -> list[int]:
        """SIGTERM all; the exit codes."""
        ending = self.live()
        for worker in ending:
            worker.process.terminate()
        for worker in ending:
            worker.process.wait(30.0)
        return [worker.end() for worker in ending]

    @property
    def journals(self) -> list[Path]:
        """Of every node that keeps one, older parts included."""
        return sorted((self.folder / JOURNALS).glob("*/journal*.jsonl"))

    def ends(self, topic: str) -> dict[int, int]:
        """End offsets of a partitioned topic."""
        return asyncio.run(self._ends(topic))

    async def _ends(self, topic: str) -> dict[int, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.brokers, enable_auto_commit=False)
        await consumer.start()
        try:
            ends = await consumer.end_offsets(self._where(topic))
            return {where.partition: int(end) for where, end in ends.items()}
        finally:
            await consumer.stop()

    def _where(self, topic: str) -> list[TopicPartition]:
        name = full_name(self.prefix, topic)
        return [TopicPartition(name, partition) for partition in self._all]

    def reset_group(self, offsets: dict[int, int]) -> None:
        """Commit other offsets, as an operator might; waits until the killed members are out."""
        self.until("reset of the group", lambda: asyncio.run(self._reset(offsets)), 40.0)

    async def _reset(self, offsets: dict[int, int]) -> bool:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.brokers, group_id=self._group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            where = {w: offsets[w.partition] for w in self._where("samples")}
            consumer.assign(list(where))
            await consumer.commit(where)
        except KafkaError:
            return False
        finally:
            await consumer.stop()
        return await self._committed() == offsets

    def forget_group(self) -> None:
        """Delete the group with its offsets."""
        self.until("deletion of the group", lambda: asyncio.run(self._delete_group()), 40.0)

    async def _delete_group(self) -> bool:
        client = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await client.start()
        try:
            coordinator = await client.find_coordinator(self._group)
            answer = await client._send_request(DeleteGroupsRequest([self._group]), coordinator)
            return all(code == 0 for _, code in answer.results) and not await self._committed()
        except KafkaError:
            return False
        finally:
            await client.close()

    async def _committed(self) -> dict[int, int]:
        client = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await client.start()
        try:
            offsets = await client.list_consumer_group_offsets(self._group)
            return {where.partition: found.offset for where, found in offsets.items()}
        finally:
            await client.close()

    @property
    def _group(self) -> str:
        return f"{self.prefix}worker"

    def empty(self, topic: str) -> None:
        """Delete all records of a partitioned topic."""
        asyncio.run(self._empty(topic))

    async def _empty(self, topic: str) -> None:
        ends = await self._ends(topic)
        client = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await client.start()
        try:
            await client.delete_records(
                {w: RecordsToDelete(before_offset=ends[w.partition]) for w in self._where(topic)}
            )
        finally:
            await client.close()

    def write_bad_images(self) -> None:
        """Into each partition, newer than every image (`bad_images`)."""
        ends = self.ends("samples")
        installed = asyncio.run(installation_of(self.brokers, self.prefix))
        assert installed is not None
        asyncio.run(self._write(list(bad_images(ends, installed.incarnation))))

    async def _write(self, records: list[tuple[int, bytes]]) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.brokers, max_request_size=2 << 20, max_batch_size=2 << 20
        )
        await producer.start()
        try:
            name = full_name(self.prefix, "images")
            for partition, raw in records:
                await producer.send_and_wait(name, raw, partition=partition, headers=images.HEADERS)
        finally:
            await producer.stop()

    def _simulate(self, name: str, nodes: int, pods: int, *options: str) -> None:
        run = "from node_agent.simulate.cli import app; app()"
        command = [sys.executable, "-c", run, "--brokers", self.brokers, "--prefix", self.prefix]
        command += ["--nodes", str(nodes), "--pods", str(pods), "--node-prefix", name, "--json"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._fleets[name] = subprocess.Popen(
                [*command, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=log
            )


def bad_images(ends: dict[int, int], incarnation: int) -> Iterable[tuple[int, bytes]]:
    """(partition, record) of images that claim to be the newest: a half one, one with a chunk that
    is not what its checksum says, and two whose chunks do not make the whole they promise.
    """
    rng = np.random.default_rng(1)
    noise = [rng.integers(0, 255, 1_000_000, dtype=np.uint8) for _ in range(2)]
    for partition, end in ends.items():
        meta = {"partition": partition, "incarnation": incarnation}

        def pack(cut: str, which: int, meta: images.Meta = meta, at: int = end - 1) -> list[bytes]:
            return images.pack(cut, at, incarnation, meta, {"noise": noise[which]})

        half, broken = pack("half", 0), pack("broken", 0)
        assert len(half) > 1, "half an image needs two chunks"
        yield partition, half[0]
        yield partition, broken[0][:-1] + bytes([broken[0][-1] ^ 1])
        for cut in ("mixed-1", "mixed-2"):
            yield partition, pack(cut, 0)[0]
            yield partition, pack(cut, 1)[1]


def open_partitions(worker: WorkerProcess) -> list[int]:
    """The partitions whose gate is open at a worker."""
    return sorted(
        int(line.split('partition="')[1].split('"')[0])
        for line in worker.get("/metrics")[1].splitlines()
        if line.startswith("slackwater_gate_open{") and line.endswith(" 1.0")
    )
