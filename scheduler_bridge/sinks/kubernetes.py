"""The sink of a Kubernetes cluster: extended resources in the status of its nodes.

`observed` is a mirror of the nodes, so that what a kubelet wipes is seen and told again. Of several
bridges the leader tells. Two that believe to lead would do no harm: a patch names the version of
the node that it was decided on, and numbers that come from later in the log are never overwritten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping
from typing import ClassVar

from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.election import Election
from scheduler_bridge.kube.errors import (
    KubeConflict,
    KubeError,
    KubeMissing,
    KubeUnreachable,
    translated,
)
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.kube.node_status import Names, Shown, body, shown
from scheduler_bridge.kube.topology import Topology
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Observed, Patch

log = logging.getLogger("slackwater.bridge")
TRIES = 5
"""How often one patch meets a 409 before it goes out without naming a version."""


class NotLeading(KubeError):
    """Another bridge tells now."""


class Kubernetes:
    """``names`` are those of the four resources. The election is `run` with the sink."""

    NAME: ClassVar[str] = "kubernetes"

    def __init__(self, kube: Kube, election: Election, names: Names, metrics: Metrics) -> None:
        self.kube = self._kube = kube
        self._election = election
        self._names = names
        self._metrics = metrics
        self._topology = Topology(kube, names[0], names[1])
        self._mirror: Mirror[Shown] = Mirror(kube, Node, lambda node: shown(node, names))
        self._mirror.listen(self._changed)
        self._shown: dict[str, Shown] = {}
        self._observed: dict[str, Observed] = {}

    @property
    def ready(self) -> bool:
        return self._mirror.synced

    @property
    def may_tell(self) -> bool:
        return self._election.leads

    @property
    def observed(self) -> Mapping[str, Observed]:
        return self._observed

    @property
    def nodes(self) -> Container[str]:
        return self._shown.keys()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._mirror.run())
                group.create_task(self._election.run())
        finally:
            await self._kube.close()

    async def tell(self, patch: Patch) -> None:
        """Patch one node's status, and its zones. A node that is gone is passed over."""
        known = self._shown.get(patch.node)
        try:
            if known is None or not await self._write(patch, known):
                return
        except KubeMissing:
            self._metrics.count("sink_events", "node_gone")
            return
        if patch.zones:
            await self._write_zones(patch)

    def close(self) -> None:
        """Connections were closed by `run`."""

    async def _write(self, patch: Patch, known: Shown) -> bool:
        """Patch, again after each 409; false when something newer stands there already."""
        for _ in range(TRIES):
            if known.observed is not None and known.observed.order > patch.order:
                self._metrics.count("sink_events", "newer_there")
                return False
            try:
                await self._patch(patch, known.version)
            except KubeConflict:
                self._metrics.count("sink_events", "conflict")
                known = await self._read(patch.node)
            else:
                return True
        # Someone writes this node all the time; the API server itself can wait for its turn.
        await self._patch(patch, None)
        return True

    async def _patch(self, patch: Patch, version: str | None) -> None:
        if not self._election.leads:
            raise NotLeading(f"{patch.node}: another bridge leads")
        said = body(patch, self._names, version)
        within_s = self._election.write_within_s
        try:
            async with asyncio.timeout(within_s):
                with translated(f"patch node {patch.node}"):
                    node = await self._kube.api.patch(
                        Node.Status, patch.node, said, patch_type=PatchType.MERGE
                    )
        except TimeoutError:
            raise KubeUnreachable(
                f"patch node {patch.node}: no answer while this bridge surely leads "
                f"({within_s:.1f} s)"
            ) from None
        if patch.node in self._shown:  # else it went while the answer came
            self._changed(patch.node, None, shown(node, self._names))

    async def _read(self, name: str) -> Shown:
        with translated(f"read node {name}"):
            found = shown(await self._kube.api.get(Node, name), self._names)
        if name in self._shown:
            self._changed(name, None, found)
        return found

    async def _write_zones(self, patch: Patch) -> None:
        """Zones are a refinement: where they cannot be told, the node's numbers still hold."""
        try:
            if await self._topology.tell(patch.node, patch.zones):
                self._metrics.count("sink_events", "zones")
        except KubeError as error:
            self._metrics.count("sink_events", "zones_failed")
            log.warning("the zones of %s were not told: %s", patch.node, error)

    def _changed(self, name: str, _before: Shown | None, after: Shown | None) -> None:
        """Take what the mirror or an answer shows, unless something later is known already."""
        known = self._shown.get(name)
        if after is None:
            self._shown.pop(name, None)
            self._observed.pop(name, None)
            return
        if known is not None and _number(after.version) < _number(known.version):
            return
        self._shown[name] = after
        if after.observed is None:
            self._observed.pop(name, None)
        else:
            self._observed[name] = after.observed


def _number(version: str) -> int:
    """Versions of one kind are numbers that grow; what is none counts as the newest."""
    return int(version) if version.isdecimal() else 1 << 64
