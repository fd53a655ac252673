"""A sink with its teller on the real API server, with desired numbers in hand: no Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from lightkube import AsyncClient
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.election import Election
from scheduler_bridge.kube.node_status import Names
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Amount, Desired, Patch, Rules, reconcile
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME
from scheduler_bridge.sinks.kubernetes import Kubernetes
from scheduler_bridge.teller import Teller
from tests.kube import objects
from tests.kube.cluster import ADMIN, Cluster

NAMES: Names = (CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME)
GIB = 1 << 30
RULES = Rules()
AGAIN_WITHIN_S = 5.0


class Told:
    """A sink with its teller; tests set what is desired and lent. Log time stands still."""

    def __init__(
        self, cluster: Cluster, lease: str, own: str, user: tuple[str, str], namespace: str
    ) -> None:
        self.kube = connect(cluster.kubeconfig(*user))
        self.metrics = Metrics()
        self.election = Election(self.kube, namespace, lease, own)
        self.sink = Kubernetes(self.kube, self.election, NAMES, self.metrics)
        self.teller = Teller(self.sink, self.metrics, 100, 16)
        self.desired: dict[str, Desired] = {}
        self.lent: dict[str, Amount] = {}
        self.now_ms = 1_000_000

    def want(self, node: str, cpu: int, *, new_work: bool = True, offset: int = 1) -> None:
        amount = Amount(cpu, 4 * GIB, cpu // 2, 2 * GIB)
        self.desired[node] = Desired(amount, new_work, "usage", (1, offset), self.now_ms, "abc")
        self.teller.wake()

    def due(self) -> list[Patch]:
        if not (self.sink.ready and self.sink.may_tell):
            return []
        known = {name: one for name, one in self.desired.items() if name in self.sink.nodes}
        return reconcile(known, self.sink.observed, self.lent, self.now_ms, RULES)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sink.run())
            group.create_task(self.teller.run(self.due, 0.05))

    def events(self, name: str) -> float:
        found = self.metrics.registry.get_sample_value(
            "slackwater_bridge_sink_events_total", {"event": name}
        )
        return found or 0.0


@asynccontextmanager
async def telling(
    cluster: Cluster,
    lease: str,
    own: str = "me",
    user: tuple[str, str] = ADMIN,
    namespace: str = "default",
) -> AsyncIterator[Told]:
    told = Told(cluster, lease, own, user, namespace)
    task = asyncio.create_task(told.run())
    try:
        yield told
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def units(node: Node, name: str = CPU_NAME) -> tuple[str | None, str | None]:
    assert node.status is not None
    return (node.status.capacity or {}).get(name), (node.status.allocatable or {}).get(name)


async def shows(client: AsyncClient, node: str, capacity: str, offered: str | None = None) -> Node:
    wanted = (capacity, capacity if offered is None else offered)

    async def equal() -> bool:
        return units(await client.get(Node, node)) == wanted

    await objects.until(equal, f"{node} shows {wanted}", AGAIN_WITHIN_S)
    return await client.get(Node, node)


async def wipe(client: AsyncClient, node: str) -> None:
    """What a kubelet does when it registers again: extended resources are zero."""
    gone = dict.fromkeys(NAMES, "0")
    said = {"status": {"capacity": gone, "allocatable": gone}}
    await client.patch(Node.Status, node, said, patch_type=PatchType.MERGE)


def a_patch(name: str, offset: int) -> Patch:
    amount = Amount(7_000, GIB)
    return Patch(name, amount, True, "rise", "usage", (1, offset), 0, "", None, 1, offered=amount)
