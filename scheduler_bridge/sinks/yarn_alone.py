"""The sink of a fleet without Kubernetes: the keeper of the ledger tells YARN, and that is all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from scheduler_bridge.reconcile import Observed, Patch


class YarnAlone:
    """Shows nothing and is never told; see `scheduler_bridge.ledger.yarn_system`."""

    NAME: ClassVar[str] = "yarn"
    ready = True
    may_tell = False
    nodes = frozenset[str]()

    @property
    def observed(self) -> Mapping[str, Observed]:
        return {}

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def tell(self, patch: Patch) -> None:
        raise AssertionError(f"told of {patch.node} although it may not be")

    def close(self) -> None:
        """Nothing is open."""
