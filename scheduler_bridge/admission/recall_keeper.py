"""Calls back what quotas use beyond their shares, turn after turn. Run by `service`; leader only.

The plan is `overuse`'s; who goes is asked of the Eviction API one by one, and a budget that forbids
it is asked again at the next turn, under the plan of then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum

from scheduler_bridge.admission.cluster import Cluster
from scheduler_bridge.admission.overuse import Overuse, Recalled
from scheduler_bridge.admission.webhook import Webhook
from scheduler_bridge.metrics import Metrics

log = logging.getLogger("slackwater.admission")
TURN_S = 1.0
Executor = Callable[[Recalled], Awaitable[str]]
"""Asks for the end of one pod; returns what became of it, in a word. Never raises."""


class Recalls(StrEnum):
    """What is done about a plan."""

    evict = "evict"
    tell = "tell"


async def tell(_: Recalled) -> str:
    """Do nothing: the log says who would go."""
    return "told"


class RecallKeeper:
    """``execute`` carries out; the rules of now are the webhook's."""

    def __init__(
        self,
        webhook: Webhook,
        cluster: Cluster,
        metrics: Metrics,
        leads: Callable[[], bool],
        execute: Executor,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._webhook = webhook
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._execute = execute
        self._clock = clock
        rule = webhook.rules.recall
        self._overuse = Overuse(rule.after_s * 1000, rule.most)
        self._rule = rule

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._leads() and self._cluster.fresh:
                await self.turn()
            await asyncio.sleep(TURN_S)

    async def turn(self) -> None:
        """Look at all quotas, and call back what is due."""
        rule = self._webhook.rules.recall
        if rule != self._rule:
            self._rule, self._overuse = rule, Overuse(rule.after_s * 1000, rule.most)
        if not rule.enabled:
            return
        webhook = self._webhook
        due = self._overuse.due(webhook.tree, webhook.book, webhook.total, self._clock())
        self._metrics.set("admission_recalls_due", len(due))
        for one in due:
            if not self._leads():
                return
            outcome = await self._execute(one)
            self._metrics.count("admission_recalls", outcome)
            log.info("%s/%s is called back (%s): %s", one.namespace, one.name, outcome, one.why)
