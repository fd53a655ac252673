"""Per NUMA zone: batch amounts in the cluster's NodeResourceTopology objects, where it has them.

The sink calls `tell` after a node's own numbers. Objects are made by whoever measures topology,
never by us; in one that stands, only our names in the zones' resources change. Sources: the
topology.node.k8s.io API, versions v1alpha2 and v1alpha1; koordinator
`noderesource/plugins/batchresource/plugin.go` (zones that carry cpu or memory; sorted by name).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from lightkube.generic_resource import GenericGlobalResource, create_global_resource
from lightkube.types import PatchType

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeConflict, KubeMissing, translated
from scheduler_bridge.kube.quantities import from_whole
from scheduler_bridge.reconcile import Zones

log = logging.getLogger("slackwater.bridge")
GROUP = "topology.node.k8s.io"
VERSIONS = ("v1alpha2", "v1alpha1")
ASK_AGAIN_S = 60.0
TRIES = 3
_ZONE = re.compile(r"(?:^|\D)(\d{1,4})$")


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class Topology:
    """Zones of nodes; asks now and then whether the cluster has the kind at all."""

    def __init__(self, kube: Kube, cpu_name: str, memory_name: str) -> None:
        self._kube = kube
        self._names = (cpu_name, memory_name)
        self._kind: type[GenericGlobalResource] | None = None
        self._ask_s = float("-inf")

    async def tell(self, node: str, zones: Zones) -> bool:
        """Write a node's zones if they differ; whether that was needed. Raises KubeError."""
        kind = await self._found()
        if kind is None or not zones:
            return False
        for attempt in range(1, TRIES + 1):
            try:
                return await self._tell(kind, node, zones)
            except KubeMissing:
                return False
            except KubeConflict:
                if attempt == TRIES:
                    raise
        return False

    async def _tell(self, kind: type[GenericGlobalResource], node: str, zones: Zones) -> bool:
        with translated(f"read the topology of {node}"):
            found = await self._kube.api.get(kind, node)
        now = with_ours(found.get("zones") or [], zones, self._names)
        if now is None:
            return False
        assert found.metadata is not None
        # A list is replaced whole, so only in the very version that it was read from.
        said = {"metadata": {"resourceVersion": found.metadata.resourceVersion}, "zones": now}
        with translated(f"patch the topology of {node}"):
            await self._kube.api.patch(kind, node, said, patch_type=PatchType.MERGE)
        return True

    async def _found(self) -> type[GenericGlobalResource] | None:
        """The kind, in the newest version that both know."""
        if self._kind is None and time.monotonic() - self._ask_s >= ASK_AGAIN_S:
            try:
                raw = await self._kube.get(f"/apis/{GROUP}", {})
                with translated(f"versions of {GROUP}"):
                    served = {one.version for one in msgspec.json.decode(raw, type=_Group).versions}
            except KubeMissing:
                served = set()
            self._ask_s = time.monotonic()
            for version in VERSIONS:
                if version in served:
                    self._kind = create_global_resource(
                        GROUP, version, "NodeResourceTopology", "noderesourcetopologies"
                    )
                    log.info("zones are told to %s/%s", GROUP, version)
                    break
        return self._kind


def with_ours(
    zones: Sequence[dict[str, Any]], amounts: Zones, names: tuple[str, str]
) -> list[dict[str, Any]] | None:
    """The zones with our resources in them, or None when they are there already.

    A zone is known by the number that its name ends with; others, and those that carry neither cpu
    nor memory, stay as they are.
    """
    result = []
    for zone in zones:
        at = _ZONE.search(str(zone.get("name", "")))
        index = int(at[1]) if at is not None else len(amounts)
        resources = zone.get("resources") or []
        if index < len(amounts) and {"cpu", "memory"} & {one.get("name") for one in resources}:
            ours = zip(names, amounts[index], strict=True)
            others = [one for one in resources if one.get("name") not in names]
            every = others + [_resource(*one) for one in ours]
            result.append({**zone, "resources": sorted(every, key=lambda one: str(one["name"]))})
        else:
            result.append(zone)
    return None if _comparable(result) == _comparable(zones) else result


def _resource(name: str, amount: int) -> dict[str, str]:
    said = from_whole(amount)
    return {"name": name, "capacity": said, "allocatable": said, "available": said}


def _comparable(zones: Sequence[dict[str, Any]]) -> list[tuple[Any, list[tuple[str, ...]]]]:
    """Name and resources, with numbers as text: a server may give integers back as such."""
    return [
        (
            zone.get("name"),
            sorted(
                tuple(str(one.get(key)) for key in ("name", "capacity", "allocatable", "available"))
                for one in zone.get("resources") or []
            ),
        )
        for zone in zones
    ]
