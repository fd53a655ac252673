"""The whole product around one node of the test cluster, for the end-to-end tests."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lightkube import AsyncClient
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.kube import quantities
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME
from schemas.records import EvictionReport
from streams.dev_broker import DevBroker
from tests.kube import objects, virtual_node
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.evictor import shipped_rights
from tests.kube.installation import Heard, Installation, installed, listening
from tests.kube.telling import units
from tests.kube.virtual_node import VirtualNode

GIB = 1 << 30
CPU_MILLI, MEMORY_BYTES = 16_000, 64 * GIB
BUSY_MILLI, CALM_MILLI = 8_000, 500
ASKED_MILLI = 4_000
WITHIN_S = 20.0
POLICY = """
name: default
rollout: {stage: expand}
reservation: {warm_ms: 0, short_model: newest}
capacity: {raise_permille_per_min: 60000}
suppress: {raise_permille: 1000}
evict_memory: {cooldown_ms: 1000}
evict_cpu:
  {enabled: true, best_effort_enabled: false, allocatable_enabled: true, window_ms: 1000,
   cooldown_ms: 1000}
eviction: {executor: api}
"""
ONLINE = {"app": "shop", "koordinator.sh/qosClass": "LS", "koordinator.sh/priority-class": "prod"}
BATCH = {
    "app": "batch",
    "koordinator.sh/qosClass": "BE",
    "koordinator.sh/priority-class": "batch",
    "koordinator.sh/eviction-enabled": "true",
}


@dataclass(slots=True)
class Loop:
    """Everything that runs, and one node in it."""

    client: AsyncClient
    namespace: str
    node: VirtualNode
    heard: Heard
    online: Pod
    one: Installation

    async def offered_milli(self, name: str = CPU_NAME) -> int:
        """CPU that the API server shows as allocatable, batch's or mid's."""
        _, offered = units(await self.client.get(Node, self.node.name), name)
        return quantities.whole(offered or "0")

    async def offers(
        self, true: Callable[[int], bool], what: str, since_s: float, name: str = CPU_NAME
    ) -> float:
        """Wait for it; the seconds since then."""

        async def is_so() -> bool:
            return true(await self.offered_milli(name))

        await objects.until(is_so, what, WITHIN_S)
        return time.monotonic() - since_s

    async def ask(self, name: str, cpu_milli: int, labels: Mapping[str, str] = BATCH) -> Pod:
        """A new pod for the scheduler, that asks for batch CPU."""
        asks = {CPU_NAME: cpu_milli, MEMORY_NAME: GIB}
        return await self.client.create(objects.new_pod(name, self.namespace, asks, labels))

    async def untouched(self) -> None:
        """The online pod is the one of the beginning, runs, and nobody asked it to go."""
        about = self.online.metadata
        assert about is not None
        assert about.name is not None
        assert about.uid is not None
        now = await self.client.get(Pod, about.name, namespace=self.namespace)
        assert now.metadata is not None
        assert now.status is not None
        assert (now.metadata.uid, now.metadata.deletionTimestamp) == (about.uid, None)
        assert now.status.phase == "Running"
        assert about.uid not in {report.pod for report in self.heard.of(EvictionReport)}
        assert about.uid not in {uid for each in self.node.watcher.commands for uid in each.pods}


@asynccontextmanager
async def looping(
    broker: DevBroker, prefix: str, cluster: Cluster, client: AsyncClient, namespace: str,
    nodes: Nodes, folder: Path, policy: str = POLICY,
) -> AsyncIterator[Loop]:  # fmt: skip
    """A node with a busy online pod, under the whole product."""
    name = await nodes.join(CPU_MILLI, MEMORY_BYTES)
    shop = objects.new_pod("shop", namespace, {"cpu": "10", "memory": str(8 * GIB)}, ONLINE)
    assert shop.spec is not None
    shop.spec.nodeName = name
    shop = await client.create(shop)
    async with (
        installed(broker.bootstrap, prefix, policy, folder) as one,
        listening(one, "evictions", "ledger", "capacity") as heard,
        virtual_node.running(cluster, one.brokers, prefix, name, folder / "node") as node,
        shipped_rights(cluster, client, namespace, "bridge") as bridge,
        shipped_rights(cluster, client, namespace, "evictor") as evictor,
    ):
        lease = ("--lease-namespace", namespace)
        one.run(
            "bridge", "bridge", "run", "--sink", "kubernetes", "--kubeconfig", str(bridge), *lease
        )
        one.run("evictor", "bridge", "evict", "--kubeconfig", str(evictor), *lease)
        await objects.pod_becomes(client, shop, objects.is_running, "running")
        await one.says("bridge", "caught up")
        await one.says("evictor", "reading")
        try:
            yield Loop(client, namespace, node, heard, shop, one)
        except BaseException:
            print(one.tails())
            raise
