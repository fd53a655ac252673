"""Extended resources of a node: patched by the client, believed by the real scheduler."""

from __future__ import annotations

import time

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.kube import objects
from tests.kube.conftest import Nodes
from tests.support import patient

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
BOUND_WITHIN_S = 5.0


async def lend(client: AsyncClient, node: str, cpu_milli: int, memory_bytes: int = 4 << 30) -> Node:
    """Patch what a node lends, and nothing else of it."""
    lent = {BATCH_CPU: str(cpu_milli), BATCH_MEMORY: str(memory_bytes)}
    said = {"status": {"capacity": lent, "allocatable": lent}}
    await client.patch(Node.Status, node, said, patch_type=PatchType.MERGE)
    return await client.get(Node, node)


async def place(client: AsyncClient, namespace: str, name: str, cpu_milli: int) -> Pod:
    asks = {BATCH_CPU: cpu_milli, BATCH_MEMORY: 1 << 20}
    return await client.create(objects.new_pod(name, namespace, asks))


async def test_a_patch_names_our_keys_only(client: AsyncClient, nodes: Nodes) -> None:
    name = await nodes.join(cpu_milli=8_000)
    before = await client.get(Node, name)
    after = await lend(client, name, 3_000)
    assert before.status is not None
    assert after.status is not None
    assert after.status.conditions == before.status.conditions
    assert after.status.allocatable is not None
    shown = dict(after.status.allocatable)
    assert shown.pop(BATCH_CPU) == "3k"
    assert shown.pop(BATCH_MEMORY) == str(4 << 30)
    assert shown == before.status.allocatable
    taken = {"status": {part: {BATCH_CPU: None} for part in ("capacity", "allocatable")}}
    cleared = await client.patch(Node.Status, name, taken, patch_type=PatchType.MERGE)
    assert cleared.status is not None
    assert BATCH_CPU not in (cleared.status.allocatable or {})


async def test_a_patch_on_an_old_version_is_refused(client: AsyncClient, nodes: Nodes) -> None:
    name = await nodes.join()
    old = await client.get(Node, name)
    assert old.metadata is not None
    await lend(client, name, 1_000)
    said = {
        "metadata": {"resourceVersion": old.metadata.resourceVersion},
        "status": {"allocatable": {BATCH_CPU: "2000"}},
    }
    with pytest.raises(ApiError) as error:
        await client.patch(Node.Status, name, said, patch_type=PatchType.MERGE)
    assert error.value.status.code == 409


async def test_an_applied_status_owns_our_keys_only(client: AsyncClient, nodes: Nodes) -> None:
    name = await nodes.join()
    said = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {BATCH_CPU: "1500"}, "capacity": {BATCH_CPU: "1500"}},
    }
    applied = await client.patch(
        Node.Status, name, said, patch_type=PatchType.APPLY, field_manager="slackwater"
    )
    assert applied.metadata is not None
    owned = [one for one in applied.metadata.managedFields or [] if one.manager == "slackwater"]
    assert [one.subresource for one in owned] == ["status"]
    keys: dict[str, object] = {f"f:{BATCH_CPU}": {}}
    assert owned[0].fieldsV1 == {"f:status": {"f:allocatable": keys, "f:capacity": keys}}


async def test_lent_capacity_is_scheduled_and_no_more_than_that(
    client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    name = await nodes.join()
    first = await place(client, namespace, "first", 2_000)
    await objects.pod_becomes(client, first, objects.is_refused, "refused: nothing is lent")

    began = time.monotonic()
    await lend(client, name, 3_000)
    bound = await objects.pod_becomes(client, first, objects.is_bound, "bound")
    assert time.monotonic() - began < patient(BOUND_WITHIN_S)
    assert bound.spec is not None
    assert bound.spec.nodeName == name

    second = await place(client, namespace, "second", 2_000)
    refused = await objects.pod_becomes(client, second, objects.is_refused, "refused: it is full")
    assert f"Insufficient {BATCH_CPU}" in objects.why_refused(refused)
    running = await objects.run_pod(client, bound)
    assert running.status is not None
    assert running.status.phase == "Running"

    await objects.bury_pod(client, running)
    await objects.pod_becomes(client, second, objects.is_bound, "bound to what the first gave back")


async def test_a_fall_evicts_nobody_and_takes_nobody_in(
    client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    name = await nodes.join()
    await lend(client, name, 4_000)
    first = await place(client, namespace, "first", 3_000)
    bound = await objects.pod_becomes(client, first, objects.is_bound, "bound")
    await objects.run_pod(client, bound)

    await lend(client, name, 500)
    second = await place(client, namespace, "second", 500)
    await objects.pod_becomes(client, second, objects.is_refused, "refused: 3000 of 500 are out")
    kept = await client.get(Pod, "first", namespace=namespace)
    assert objects.is_bound(kept)
    assert kept.metadata is not None
    assert kept.metadata.deletionTimestamp is None
