"""The Kubernetes sink and the loop's teller on the real API server."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding
from lightkube.types import PatchType

from scheduler_bridge.kube.node_status import ANNOTATION, LABEL
from scheduler_bridge.reconcile import Amount, reconcile
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, MID_CPU_NAME
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.telling import GIB, NAMES, RULES, a_patch, shows, telling, units, wipe


async def test_our_keys_and_no_other(cluster: Cluster, client: AsyncClient, nodes: Nodes) -> None:
    name = await nodes.join()
    before = await client.get(Node, name)
    async with telling(cluster, name) as told:
        told.want(name, 3_500)
        after = await shows(client, name, "3500")
    assert units(after, MEMORY_NAME) == (str(4 * GIB), str(4 * GIB))
    assert units(after, MID_CPU_NAME) == ("1750", "1750")
    assert before.status is not None
    assert after.status is not None
    assert before.metadata is not None
    assert after.metadata is not None
    for was, now in (
        (before.status.capacity, after.status.capacity),
        (before.status.allocatable, after.status.allocatable),
    ):
        assert {key: one for key, one in (now or {}).items() if key not in NAMES} == was
    assert after.status.conditions == before.status.conditions
    assert after.metadata.labels == before.metadata.labels
    added = dict(after.metadata.annotations or {})
    said = added.pop(ANNOTATION)
    assert added == (before.metadata.annotations or {})
    assert len(said) < 150
    assert '"cause":[1,1]' in said
    assert '"policy":"abc"' in said


async def test_a_restart_knows_what_was_told(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.want(name, 3_000)
        first = await shows(client, name, "3k")
        shown = told.sink.observed[name]
    async with telling(cluster, name) as told:
        told.want(name, 3_100)

        async def leads() -> bool:
            return told.sink.may_tell and told.sink.ready

        await objects.until(leads, "the next bridge leads")
        assert told.sink.observed[name] == shown
        assert told.due() == []
    second = await client.get(Node, name)
    assert first.metadata is not None
    assert second.metadata is not None
    assert second.metadata.resourceVersion == first.metadata.resourceVersion


async def test_a_wipe_is_seen_and_restored(
    cluster: Cluster, client: AsyncClient, nodes: Nodes, namespace: str
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.want(name, 3_000)
        await shows(client, name, "3k")
        pod = objects.new_pod("batch", namespace, {CPU_NAME: 2_000, MEMORY_NAME: 1 << 20})
        bound = await objects.pod_becomes(
            client, await client.create(pod), objects.is_bound, "bound"
        )
        await objects.run_pod(client, bound)
        told.lent[name] = Amount(2_000, 1 << 20)
        await wipe(client, name)
        await shows(client, name, "3k")
        kept = await client.get(Pod, "batch", namespace=namespace)
        assert kept.metadata is not None
        assert kept.metadata.deletionTimestamp is None


async def test_without_new_work_schedulers_find_no_room(
    cluster: Cluster, client: AsyncClient, nodes: Nodes, namespace: str
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.lent[name] = Amount(0, 0)
        told.want(name, 3_000, new_work=False)
        node = await shows(client, name, "3k", "0")
        assert node.metadata is not None
        assert (node.metadata.labels or {})[LABEL] == "false"
        pod = await client.create(objects.new_pod("batch", namespace, {CPU_NAME: 1}))
        await objects.pod_becomes(client, pod, objects.is_refused, "refused")
        told.want(name, 3_000, offset=2)
        node = await shows(client, name, "3k")
        assert node.metadata is not None
        assert LABEL not in (node.metadata.labels or {})
        await objects.pod_becomes(client, pod, objects.is_bound, "bound")


async def test_a_409_storm_delays_nothing(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()

    async def storm() -> None:
        for count in range(1_000_000):
            said = {"metadata": {"annotations": {"storm": str(count)}}}
            await client.patch(Node, name, said, patch_type=PatchType.MERGE)

    async with telling(cluster, name) as told:
        told.want(name, 3_000)
        await shows(client, name, "3k")
        storms = [asyncio.create_task(storm()) for _ in range(4)]
        try:
            for offset, cpu in enumerate((1_000, 2_000, 500, 4_000), start=2):
                told.want(name, cpu, offset=offset)
                reader = cluster.client()
                try:
                    await shows(reader, name, str(cpu) if cpu % 1000 else f"{cpu // 1000}k")
                finally:
                    await reader.close()
        finally:
            for one in storms:
                one.cancel()
            ended = await asyncio.gather(*storms, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        assert told.events("conflict") > 0


async def test_a_node_that_is_gone_is_passed_over(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.want("nobody", 3_000)
        told.want(name, 3_000)
        await shows(client, name, "3k")
        patch = reconcile(told.desired, {}, {}, told.now_ms, RULES)[0]
        await told.sink.tell(replace(patch, node="nobody"))
        assert "nobody" not in told.sink.nodes
        assert told.sink.observed.keys() >= {name}


async def test_numbers_from_later_in_the_log_are_never_overwritten(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.want(name, 3_000)
        await shows(client, name, "3k")
        halted = told.sink._shown[name]
        told.want(name, 1_000, offset=5)
        await shows(client, name, "1k")
        told.sink._shown[name] = halted  # what a bridge knows that was halted in between
        await told.sink.tell(a_patch(name, offset=4))
        assert told.events("newer_there") == 1
    assert units(await client.get(Node, name)) == ("1k", "1k")


async def test_the_follower_stands_by_and_takes_over(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    async with AsyncExitStack() as later:
        async with telling(cluster, name, "first") as first:
            first.want(name, 1_000)
            await shows(client, name, "1k")
            second = await later.enter_async_context(telling(cluster, name, "second"))
            second.want(name, 2_000, offset=2)

            async def ready() -> bool:
                return second.sink.ready and second.election.holder == "first"

            await objects.until(ready, "the second stands by, ready")
            assert not second.sink.may_tell
            with pytest.raises(OSError, match="another bridge leads"):
                await second.sink.tell(a_patch(name, offset=9))
            assert units(await client.get(Node, name)) == ("1k", "1k")
        await shows(client, name, "2k")


async def test_the_rights_that_it_needs_and_no_more(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    rules = [
        PolicyRule(apiGroups=[""], resources=["nodes"], verbs=["get", "list", "watch"]),
        PolicyRule(apiGroups=[""], resources=["nodes/status"], verbs=["patch"]),
        PolicyRule(
            apiGroups=["coordination.k8s.io"],
            resources=["leases"],
            verbs=["get", "create", "update"],
        ),
    ]
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), rules=rules))
    role = RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=name)
    who = Subject(kind="Group", name=name, apiGroup="rbac.authorization.k8s.io")
    meta = ObjectMeta(name=name)
    await client.create(ClusterRoleBinding(metadata=meta, roleRef=role, subjects=[who]))
    try:
        async with telling(cluster, name, user=("bridge", name)) as told:
            told.want(name, 3_000, new_work=False)
            node = await shows(client, name, "3k")
            assert node.metadata is not None
            assert (node.metadata.labels or {})[LABEL] == "false"
    finally:
        await client.delete(ClusterRoleBinding, name)
        await client.delete(ClusterRole, name)
