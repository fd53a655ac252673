"""Quotas lend and take back, by class; a free pod lives on what nobody was lent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lightkube import AsyncClient
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.kube import objects
from tests.kube.admission.serving import BATCH_CPU, BATCH_MEMORY, Serving, a_pod, refusal, serving
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.test_client import settled

RULES = """
quotas:
  - name: red
    min: {batch_cpu_milli: 4000, mid_cpu_milli: 1000}
    max: {batch_cpu_milli: 10000, mid_cpu_milli: 10000}
  - {name: blue, min: {batch_cpu_milli: 6000}, max: {batch_cpu_milli: 10000}}
recall: {after_s: 1}
free: {cpu_milli: 100, memory_bytes: 1}
"""
BATCH = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch"}
FREE = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "free"}
MID = {"koordinator.sh/qosClass": "LS", "koordinator.sh/priority-class": "mid"}
MID_CPU = "kubernetes.io/mid-cpu"
GRACE = "quota.scheduling.koordinator.sh/name"


def batch(namespace: str, quota: str, milli: int, name: str, **labels: str) -> Pod:
    return a_pod(namespace, {BATCH_CPU: milli}, name=name, labels={**BATCH, GRACE: quota, **labels})


@asynccontextmanager
async def shared(
    cluster: Cluster, client: AsyncClient, nodes: Nodes, folder: Path
) -> AsyncIterator[Serving]:
    """One node that gives 10 cores of batch work, and the rules that share them."""
    node = await nodes.join()
    room = {BATCH_CPU: "10000", BATCH_MEMORY: str(1 << 34), MID_CPU: "4000"}
    await client.patch(Node.Status, node, {"status": {"allocatable": room, "capacity": room}})
    async with serving(cluster, client, folder, RULES) as running:
        await running.knows(node, BATCH_CPU)
        yield running


async def test_s6_a_quota_lends_and_takes_back_within_disruption_budgets(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    async with shared(cluster, client, nodes, tmp_path) as running:
        budget = PodDisruptionBudget(
            metadata=ObjectMeta(name="keeps", namespace=namespace),
            spec=PodDisruptionBudgetSpec(
                minAvailable=4, selector=LabelSelector(matchLabels={"job": "red"})
            ),
        )
        await client.create(budget)
        for i in range(4):
            pod = batch(namespace, "red", 2000, f"red-{i}", job="red")
            assert not await refusal(client, pod), "red may use what blue leaves"
            bound = await objects.pod_becomes(client, pod, objects.is_bound, "bound")
            await objects.run_pod(client, bound)
        await settled(client, "keeps", namespace, 0)
        said = await refusal(client, batch(namespace, "red", 4000, "red-more", job="red"))
        assert "quota_over_runtime: quota red may use 10000 of kubernetes.io/batch-cpu now" in said
        for i in range(2):
            assert not await refusal(client, batch(namespace, "blue", 2000, f"blue-{i}"))

        async def waits_for_budget() -> bool:
            return running.metric("admission_recalls", outcome="disruption_budget") > 0

        await objects.until(waits_for_budget, "the disruption budget is respected")
        assert not await gone(client, namespace)
        spec = {"spec": {"minAvailable": 0}}
        await client.patch(PodDisruptionBudget, "keeps", spec, namespace=namespace)

        async def called_back() -> bool:
            return len(await gone(client, namespace)) == 1

        await objects.until(called_back, "red gives back what is blue's")
        going = await gone(client, namespace)
        assert going[0].startswith("red-"), "12 were used of 10, so one of 2 goes and no more"
        assert running.metric("admission_recalls", outcome="evicted") == 1


async def gone(client: AsyncClient, namespace: str) -> list[str]:
    """Names of pods on their way out."""
    found = []
    async for pod in client.list(Pod, namespace=namespace):
        assert pod.metadata is not None
        if pod.metadata.deletionTimestamp is not None:
            found.append(pod.metadata.name or "")
    return found


async def test_mid_stays_within_the_minimum_and_batch_may_borrow_beyond(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    async with shared(cluster, client, nodes, tmp_path):
        labels = {**MID, GRACE: "red"}
        assert not await refusal(client, a_pod(namespace, {MID_CPU: 1000}, labels=labels))
        said = await refusal(client, a_pod(namespace, {MID_CPU: 1000}, labels=labels))
        assert "quota_over_minimum: quota red owns 1000 of kubernetes.io/mid-cpu" in said
        assert "batch work, which can be called back" in said
        assert not await refusal(client, batch(namespace, "red", 9000, "much"))
        wrong = a_pod(namespace, {}, labels={**BATCH, GRACE: "green"})
        assert "quota green is not there; allowed: blue, red" in await refusal(client, wrong)


async def test_a_free_pod_asks_for_nothing_and_lives_on_what_nobody_was_lent(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    async with shared(cluster, client, nodes, tmp_path) as running:
        assert not await refusal(client, batch(namespace, "red", 7000, "lent"))
        free = await client.create(a_pod(namespace, {"cpu": "2"}, name="free", labels=FREE))
        assert free.spec is not None
        assert free.spec.containers[0].resources is not None
        assert not free.spec.containers[0].resources.requests
        assert not free.spec.containers[0].resources.limits
        assert running.admission.webhook.book.free[BATCH_CPU] == 2000
        said = await refusal(client, a_pod(namespace, {"cpu": "2"}, labels=FREE))
        assert "free_over_rest: of kubernetes.io/batch-cpu 3000 is lent to nobody" in said
        assert not await refusal(client, a_pod(namespace, {}, name="modest", labels=FREE))
        bound = await objects.pod_becomes(client, free, objects.is_bound, "bound")
        await objects.run_pod(client, bound)
        assert not await refusal(client, batch(namespace, "blue", 2000, "claims"))

        async def called_back() -> bool:
            return await gone(client, namespace) == ["free"]

        await objects.until(called_back, "the free pod goes, for 9 of 10 are lent and 2.1 used")
