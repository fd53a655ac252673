"""Bridges as processes, between a real Kafka and a real cluster, and what is done to them.

Used by `test_faults` (one of each) and by `tests.bench.kube_faults` (series). Every fault comes
with a change of what is desired; `settle` measures how long until every node shows it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from lightkube import AsyncClient
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from schemas import codec
from schemas.records import Capacity, Cause
from streams.dev_broker.process import Child
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.telling import GIB, NAMES, units, wipe
from tests.support import patient

log = logging.getLogger("faults")
POD_CPU, POD_MEMORY = 500, 1 << 20
LEASE = "bridges"
GONE_WITHIN_S = 60.0


async def make_topics(bootstrap: str, prefix: str, partitions: int = 3) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        settings = {"message.timestamp.type": "LogAppendTime"}
        names = ("capacity", "ledger", "dead-letters")
        await admin.create_topics(
            [NewTopic(prefix + name, partitions, 1, topic_configs=settings) for name in names]
        )
    finally:
        await admin.close()


class Stage:
    """Two bridges, ``count`` nodes, a running batch pod on each of the first few."""

    def __init__(self, cluster: Cluster, bootstrap: str, prefix: str, folder: Path) -> None:
        self.cluster = cluster
        self.client: AsyncClient = cluster.client()
        self.nodes: list[str] = []
        self.bridges: list[Child] = []
        self.cpu_milli = 0
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._folder = folder
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._offset = 0
        self._pods: list[str] = []
        self._namespace = "default"

    async def __aenter__(self) -> Self:
        await make_topics(self._bootstrap, self._prefix)
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for bridge in self.bridges:
            bridge.kill()
        for pod in self._pods:
            await self.client.delete(Pod, pod, namespace=self._namespace, grace_period=0)
        for node in self.nodes:
            await self.client.delete(Node, node)
        await self.client.close()
        await self._producer.stop()

    async def begin(self, count: int = 12, pods: int = 4) -> None:
        """All stands, and is as it is desired."""
        for at in range(count):
            name = f"{self._prefix.rstrip('.')}-{at:03}"
            self.nodes.append(name)
            await objects.join_node(self.client, name)
        await self.say(4_000)
        for _ in range(2):
            self.start_bridge()
        await self.until_right(30.0)
        for at in range(pods):
            await self._run_pod(f"{self.nodes[at]}-pod", self.nodes[at])

    async def say(self, cpu_milli: int, *, new_work: bool = True) -> None:
        """From now on this is desired of every node, and half of it of mid."""
        self.cpu_milli = cpu_milli
        self._offset += 1
        cause = Cause(1, 0, self._offset, self._offset, "abc", 1)
        for node in self.nodes:
            record = Capacity(
                node, cause, cpu_milli, 4 * GIB, "usage", new_work,
                mid_cpu_milli=cpu_milli // 2, mid_memory_bytes=GIB,
            )  # fmt: skip
            await self._send("capacity", node, codec.encode(record))
        await self._producer.flush()

    def start_bridge(self) -> Child:
        number = len(list(self._folder.glob("bridge-*.log")))
        config = self.cluster.kubeconfig()
        command = [
            *(sys.executable, "-c", "from scheduler_bridge.cli import app; app()", "run"),
            *("--sink", "kubernetes", "--brokers", self._bootstrap, "--prefix", self._prefix),
            *("--kubeconfig", str(config), "--lease-namespace", "default"),
            *("--lease-name", LEASE + self._prefix.rstrip("."), "--rate", "100"),
        ]
        child = Child(command, self._folder / f"bridge-{number}.log", self.cluster._lock)
        self.bridges.append(child)
        return child

    async def leader(self) -> Child:
        """Whose process holds the lease; waits for one of ours that runs."""
        found: list[Child] = []

        async def holds() -> bool:
            name = LEASE + self._prefix.rstrip(".")
            lease = await self.client.get(Lease, name, namespace="default")
            holder = (lease.spec.holderIdentity if lease.spec else "") or ""
            found[:] = [one for one in self.bridges if f"_{one.pid}_" in holder and one.running]
            return bool(found)

        await objects.until(holds, "a bridge of ours leads", 20.0)
        return found[0]

    async def offered(self, node: str) -> int:
        """Batch millicores that a scheduler may hand out there, in all."""
        return units_of(await self.client.get(Node, node), NAMES[0])[1]

    async def is_right(self) -> bool:
        """Whether every node shows exactly what is desired, in all eight places."""
        want = (self.cpu_milli, 4 * GIB, self.cpu_milli // 2, GIB)
        right = 0
        async for node in self.client.list(Node):
            assert node.metadata is not None
            if node.metadata.name in self.nodes:
                right += all(
                    units_of(node, name) == (amount, amount)
                    for name, amount in zip(NAMES, want, strict=True)
                )
        return right == len(self.nodes)

    async def until_right(self, within_s: float) -> float:
        """Seconds until all is right; failures of the API server count as not right."""
        began = time.monotonic()
        while time.monotonic() - began < patient(within_s):
            try:
                if await self.is_right():
                    return time.monotonic() - began
            except Exception as error:  # noqa: BLE001 - the API server may be the one harmed
                log.debug("not right: %s", error)
            await asyncio.sleep(0.05)
        return float("inf")

    async def evicted(self) -> list[str]:
        """Batch pods that are not running any more."""
        lost = []
        for name in self._pods:
            pod = await self.client.get(Pod, name, namespace=self._namespace)
            assert pod.metadata is not None
            assert pod.status is not None
            if pod.metadata.deletionTimestamp is not None or pod.status.phase != "Running":
                lost.append(name)
        return lost

    async def _run_pod(self, name: str, node: str) -> None:
        asks = {NAMES[0]: POD_CPU, NAMES[1]: POD_MEMORY}
        pod = objects.new_pod(name, self._namespace, asks)
        assert pod.spec is not None
        pod.spec.nodeSelector = {"kubernetes.io/hostname": node}
        self._pods.append(name)
        made = await self.client.create(pod)
        bound = await objects.pod_becomes(self.client, made, objects.is_bound, "bound", 30.0)
        await objects.run_pod(self.client, bound)

    async def _send(self, topic: str, node: str, value: bytes) -> None:
        await self._producer.send(
            self._prefix + topic, value, key=node.encode(), headers=codec.JSON_HEADERS
        )


def units_of(node: Node, name: str) -> tuple[int, int]:
    """Capacity and allocatable of one name as integers; -1: not there."""
    first, second = (int(one.replace("k", "000")) if one else -1 for one in units(node, name))
    return first, second


async def wiped(stage: Stage, cpu_milli: int) -> None:
    """A kubelet of each node registers again: extended resources are zero."""
    await stage.say(cpu_milli)
    for node in stage.nodes:
        await wipe(stage.client, node)


async def api_server_restarted(stage: Stage, cpu_milli: int) -> None:
    """Killed while numbers change; counted from when it answers again."""
    stage.cluster.api_server.kill()
    await stage.say(cpu_milli)
    await asyncio.to_thread(stage.cluster.api_server.start)


async def watch_expired(stage: Stage, cpu_milli: int) -> None:
    """The past is forgotten while nobody is served: watches are answered 410, mirrors list."""
    await wipe(stage.client, stage.nodes[0])
    stage.cluster.compact()
    await asyncio.to_thread(stage.cluster.api_server.restart)
    await stage.say(cpu_milli)


async def leader_killed(stage: Stage, cpu_milli: int) -> None:
    """kill -9 of the bridge that leads; the other takes over. A new one stands by then."""
    leader = await stage.leader()
    await stage.say(cpu_milli)
    leader.kill()
    stage.bridges.remove(leader)
    stage.start_bridge()


async def leader_halted(stage: Stage, cpu_milli: int) -> None:
    """The leader is stopped past its lease, another leads and tells, then it wakes: a zombie."""
    leader = await stage.leader()
    leader.signal(signal.SIGSTOP)
    try:
        await stage.say(cpu_milli + 1_000)
        assert await stage.until_right(30.0) < patient(30.0)
        await stage.say(cpu_milli)
    finally:
        leader.signal(signal.SIGCONT)


@asynccontextmanager
async def conflict_storm(stage: Stage) -> AsyncIterator[None]:
    """Someone else writes the nodes all the time."""

    async def write(own: AsyncClient, nodes: list[str]) -> None:
        count = 0
        while True:
            for node in nodes:
                count += 1
                said = {"metadata": {"annotations": {"storm": str(count)}}}
                await own.patch(Node, node, said, patch_type=PatchType.MERGE)

    clients = [stage.cluster.client() for _ in range(4)]
    tasks = [asyncio.create_task(write(own, stage.nodes[at::2])) for at, own in enumerate(clients)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for own in clients:
            await own.close()
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


FAULTS: dict[str, Callable[[Stage, int], Awaitable[None]]] = {
    "wipe": wiped,
    "api_server_restart": api_server_restarted,
    "watch_expiry": watch_expired,
    "kill_9": leader_killed,
    "two_bridges": leader_halted,
}


async def play(stage: Stage, fault: str, cpu_milli: int) -> tuple[float, list[str]]:
    """One fault: seconds until all is right again (infinite: never), and who was evicted."""
    if fault == "conflict_storm":
        async with conflict_storm(stage):
            await stage.say(cpu_milli)
            took_s = await stage.until_right(GONE_WITHIN_S)
    else:
        await FAULTS[fault](stage, cpu_milli)
        took_s = await stage.until_right(GONE_WITHIN_S)
    return took_s, await stage.evicted()
