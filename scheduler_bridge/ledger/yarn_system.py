"""YARN as a borrower of the ledger: looks once a second, tells falls at once and first.

A task of the bridge beside `scheduler_bridge.ledger.keeper`. What the ResourceManager shows of a
node is corrected whenever it differs, so that neither its restart nor a NodeManager's leaves it
wrong for longer than a look. Less than what runs is never shown: YARN has no word for that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from asyncio_throttle.throttler import Throttler

from scheduler_bridge.ledger.amounts import NOTHING, larger, within
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.shares import ENDLESS, Seen, System
from scheduler_bridge.ledger.yarn import GRAIN, YarnNode, YarnView, shown_as
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.sinks.yarn import ResourceManager

log = logging.getLogger("slackwater.bridge")
LOOK_S = 1.0
UPDATES_PER_S = 50
NOWHERE = YarnNode("", NOTHING, NOTHING)


class YarnSystem:
    """``known``: our node names; ``may_tell``: whether this bridge may write now."""

    def __init__(
        self,
        manager: ResourceManager,
        name: str,
        known: Callable[[], Iterable[str]],
        may_tell: Callable[[], bool],
        *,
        weight: int = 1,
        learn_ms: int = 10_000,
        look_s: float = LOOK_S,
    ) -> None:
        self.system = System(name, weight, GRAIN, led=True)
        self._manager = manager
        self._known = known
        self._may_tell = may_tell
        self._look_s = look_s
        self._view = YarnView(learn_ms)
        self._wants: dict[str, Amount] = {}
        self._throttle = Throttler(rate_limit=UPDATES_PER_S, period=1.0)
        self._alerted: frozenset[str] = frozenset()
        self._odd: dict[str, str] = {}
        self._due = asyncio.Event()
        self.sure = False
        self.looks = 0

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._view.nodes)

    def held_on(self, node: str) -> Mapping[str, Held]:
        return {self.system.name: Held(self._of(node).held)} if self.sure else {}

    def seen(self, node: str, mono_ms: int) -> Seen:
        """Settled at once: the ResourceManager says what it shows and what runs in one breath."""
        del mono_ms
        one = self._of(node)
        waits = ENDLESS if self._view.waits and one.id else NOTHING
        return Seen(one.shows, one.held, waits, sure=self.sure, here=bool(one.id))

    def wants(self, node: str, amount: Amount) -> None:
        one = self._of(node)
        wanted = shown_as(larger(amount, one.held))
        if self._wants.get(node) != wanted:
            self._wants[node] = wanted
            self._due.set()

    async def run(self) -> None:
        """Look and tell until cancelled; no failure of the ResourceManager ends it."""
        try:
            while True:
                self._due.clear()
                try:
                    await self._turn()
                except OSError as error:
                    if self.sure or not self.looks:
                        log.warning("YARN does not answer: %s; what it holds stands", error)
                    self.sure = False
                await self._pause()
        finally:
            await self._manager.close()

    async def _turn(self) -> None:
        await self._look()
        if not self._may_tell():
            return
        told = 0
        for node, amount in sorted(self._differing(), key=self._urgency):
            async with self._throttle:
                told += await self._tell(node, amount)
        if told:
            await self._look()

    async def _look(self) -> None:
        answer = await self._manager.look()
        self._view.take(answer, self._known(), time.monotonic_ns() // 1_000_000)
        self.sure = True
        self.looks += 1
        if self._may_tell():  # before, our own nodes may not be known yet
            if self._view.unknown - self._alerted:
                log.warning("YARN has NodeManagers that are none of our nodes: %s",
                            ", ".join(sorted(self._view.unknown))[:500])  # fmt: skip
            self._alerted = self._view.unknown
        for node, why in self._view.odd.items():
            if node not in self._odd:
                log.warning("YARN says of %s what cannot be (%s); what it held stands", node, why)
        self._odd = self._view.odd

    async def _tell(self, node: str, amount: Amount) -> int:
        try:
            await self._manager.tell(self._view.nodes[node].id, amount)
        except OSError as error:
            log.warning("YARN was not told of %s: %s; trying again", node, error)
            return 0
        return 1

    async def _pause(self) -> None:
        """Until the next look; at once where something is to be told."""
        try:
            async with asyncio.timeout(self._look_s):
                await self._due.wait()
        except TimeoutError:
            return

    def _differing(self) -> list[tuple[str, Amount]]:
        found = []
        for node, amount in self._wants.items():
            one = self._of(node)
            if one.id and one.shows != shown_as(larger(amount, one.held)):
                found.append((node, shown_as(larger(amount, one.held))))
        return found

    def _urgency(self, one: tuple[str, Amount]) -> tuple[bool, str]:
        node, amount = one
        return within(self._of(node).shows, amount), node

    def _of(self, node: str) -> YarnNode:
        return self._view.nodes.get(node, NOWHERE)
