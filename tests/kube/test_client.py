"""What the client must be able to do for the bridge, against the real API server."""

from __future__ import annotations

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding
from lightkube.types import PatchType

from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes


async def settled(client: AsyncClient, budget: str, namespace: str, allowed: int) -> None:
    """Wait until the real controller has counted the pods of a budget."""

    async def counted() -> bool:
        found = await client.get(PodDisruptionBudget, budget, namespace=namespace)
        assert found.metadata is not None
        seen = found.status
        return (
            seen is not None
            and seen.observedGeneration == found.metadata.generation
            and seen.disruptionsAllowed == allowed
        )

    await objects.until(counted, f"{budget} allows {allowed}")


async def evict(client: AsyncClient, name: str, namespace: str) -> None:
    meta = ObjectMeta(name=name, namespace=namespace)
    await client.create(Pod.Eviction(metadata=meta), name, namespace=namespace)


async def running(client: AsyncClient, namespace: str, name: str) -> Pod:
    """A pod of the budget's that runs."""
    pod = objects.new_pod(name, namespace, {"cpu": "100m"}, {"app": "batch"})
    bound = await objects.pod_becomes(client, await client.create(pod), objects.is_bound, "bound")
    return await objects.run_pod(client, bound)


async def test_an_eviction_keeps_the_budget(
    client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    await nodes.join()
    for name in ("one", "two"):
        await running(client, namespace, name)
    spec = PodDisruptionBudgetSpec(
        minAvailable=1, selector=LabelSelector(matchLabels={"app": "batch"})
    )
    meta = ObjectMeta(name="budget", namespace=namespace)
    await client.create(PodDisruptionBudget(metadata=meta, spec=spec))
    await settled(client, "budget", namespace, 1)

    await evict(client, "one", namespace)
    with pytest.raises(ApiError) as error:
        await evict(client, "two", namespace)
    assert error.value.status.code == 429
    going = await client.get(Pod, "one", namespace=namespace)
    assert going.metadata is not None
    assert going.metadata.deletionTimestamp is not None, "it ends with grace: a kubelet buries it"


async def test_a_role_for_a_nodes_status_gives_no_more(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    group = f"patchers-{name}"
    rule = PolicyRule(apiGroups=[""], resources=["nodes/status"], verbs=["patch"])
    await client.create(ClusterRole(metadata=ObjectMeta(name=group), rules=[rule]))
    role = RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=group)
    who = Subject(kind="Group", name=group, apiGroup="rbac.authorization.k8s.io")
    await client.create(
        ClusterRoleBinding(metadata=ObjectMeta(name=group), roleRef=role, subjects=[who])
    )
    patcher = cluster.client("bridge", group)
    status = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1"}}}
    label = {"metadata": {"labels": {"any": "label"}}}

    async def patches() -> bool:
        await patcher.patch(Node.Status, name, status, patch_type=PatchType.MERGE)
        return True

    try:
        await objects.until(patches, "the role is known to the API server")
        with pytest.raises(ApiError, match="forbidden"):
            await patcher.patch(Node, name, label, patch_type=PatchType.MERGE)
    finally:
        await patcher.close()
        await client.delete(ClusterRoleBinding, group)
        await client.delete(ClusterRole, group)
