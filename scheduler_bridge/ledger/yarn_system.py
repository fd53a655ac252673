"""YARN as a borrower of the ledger: looks once a second, tells falls at once and first.

A task of the bridge beside `scheduler_bridge.ledger.keeper`. What the ResourceManager shows of a
node is corrected whenever it differs, so that neither its restart nor a NodeManager's leaves it
wrong for longer than a look. Less than what runs is never shown: YARN has no word for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from asyncio_throttle.throttler import Throttler

from scheduler_bridge.ledger.amounts import NOTHING, larger, within
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.shares import ENDLESS, Seen, System
from scheduler_bridge.ledger.yarn import GRAIN, YarnNode, YarnView, shown_as
from scheduler_bridge.life import mono_ms
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.sinks.yarn import ResourceManager

log = logging.getLogger("slackwater.bridge")
LOOK_S = 1.0
SETTLE_MS = 1_000
"""For so long after a beginning, or an update without an answer, one may still be on its way."""
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
        self._under_way: dict[str, Amount] = {}
        """By node what it was told, or may have been, and no look has shown since."""
        self._settled_ms = 0
        self.sure = False
        self.looks = 0

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._view.nodes)

    def held_on(self, node: str) -> Mapping[str, Held]:
        return {self.system.name: Held(self._of(node).held)} if self.sure else {}

    def seen(self, node: str, mono_ms: int) -> Seen:
        """What it shows and what runs are said in one breath; an update under way counts as shown.

        Not settled for a while after our beginning: a bridge before us may have sent one.
        """
        one = self._of(node)
        shows = larger(one.shows, self._under_way.get(node, NOTHING))
        settled = self.looks > 0 and mono_ms >= self._settled_ms
        waits = ENDLESS if self._view.waits and one.id else NOTHING
        return Seen(shows, one.held, waits, settled=settled, sure=self.sure, here=bool(one.id))

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
        for node, _ in sorted(self._differing(), key=self._urgency):
            async with self._throttle:
                if self._may_tell():
                    told += await self._tell(node)
        if told:
            await self._look()

    async def _look(self) -> None:
        answer = await self._manager.look()
        now_ms = mono_ms()
        if not self.looks:
            self._settled_ms = now_ms + SETTLE_MS
        if now_ms >= self._settled_ms:
            self._under_way.clear()  # nothing is told during a look: it shows what was told before
        self._view.take(answer, self._known(), now_ms)
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

    async def _tell(self, node: str) -> int:
        """What is wanted now: it may be less than when this turn began."""
        amount, one = self._shown_to(node), self._of(node)
        if not one.id or one.shows == amount:
            return 0
        self._under_way[node] = amount
        try:
            await self._manager.tell(one.id, amount)
        except OSError as error:
            self._settled_ms = mono_ms() + SETTLE_MS
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
        for node in self._wants:
            one, amount = self._of(node), self._shown_to(node)
            if one.id and one.shows != amount:
                found.append((node, amount))
        return found

    def _shown_to(self, node: str) -> Amount:
        return shown_as(larger(self._wants[node], self._of(node).held))

    def _urgency(self, one: tuple[str, Amount]) -> tuple[bool, str]:
        node, amount = one
        return within(self._of(node).shows, amount), node

    def _of(self, node: str) -> YarnNode:
        return self._view.nodes.get(node, NOWHERE)
