"""The whole loop on a real API server, scheduler, Kafka: lent, used, taken back, accounted for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.kube import quantities
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME
from schemas.ledger import entry_key
from schemas.records import EvictionReport, LedgerEntry
from streams.dev_broker import DevBroker
from tests.kube import objects, pods, virtual_node
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.evictor import shipped_rights
from tests.kube.installation import Heard, installed, listening
from tests.kube.telling import units
from tests.kube.virtual_node import VirtualNode
from tests.support import patient

GIB = 1 << 30
CPU_MILLI, MEMORY_BYTES = 16_000, 64 * GIB
BUSY_MILLI, CALM_MILLI = 8_000, 500
ASKED_MILLI = 4_000
TOLD_WITHIN_S = 3.0
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

    async def offered_milli(self) -> int:
        """Batch CPU that the API server shows as allocatable."""
        _, offered = units(await self.client.get(Node, self.node.name))
        return quantities.whole(offered or "0")

    async def offers(self, true: Callable[[int], bool], what: str, since_s: float) -> float:
        """Wait for it; the seconds since then."""

        async def is_so() -> bool:
            return true(await self.offered_milli())

        await objects.until(is_so, what)
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
    nodes: Nodes, folder: Path,
) -> AsyncIterator[Loop]:  # fmt: skip
    """A node with a busy online pod, under the whole product."""
    name = await nodes.join(CPU_MILLI, MEMORY_BYTES)
    shop = objects.new_pod("shop", namespace, {"cpu": "10", "memory": str(8 * GIB)}, ONLINE)
    assert shop.spec is not None
    shop.spec.nodeName = name
    shop = await client.create(shop)
    async with (
        installed(broker.bootstrap, prefix, POLICY, folder) as one,
        listening(one, "evictions", "ledger") as heard,
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
            yield Loop(client, namespace, node, heard, shop)
        except BaseException:
            print(one.tails())
            raise


async def test_capacity_is_lent_used_taken_back_and_accounted_for(
    broker: DevBroker, prefix: str, cluster: Cluster, client: AsyncClient, namespace: str,
    nodes: Nodes, tmp_path: Path,
) -> None:  # fmt: skip
    async with looping(broker, prefix, cluster, client, namespace, nodes, tmp_path) as loop:
        sampled_s = await loop.node.use(BUSY_MILLI)
        await loop.offers(lambda milli: 0 < milli < ASKED_MILLI, "little is lent", sampled_s)
        waiting = await loop.ask("etl", ASKED_MILLI)
        await objects.pod_becomes(client, waiting, objects.is_refused, "refused")
        pod = await it_is_lent(loop, waiting)
        await pods.budget(client, namespace, 1)
        await pods.settled(client, namespace, 0)
        await it_is_taken_back(loop, pod)
        await the_pod_goes(loop, pod)
        await the_ledger_closes(loop)


async def it_is_lent(loop: Loop, waiting: Pod) -> Pod:
    """Use falls, the node's allocatable grows, the scheduler binds who waits."""
    sampled_s = await loop.node.use(CALM_MILLI)
    grown_s = await loop.offers(lambda milli: milli >= ASKED_MILLI, "it has grown", sampled_s)
    bound = await objects.pod_becomes(loop.client, waiting, objects.is_bound, "bound")
    bound_s = time.monotonic() - sampled_s
    print(f"use fell: allocatable grew {grown_s:.2f} s after the sample, bound at {bound_s:.2f} s")
    assert grown_s < patient(TOLD_WITHIN_S)
    assert bound.spec is not None
    assert bound.spec.nodeName == loop.node.name
    return await objects.pod_becomes(loop.client, bound, objects.is_running, "running")


async def it_is_taken_back(loop: Loop, pod: Pod) -> None:
    """Use returns, allocatable falls, and what runs is held down."""
    (work,) = loop.node.kernel.of("best_effort")
    assert pod.metadata is not None
    assert work.uid == pod.metadata.uid
    await loop.node.next_sample()
    assert work.got_milli == ASKED_MILLI
    sampled_s = await loop.node.use(BUSY_MILLI)
    fell_s = await loop.offers(lambda milli: milli < ASKED_MILLI, "it has fallen", sampled_s)
    acks = [at_s for at_s, ack in loop.node.acked("suppress", "applied", sampled_s)]
    assert acks, loop.node.watcher.acks
    assert work.got_milli == loop.node.kernel.quota_milli < ASKED_MILLI
    held_s = acks[0] - sampled_s
    print(
        f"use returned: held down {held_s:.2f} s, allocatable fell {fell_s:.2f} s after the sample"
    )
    assert max(held_s, fell_s) < patient(TOLD_WITHIN_S)
    await loop.untouched()


async def the_pod_goes(loop: Loop, pod: Pod) -> None:
    """Through the Eviction API: not while its budget allows no disruption, then at once."""
    assert pod.metadata is not None
    uid = pod.metadata.uid

    def said(outcome: str) -> list[EvictionReport]:
        reports = loop.heard.of(EvictionReport)
        return [each for each in reports if (each.pod, each.outcome) == (uid, outcome)]

    await loop.heard.until(lambda: bool(said("waiting")), "it waits for its budget", 20.0)
    assert said("waiting")[0].reason == "disruption_budget", said("waiting")
    still = await loop.client.get(Pod, "etl", namespace=loop.namespace)
    assert still.metadata is not None
    assert still.metadata.deletionTimestamp is None
    await pods.budget(loop.client, loop.namespace, 0)
    allowed_s = time.monotonic()
    await loop.heard.until(lambda: bool(said("evicted")), "it is evicted", 20.0)
    await objects.until(lambda: is_gone(loop, "etl"), "the pod is gone")
    print(f"evicted and gone {time.monotonic() - allowed_s:.2f} s after its budget allowed it")
    assert loop.node.watcher.killed_uids == []
    await loop.untouched()


async def the_ledger_closes(loop: Loop) -> None:
    """What Kubernetes holds on the node: the pod, its release, nothing: the entry is taken back."""
    key = entry_key(loop.node.name, "kubernetes")

    def closed() -> bool:
        return loop.heard.under("ledger", key)[-1:] == [None]

    began_s = time.monotonic()
    await loop.heard.until(closed, "the ledger closes", 10.0)
    closed_s = time.monotonic() - began_s
    entries = loop.heard.under("ledger", key)[:-1]
    said = [(each.cpu_milli, each.releasing_cpu_milli) for each in entries if each is not None]
    print(f"ledger (held, releasing): {said}, taken back {closed_s:.2f} s after the pod was gone")
    assert (ASKED_MILLI, 0) in said
    held = {own for _, own, record in loop.heard.records if isinstance(record, LedgerEntry)}
    assert held == {key}, "nobody else ever held anything"


async def is_gone(loop: Loop, name: str) -> bool:
    try:
        await loop.client.get(Pod, name, namespace=loop.namespace)
    except ApiError as error:
        return error.status.code == 404
    return False
