"""What the extender asks of the API server: bind a pod, read a pod, note a node's score.

Wraps `scheduler_bridge.kube.client`; every call raises KubeError and nothing else.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from scheduler_bridge.extender import pods
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.settings import Resources
from scheduler_bridge.extender.wire import Binding
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeMissing, KubeRefused, translated


class ExtenderApi:
    """Calls that change something are the Binding API's and one annotation."""

    def __init__(self, kube: Kube, names: Resources) -> None:
        self._kube = kube
        self._names = names

    async def bind(self, asked: Binding) -> None:
        """Bind that very pod, or none of its name that came after it."""
        binding = Pod.Binding(
            metadata=ObjectMeta(name=asked.name, namespace=asked.namespace, uid=asked.uid),
            target=ObjectReference(kind="Node", name=asked.node),
        )
        # It answers with a Status, which the client takes for a Binding that lacks its target; an
        # error it has raised before it decodes.
        with translated(f"bind {asked.namespace}/{asked.name}"), suppress(msgspec.ValidationError):
            await self._kube.api.create(binding, asked.name, namespace=asked.namespace)

    async def pod(self, namespace: str, name: str) -> PodRow | None:
        doing = f"read {namespace}/{name}"
        try:
            with translated(doing):
                found = await self._kube.api.get(Pod, name, namespace=namespace)
        except KubeMissing:
            return None
        try:
            return pods.read(found, self._names)
        except ValueError as error:
            raise KubeRefused(f"{doing}: {error}") from error

    async def annotate(self, node: str, annotation: str, text: str) -> None:
        said = {"metadata": {"annotations": {annotation: text}}}
        with translated(f"annotate node {node}"):
            await self._kube.api.patch(Node, node, said, patch_type=PatchType.MERGE)
