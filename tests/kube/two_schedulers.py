"""Kubernetes and YARN ask for the same capacity at random; who reads the ledger judges.

A real API server and a real kube-scheduler, a real topic, and the ResourceManager's stand-in; the
bridge runs in this process. Used by the test of the ledger and by `tests.bench.ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Pod

from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.election import Election
from scheduler_bridge.kube.quantities import whole
from scheduler_bridge.ledger.setup import LedgerSettings, attach
from scheduler_bridge.loop import Bridge
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Amount, Rules
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, Settings
from scheduler_bridge.sinks.kubernetes import Kubernetes
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.telling import NAMES
from tests.scheduler_bridge.ledger.checker import Verdict, check
from tests.scheduler_bridge.ledger.stage import GIB, Topics, until
from tests.scheduler_bridge.yarn_server import YarnServer

LENDABLE = Amount(8_000, 8 * GIB)
CORE = 1_000
EXACT = Rules(change_permille=0, least_cpu_milli=0, least_memory_bytes=0)
LOOK_S = 0.2


@dataclass(slots=True)
class Found:
    """``over``: moments at which more ran on a node than there was; ``started``: by system."""

    asked: int = 0
    started: dict[str, int] = field(default_factory=lambda: {"kubernetes": 0, "yarn": 0})
    over: list[str] = field(default_factory=list)
    looks: int = 0
    most_milli: int = 0
    verdict: Verdict = field(default_factory=Verdict)


@asynccontextmanager
async def bridging(
    cluster: Cluster, topics: Topics, yarn: YarnServer, lease: str, settle_ms: int = 2_000
) -> AsyncIterator[Bridge]:
    """The bridge with both borrowers, as the command line would put it together."""
    kube = connect(cluster.kubeconfig())
    metrics = Metrics()
    election = Election(kube, "default", lease, lease, lease_s=3)
    sink = Kubernetes(kube, election, NAMES, metrics)
    settings = Settings(topics.bootstrap, topics.prefix, 100, rules=EXACT)
    bridge = Bridge(settings, sink, metrics)
    asked = LedgerSettings(
        yarn=(yarn.url,), yarn_name="yarn", settle_ms=settle_ms, learn_ms=2_000, look_s=0.2
    )
    attach(bridge, asked, NAMES)
    task = asyncio.create_task(bridge.run())
    try:
        yield bridge
        assert not task.done(), task
    finally:
        bridge.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@dataclass(slots=True)
class Asking:
    """Asks, and ends what runs; at most ``open_asks`` of each kind wait at a time."""

    client: AsyncClient
    yarn: YarnServer
    namespace: str
    nodes: list[str]
    dice: Random
    found: Found = field(default_factory=Found)
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    async def ask(self, asks: int, pause_s: float) -> None:
        for number in range(asks):
            self.found.asked += 1
            if self.dice.random() < 0.5:
                await self._pod(f"p{number}")
            else:
                self.yarn.ask(self.dice.choice([512, 1024]), self.dice.choice([1, 2]))
            await asyncio.sleep(pause_s)
            await self._end_some()

    async def drain(self) -> None:
        """Nobody waits and nothing runs any more."""
        self.yarn.asks.clear()
        await self.client.deletecollection(Pod, namespace=self.namespace, grace_period=0)
        for host, manager in self.yarn.managers.items():
            for name in list(manager.runs):
                self.yarn.die(host, name)

    async def watch(self) -> None:
        """Look at both systems again and again: what runs on a node is never more than there is."""
        while True:
            bound: dict[str, tuple[str, int]] = {}
            waiting: set[str] = set()
            async for pod in self.client.list(Pod, namespace=self.namespace):
                assert pod.metadata is not None
                assert pod.metadata.name is not None
                assert pod.spec is not None
                if pod.spec.nodeName is None:
                    waiting.add(pod.metadata.name)
                else:
                    bound[pod.metadata.name] = (pod.spec.nodeName, _cpu(pod))
            self.found.started["kubernetes"] += len(bound.keys() - self.bound.keys())
            self.bound, self.waiting = bound, waiting
            for node in self.nodes:
                pods = sum(cpu for where, cpu in bound.values() if where == node)
                containers = self.yarn.managers[node].used()[1] * CORE
                self.found.most_milli = max(self.found.most_milli, pods + containers)
                if pods + containers > LENDABLE.cpu_milli:
                    self.found.over.append(f"{node}: {pods}m of pods, {containers}m of containers")
            self.found.looks += 1
            await asyncio.sleep(LOOK_S)

    async def _pod(self, name: str) -> None:
        asks = {
            CPU_NAME: self.dice.choice([500, 1_000, 2_000]),
            MEMORY_NAME: self.dice.choice([1, 2]) * (GIB // 2),
        }
        await self.client.create(objects.new_pod(name, self.namespace, asks))

    async def _end_some(self) -> None:
        """As many end as begin, once there are some; those who waited too long give up."""
        if len(self.bound) > 3 and self.dice.random() < 0.5:
            await self._delete(self.dice.choice(sorted(self.bound)))
        if len(self.waiting) > 6:
            await self._delete(self.dice.choice(sorted(self.waiting)))
        if len(self.yarn.asks) > 6:
            self.yarn.asks.popleft()
        host = self.dice.choice(self.nodes)
        if self.yarn.managers[host].runs and self.dice.random() < 0.5:
            self.yarn.die(host, self.dice.choice(sorted(self.yarn.managers[host].runs)))

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(ApiError):  # gone already
            await self.client.delete(Pod, name, namespace=self.namespace, grace_period=0)


async def compete(
    asking: Asking, cluster: Cluster, topics: Topics, asks: int, pause_s: float
) -> Found:
    """``asks`` of both, then all ends and the ledger must close to zero."""
    found, names = asking.found, asking.yarn.managers
    async with bridging(cluster, topics, asking.yarn, asking.namespace) as bridge:
        for node in asking.nodes:
            asking.yarn.join(node)
            await topics.capacity(node, LENDABLE)
        watching = asyncio.create_task(asking.watch())
        try:
            await until(lambda: all(names[n].total[1] > 1 for n in names), "YARN was told", 20)
            await asking.ask(asks, pause_s)
            await asking.drain()
            await until(
                lambda: all(not bridge.view.book.of(node).held for node in asking.nodes),
                "the ledger closes to zero", 15,
            )  # fmt: skip
            assert not watching.done(), watching
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    containers = sum(len(one.started) for one in asking.yarn.managers.values())
    found.started["yarn"] = containers
    found.verdict = check(await topics.ledger())
    return found


def _cpu(pod: Pod) -> int:
    assert pod.spec is not None
    needs = pod.spec.containers[0].resources
    assert needs is not None
    return whole((needs.requests or {})[CPU_NAME])
