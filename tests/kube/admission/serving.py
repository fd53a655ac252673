"""Admission as it runs, in the test's own loop, registered with the test's API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.admissionregistration_v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from lightkube.resources.core_v1 import Namespace, Pod
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding
from lightkube.resources.scheduling_v1 import PriorityClass

from scheduler_bridge.admission.configuration import configurations
from scheduler_bridge.admission.names import NAMESPACE_LABEL, NAMESPACE_VALUE, Resources
from scheduler_bridge.admission.service import Admission, Settings
from scheduler_bridge.http import HttpSettings
from scheduler_bridge.kube.client import connect
from scheduler_bridge.tls import TlsFiles
from tests.kube import objects
from tests.kube.certificates import Authority
from tests.kube.cluster import Cluster

RECOVERABLE = {"slackwater.io/recoverable": "true"}
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


RIGHTS = (
    # API group, resources, verbs: all that admission may do, and all that it needs
    ("", ["pods"], ["get", "list", "watch", "patch"]),
    ("", ["pods/status"], ["patch"]),
    ("", ["pods/eviction"], ["create"]),
    ("", ["namespaces"], ["get", "list", "watch"]),
    ("", ["nodes"], ["list", "watch"]),
    ("scheduling.k8s.io", ["priorityclasses"], ["list", "watch"]),
    ("coordination.k8s.io", ["leases"], ["get", "create", "update"]),
)


@dataclass
class Serving:
    """One replica; `away` stops its server as a crash would."""

    admission: Admission
    task: asyncio.Task[None]
    rules: Path

    async def use(self, rules: str) -> None:
        """Change the file, and look at it now."""
        self.rules.write_text(rules)
        assert self.admission.look_at_rules()

    def reviews(self, which: str) -> int:
        """How often that webhook was asked and said yes."""
        return self.metric("admission_reviews", webhook=which, verdict="allowed")

    def metric(self, name: str, **labels: str) -> int:
        """A counter of the replica."""
        found = self.admission.metrics.registry.get_sample_value(
            f"slackwater_bridge_{name}_total", labels
        )
        return int(found or 0)

    def gangs(self) -> str:
        """What the keeper said last of gangs that wait."""
        return "; ".join(one.why for one in self.admission.gangs.decided)

    async def knows(self, node: str, resource: str) -> None:
        """Wait until the mirror has seen that the node gives that resource."""
        async with asyncio.timeout(10):
            while resource not in self._allocatable(node):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _allocatable(self, node: str) -> Mapping[str, int]:
        found = self.admission.cluster.nodes.objects.get(node)
        return {} if found is None else found.allocatable

    async def away(self) -> None:
        self.admission.stop()
        await self.task


@asynccontextmanager
async def serving(
    cluster: Cluster, client: AsyncClient, folder: Path, rules: str = "profiles: []"
) -> AsyncIterator[Serving]:
    """Answering and asked, until the end."""
    authority = Authority(folder / "webhook")
    pair = authority.server("admission")
    path = folder / "admission.yaml"
    path.write_text(rules)
    http = HttpSettings(tls=TlsFiles(pair.certificate, pair.key), drain_s=1.0)
    group = f"admission-{uuid.uuid4().hex[:8]}"
    async with _may(client, group), connect(cluster.kubeconfig(group, group)) as kube:
        settings = Settings(path, http, "default")
        admission = Admission(settings, kube)
        task = asyncio.create_task(admission.run())
        try:
            async with asyncio.timeout(10):
                while not (admission.ready and admission.server.port):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
            url = f"https://127.0.0.1:{admission.server.port}"
            async with _registered(client, {"url": url, "caBundle": bundle}):
                yield Serving(admission, task, path)
        finally:
            admission.stop()
            await task


@asynccontextmanager
async def _may(client: AsyncClient, group: str) -> AsyncIterator[None]:
    """Give a group of users these rights, and no others."""
    rules = [PolicyRule(apiGroups=[api], resources=on, verbs=may) for api, on, may in RIGHTS]
    meta = ObjectMeta(name=group)
    role = RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=group)
    who = Subject(kind="Group", name=group, apiGroup="rbac.authorization.k8s.io")
    await client.create(ClusterRole(metadata=meta, rules=rules))
    await client.create(ClusterRoleBinding(metadata=meta, roleRef=role, subjects=[who]))
    try:
        yield
    finally:
        await client.delete(ClusterRoleBinding, group)
        await client.delete(ClusterRole, group)


@asynccontextmanager
async def _registered(client: AsyncClient, target: dict[str, Any]) -> AsyncIterator[None]:
    """The configurations of now, known to the API server."""
    mutating, validating = configurations(target, Resources(), "slackwater")
    kinds = (MutatingWebhookConfiguration, mutating), (ValidatingWebhookConfiguration, validating)
    try:
        for kind, document in kinds:
            made: Any = kind.from_dict(document)
            await client.create(made)
        await objects.until(lambda: _asked(client), "the API server asks the webhook")
        yield
    finally:
        for kind, document in kinds:
            with contextlib.suppress(ApiError):
                await client.delete(kind, document["metadata"]["name"])
        await objects.until(lambda: _silent(client), "the API server asks no more")


async def _asked(client: AsyncClient) -> bool:
    """A pod that both webhooks touch: a free one, and one that is not legal."""
    return "cpu_request_required" in await _tried(client)


async def _silent(client: AsyncClient) -> bool:
    return not await _tried(client)


async def _tried(client: AsyncClient) -> str:
    pod = objects.new_pod(f"probe-{uuid.uuid4().hex[:8]}", "default", {})
    assert pod.metadata is not None
    pod.metadata.labels = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "mid"}
    pod.metadata.labels["koordinator.sh/priority"] = "1"
    try:
        await client.create(pod, dry_run=True)
    except ApiError as error:
        return error.status.message or ""
    return ""


async def mark(client: AsyncClient, namespace: str, **labels: str) -> None:
    """Give the namespace the label by which all its pods are looked at, and others."""
    body = {"metadata": {"labels": {NAMESPACE_LABEL: NAMESPACE_VALUE, **labels}}}
    await client.patch(Namespace, namespace, body)


def a_pod(
    namespace: str,
    asks: Mapping[str, str | int],
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: str = "",
) -> Pod:
    """A pod of one container; recoverable, unless told otherwise."""
    pod = objects.new_pod(name or f"p-{uuid.uuid4().hex[:8]}", namespace, asks, labels)
    assert pod.metadata is not None
    assert pod.spec is not None
    pod.metadata.annotations = dict(RECOVERABLE if annotations is None else annotations)
    if priority:
        pod.spec.priorityClassName = priority
    return pod


async def refusal(client: AsyncClient, pod: Pod) -> str:
    """What the API server says of the pod; "" when it takes it."""
    try:
        await client.create(pod)
    except ApiError as error:
        return error.status.message or "refused"
    return ""


@asynccontextmanager
async def priorities(client: AsyncClient, *values: int) -> AsyncIterator[dict[int, str]]:
    """PriorityClasses of these values, by value; they go with the test."""
    names = {value: f"p{value}-{uuid.uuid4().hex[:6]}" for value in values}
    for value, name in names.items():
        await client.create(PriorityClass(metadata=ObjectMeta(name=name), value=value))

    async def known() -> bool:
        pod = objects.new_pod(f"probe-{uuid.uuid4().hex[:8]}", "default", {})
        assert pod.spec is not None
        for name in names.values():
            pod.spec.priorityClassName = name
            try:
                await client.create(pod, dry_run=True)
            except ApiError as error:
                if "no PriorityClass" in (error.status.message or ""):
                    return False
        return True

    try:
        await objects.until(known, "the priority classes are known")
        yield names
    finally:
        for name in names.values():
            await client.delete(PriorityClass, name)
