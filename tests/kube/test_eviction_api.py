"""The Eviction API as the bridge asks it, on a real API server with its disruption controller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from lightkube import AsyncClient
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from scheduler_bridge.evictions.api import EvictionApi
from scheduler_bridge.evictions.budget import Limits
from scheduler_bridge.evictions.pod import LivePod
from scheduler_bridge.evictions.recall import Recaller
from scheduler_bridge.evictions.victim import NotAVictim, Victim, victim
from scheduler_bridge.kube.client import Kube, connect
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.pods import best_effort, budget, settled


@pytest.fixture
async def kube(cluster: Cluster) -> AsyncIterator[Kube]:
    async with connect(cluster.kubeconfig()) as own:
        yield own


async def seen(api: EvictionApi, namespace: str, name: str) -> LivePod:
    found = await api.look(namespace, name)
    assert found is not None
    return found


async def victim_of(api: EvictionApi, namespace: str, name: str) -> Victim:
    return victim(await seen(api, namespace, name), "evict_cpu")


async def test_a_budget_is_waited_for_and_then_kept(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    for name in ("one", "two"):
        await best_effort(client, namespace, name)
    await budget(client, namespace, at_least=2)
    await settled(client, namespace, allowed=0)
    api = EvictionApi(kube)
    pod = await victim_of(api, namespace, "one")
    answer = await api.evict(pod, dry_run=False)
    assert (answer.kind, answer.reason) == ("wait", "disruption_budget"), answer
    assert answer.wait_ms >= 1000
    await budget(client, namespace, at_least=1)
    await settled(client, namespace, allowed=1)
    assert (await api.evict(pod, dry_run=True)).kind == "evicted"
    assert not (await seen(api, namespace, "one")).terminating, "a dry run keeps nothing"
    await settled(client, namespace, allowed=1)
    assert (await api.evict(pod, dry_run=False)).kind == "evicted"
    assert (await seen(api, namespace, "one")).terminating
    other = await victim_of(api, namespace, "two")
    assert (await api.evict(other, dry_run=False)).reason == "disruption_budget"


async def test_two_budgets_over_one_pod_are_a_no_too(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    await best_effort(client, namespace, "one")
    for name in ("first", "second"):
        spec = PodDisruptionBudgetSpec(
            minAvailable=0, selector=LabelSelector(matchLabels={"app": "batch"})
        )
        meta = ObjectMeta(name=name, namespace=namespace)
        await client.create(PodDisruptionBudget(metadata=meta, spec=spec))
    api = EvictionApi(kube)
    answer = await api.evict(await victim_of(api, namespace, "one"), dry_run=False)
    assert (answer.kind, answer.reason) == ("wait", "disruption_budget"), answer


async def test_another_pod_of_the_same_name_is_never_hit(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    first = await best_effort(client, namespace, "one")
    api = EvictionApi(kube)
    old = await victim_of(api, namespace, "one")
    await objects.bury_pod(client, first)
    await best_effort(client, namespace, "one")
    for call in (api.evict, api.delete):
        answer = await call(old, dry_run=False)
        assert (answer.kind, answer.reason) == ("wait", "conflict"), answer
    now = await seen(api, namespace, "one")
    assert now.uid != old.uid
    assert not now.terminating


async def test_a_pod_that_is_gone_is_done(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    pod = await best_effort(client, namespace, "one")
    api = EvictionApi(kube)
    old = await victim_of(api, namespace, "one")
    await objects.bury_pod(client, pod)
    assert (await api.evict(old, dry_run=False)).kind == "gone"
    assert (await api.delete(old, dry_run=False)).kind == "gone"
    assert await api.look(namespace, "one") is None


async def test_time_to_end_and_a_delete_with_the_uid(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    for name in ("one", "two"):
        await best_effort(client, namespace, name)
    api = EvictionApi(kube, grace_s=77)
    assert (await api.evict(await victim_of(api, namespace, "one"), dry_run=False)).kind == (
        "evicted"
    )
    assert (await api.delete(await victim_of(api, namespace, "two"), dry_run=False)).reason == (
        "deleted"
    )
    for name in ("one", "two"):
        found = await client.get(Pod, name, namespace=namespace)
        assert found.metadata is not None
        assert found.metadata.deletionGracePeriodSeconds == 77


async def test_online_pods_and_those_who_opted_out_are_no_victims(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    label = {"app": "batch", "koordinator.sh/qosClass": "LS"}
    await best_effort(client, namespace, "online", label)
    await best_effort(client, namespace, "plain", {"app": "batch"})
    await best_effort(client, namespace, "spared", notes={"slackwater.io/evictable": "false"})
    await best_effort(
        client, namespace, "dear", notes={"scheduling.koordinator.sh/eviction-cost": "2147483647"}
    )
    await best_effort(
        client, namespace, "memory", notes={"koordinator.sh/eviction-policy": '["MemoryEvict"]'}
    )
    api = EvictionApi(kube)
    found = {}
    for name in ("online", "plain", "spared", "dear", "memory"):
        with pytest.raises(NotAVictim) as refused:
            victim(await seen(api, namespace, name), "evict_cpu")
        found[name] = refused.value.reason
    assert found == {
        "online": "not_best_effort", "plain": "not_best_effort", "spared": "opted_out",
        "dear": "opted_out", "memory": "opted_out",
    }  # fmt: skip
    victim(await seen(api, namespace, "memory"), "evict_memory")
    with pytest.raises(TypeError):
        Victim(object(), await seen(api, namespace, "online"))


async def test_a_quota_calls_back_exactly_its_pod_and_in_limits(
    kube: Kube, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    node = await nodes.join()
    one, two = [await best_effort(client, namespace, name, node=node) for name in ("one", "two")]
    label = {"koordinator.sh/qosClass": "LS"}
    online = await best_effort(client, namespace, "online", label, node=await nodes.join())
    recaller = Recaller(kube, Limits(per_node=1, node_rest_ms=0))
    assert await recaller.recall("another", namespace, "one") == "gone"
    assert await recaller.recall(uid_of(online), namespace, "online") == "not_best_effort"
    assert await recaller.recall(uid_of(one), namespace, "one") == "evicted"
    assert await recaller.recall(uid_of(one), namespace, "one") == "going"
    assert await recaller.recall(uid_of(two), namespace, "two") == "node_budget"


def uid_of(pod: Pod) -> str:
    assert pod.metadata is not None
    return str(pod.metadata.uid)
