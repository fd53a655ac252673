"""One ledger for Kubernetes and YARN, on the real API server, scheduler and topic."""

from __future__ import annotations

from random import Random

import orjson
from lightkube import AsyncClient
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from scheduler_bridge.ledger.third_party import ALLOCATIONS, ORIGIN, of_others
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME
from streams.dev_broker import DevBroker
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.two_schedulers import LENDABLE, Asking, bridging, compete
from tests.scheduler_bridge.ledger.checker import check
from tests.scheduler_bridge.ledger.stage import GIB, Topics, until
from tests.scheduler_bridge.test_bridge_broker import make_topics
from tests.scheduler_bridge.yarn_server import YarnServer

ASKS = 80


async def test_two_schedulers_that_ask_for_the_same_are_never_lent_it_twice(
    cluster: Cluster, client: AsyncClient, nodes: Nodes, namespace: str,
    broker: DevBroker, prefix: str,
) -> None:  # fmt: skip
    names = [await nodes.join() for _ in range(2)]
    await make_topics(broker.bootstrap, prefix)
    async with YarnServer() as yarn, Topics(broker.bootstrap, prefix) as topics:
        asking = Asking(client, yarn, namespace, names, Random(7))
        found = await compete(asking, cluster, topics, ASKS, 0.1)
    assert found.over == []
    assert found.verdict.over == []
    assert max(found.verdict.most_cpu_milli.values()) <= LENDABLE.cpu_milli
    assert min(found.started.values()) >= 5, found


async def test_the_peers_annotations_are_read_and_written(
    cluster: Cluster, client: AsyncClient, nodes: Nodes, broker: DevBroker, prefix: str
) -> None:
    name = await nodes.join()
    other = {"name": "spark", "priority": "koord-batch", "resources": {CPU_NAME: "3k"}}
    said = orjson.dumps({"allocations": [other]}).decode()
    meta = {"metadata": {"annotations": {ALLOCATIONS: said}}}
    await client.patch(Node, name, meta, patch_type=PatchType.MERGE)
    await make_topics(broker.bootstrap, prefix)
    async with YarnServer() as yarn, Topics(broker.bootstrap, prefix) as topics:
        manager = yarn.join(name)
        await topics.capacity(name, LENDABLE)
        async with bridging(cluster, topics, yarn, name, settle_ms=500) as bridge:
            book = bridge.view.book
            await until(lambda: book.of(name).holds("spark").cpu_milli == 3000, "spark counts", 20)
            yarn.ask(1024, 2)
            await until(lambda: book.of(name).holds("yarn").cpu_milli == 2000, "yarn counts", 20)
            await objects.until(lambda: _says(client, name), "both annotations", 20)
            assert manager.total[1] <= 5
            gone = {"metadata": {"annotations": {ALLOCATIONS: None}}}
            await client.patch(Node, name, gone, patch_type=PatchType.MERGE)
            await until(lambda: "spark" not in book.of(name).held, "spark has given it back", 20)
        assert check(await topics.ledger()).over == []


async def _says(client: AsyncClient, name: str) -> bool:
    node = await client.get(Node, name)
    assert node.metadata is not None
    notes = node.metadata.annotations or {}
    by_name = of_others(notes.get(ALLOCATIONS), (), CPU_NAME, MEMORY_NAME)
    origin = orjson.loads(notes.get(ORIGIN, "{}")).get("resources")
    return by_name == {"spark": Amount(3000, 0), "yarn": Amount(2000, GIB)} and origin == {
        CPU_NAME: str(LENDABLE.cpu_milli),
        MEMORY_NAME: str(LENDABLE.memory_bytes),
    }
