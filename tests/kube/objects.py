"""Objects as tests make them, and what a kubelet would say of them: no kubelet runs here.

Times are those of the objects' fields; waiting is for conditions, seen by a watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import cast

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.core_v1 import Container, NodeSpec, PodSpec, ResourceRequirements
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.support import patient

WITHIN_S = 10.0
POLL_S = 0.02
NOT_YET = (403, 404)  # roles and objects reach the one who asks a moment later
PODS_A_NODE = 110


def amounts(cpu_milli: int, memory_bytes: int, pods: int = PODS_A_NODE) -> dict[str, str]:
    """What a machine has, as a node's status says it."""
    return {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes), "pods": str(pods)}


def condition(kind: str, status: str = "True", reason: str = "Test") -> dict[str, str]:
    """A condition of a node or a pod, that came about now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": now}


async def join_node(
    client: AsyncClient,
    name: str,
    cpu_milli: int = 8_000,
    memory_bytes: int = 16 << 30,
    labels: Mapping[str, str] | None = None,
) -> Node:
    """A node as its kubelet registers it and finds itself ready."""
    meta = ObjectMeta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})})
    await client.create(Node(metadata=meta, spec=NodeSpec()))
    has = amounts(cpu_milli, memory_bytes)
    said = {"capacity": has, "allocatable": has, "conditions": [condition("Ready")]}
    await client.patch(Node.Status, name, {"status": said})
    # The API server taints every new node until something finds it ready.
    return await client.patch(Node, name, {"spec": {"taints": None}}, patch_type=PatchType.MERGE)


def new_pod(
    name: str,
    namespace: str,
    asks: Mapping[str, str | int],
    labels: Mapping[str, str] | None = None,
) -> Pod:
    """A pod of one container that asks for these amounts, and is limited to them."""
    wanted = {resource: str(amount) for resource, amount in asks.items()}
    needs = ResourceRequirements(requests=wanted, limits=wanted)
    container = Container(name="main", image="test.invalid/none", resources=needs)
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=dict(labels or {})),
        spec=PodSpec(containers=[container], terminationGracePeriodSeconds=5),
    )


async def run_pod(client: AsyncClient, pod: Pod) -> Pod:
    """What a kubelet says of a bound pod whose containers run."""
    name, namespace = _names(pod)
    status = {"phase": "Running", "conditions": [condition("Ready"), condition("ContainersReady")]}
    await client.patch(Pod.Status, name, {"status": status}, namespace=namespace)
    return await client.get(Pod, name, namespace=namespace)


async def bury_pod(client: AsyncClient, pod: Pod) -> None:
    """What a kubelet does when the containers of a pod have ended: the object goes."""
    name, namespace = _names(pod)
    await client.delete(Pod, name, namespace=namespace, grace_period=0)


async def pod_becomes(
    client: AsyncClient,
    pod: Pod,
    true: Callable[[Pod], bool],
    what: str,
    within_s: float = WITHIN_S,
) -> Pod:
    """Watch a pod until this is true of it; fail with what was last seen."""
    name, namespace = _names(pod)
    last: Pod | None = None
    watch = client.watch(Pod, namespace=namespace, fields={"metadata.name": name})
    try:
        async with (
            asyncio.timeout(patient(within_s)),
            aclosing(cast("AsyncGenerator[tuple[str, Pod]]", watch)) as seen,
        ):
            async for _, last in seen:
                if true(last):
                    return last
    except TimeoutError:
        pytest.fail(f"{namespace}/{name} is not {what} within {within_s} s; it is {last}")
    pytest.fail(f"the watch of {namespace}/{name} ended; it is {last}")


async def until(true: Callable[[], Awaitable[bool]], what: str, within_s: float = WITHIN_S) -> None:
    """Ask until the answer is yes; a refusal (403) or an object that is not there (404) is a no."""
    try:
        async with asyncio.timeout(patient(within_s)):
            while not await _says_yes(true):  # noqa: ASYNC110 - the answer is the API server's
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {what}")


async def _says_yes(true: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await true()
    except ApiError as error:
        if error.status.code not in NOT_YET:
            raise
        return False


def is_bound(pod: Pod) -> bool:
    return pod.spec is not None and bool(pod.spec.nodeName)


def is_running(pod: Pod) -> bool:
    """Whether it is bound, and its kubelet says that it runs."""
    return is_bound(pod) and pod.status is not None and pod.status.phase == "Running"


def is_refused(pod: Pod) -> bool:
    """Whether the scheduler has looked at it and found no node."""
    return not is_bound(pod) and bool(why_refused(pod))


def why_refused(pod: Pod) -> str:
    """What the scheduler says of a pod that fits nowhere; "" when it has not said so."""
    if pod.status is None:
        return ""
    for said in pod.status.conditions or []:
        if said.type == "PodScheduled" and said.reason == "Unschedulable":
            return said.message or ""
    return ""


def _names(pod: Pod) -> tuple[str, str]:
    assert pod.metadata is not None
    assert pod.metadata.name
    assert pod.metadata.namespace
    return pod.metadata.name, pod.metadata.namespace
