"""One ledger for Kubernetes and YARN, on the real API server, scheduler and topic."""

from __future__ import annotations

from random import Random

from lightkube import AsyncClient

from streams.dev_broker import DevBroker
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.two_schedulers import LENDABLE, Asking, compete
from tests.scheduler_bridge.ledger.stage import Topics
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
