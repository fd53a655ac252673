"""The whole loop on a real API server, scheduler, Kafka: lent, used, taken back, accounted for."""

from __future__ import annotations

import time
from pathlib import Path

from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Pod

from schemas.ledger import entry_key
from schemas.records import EvictionReport, LedgerEntry
from streams.dev_broker import DevBroker
from tests.kube import objects, pods
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.whole_loop import ASKED_MILLI, BUSY_MILLI, CALM_MILLI, Loop, looping
from tests.support import patient

TOLD_WITHIN_S = 3.0


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
