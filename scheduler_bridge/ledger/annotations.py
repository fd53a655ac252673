"""Keeps the peer's two annotations of shared nodes true; told of by `third_party`.

A task of the bridge beside the keeper. They explain and bind nobody, so a failure waits for the
next turn. A patch names the version that it was made from: what another allocator wrote in between
is not lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError, translated
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.ledger.third_party import ALLOCATIONS, ORIGIN, origin, with_ours
from scheduler_bridge.reconcile import Amount

log = logging.getLogger("slackwater.bridge")
TURN_S = 1.0


@dataclass(frozen=True, slots=True)
class Notes:
    """What a node object says; "" where it says nothing."""

    version: str
    origin: str
    allocations: str


@dataclass(frozen=True, slots=True)
class Said:
    """What it should say: batch that could be lent, and what each of our allocators holds of it."""

    lendable: Amount
    held: Mapping[str, Amount]


def notes_of(node: Any) -> Notes:
    """Of a node object."""
    found = node.metadata.annotations or {}
    version = str(node.metadata.resourceVersion or "")
    return Notes(version, str(found.get(ORIGIN, "")), str(found.get(ALLOCATIONS, "")))


class Annotations:
    """``wanted``: by node, of those where somebody else borrows; ``may_tell`` as for the sink."""

    def __init__(
        self,
        kube: Kube,
        mirror: Mirror[Notes],
        wanted: Callable[[], Mapping[str, Said]],
        may_tell: Callable[[], bool],
        names: tuple[str, str],
    ) -> None:
        self._kube = kube
        self._mirror = mirror
        self._wanted = wanted
        self._may_tell = may_tell
        self._names = names

    async def run(self) -> None:
        """Once a second, until cancelled."""
        while True:
            if self._mirror.synced and self._may_tell():
                for node, said in self._wanted().items():
                    await self._keep(node, said)
            await asyncio.sleep(TURN_S)

    async def _keep(self, node: str, said: Said) -> None:
        notes = self._mirror.objects.get(node)
        if notes is None:
            return
        wanted = {
            ORIGIN: origin(said.lendable, *self._names),
            ALLOCATIONS: with_ours(notes.allocations, said.held, *self._names),
        }
        if wanted == {ORIGIN: notes.origin, ALLOCATIONS: notes.allocations}:
            return
        meta = {"resourceVersion": notes.version, "annotations": wanted}
        try:
            with translated(f"annotate node {node}"):
                await self._kube.api.patch(
                    Node.Status, node, {"metadata": meta}, patch_type=PatchType.MERGE
                )
        except KubeError as error:
            log.debug("%s; trying again", error)
