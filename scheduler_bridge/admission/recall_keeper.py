"""Calls back what quotas use beyond their shares, turn after turn. Run by `service`; leader only.

The plan is `overuse`'s; each pod of it is asked for by `scheduler_bridge.evictions.recall`, with
its pace, budgets and refusals: disruption budgets hold, and no online pod can become a victim. Who
may not go, or does not get away in time, is left alone for a while, so that others are tried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from scheduler_bridge.admission.cluster import Cluster
from scheduler_bridge.admission.overuse import Overuse, Recalled
from scheduler_bridge.admission.webhook import Webhook
from scheduler_bridge.life import mono_ms
from scheduler_bridge.metrics import Metrics

log = logging.getLogger("slackwater.admission")
TURN_S = 1.0
REFUSALS = ("not_best_effort", "opted_out")
Ask = Callable[[str, str, str], Awaitable[str]]
"""Ask for the end of a pod by uid, namespace and name: what became of it, in a word."""


class RecallKeeper:
    """The rules of now are the webhook's; ``ask`` never raises."""

    def __init__(
        self,
        webhook: Webhook,
        cluster: Cluster,
        metrics: Metrics,
        leads: Callable[[], bool],
        ask: Ask,
        clock: Callable[[], int] = mono_ms,
    ) -> None:
        self._webhook = webhook
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._ask = ask
        self._clock = clock
        self._rule = webhook.rules.recall
        self._overuse = Overuse(self._rule.after_s * 1000, self._rule.most)
        self._asked: dict[str, tuple[int, str]] = {}
        self._left_alone: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._leads() and self._cluster.fresh:
                await self.turn()
            await asyncio.sleep(TURN_S)

    async def turn(self) -> None:
        """Look at all quotas, and ask for those that are due, the least important first."""
        hook, rule = self._webhook, self._webhook.rules.recall
        if rule != self._rule:
            self._rule, self._overuse = rule, Overuse(rule.after_s * 1000, rule.most)
        now_ms = self._clock()
        self._left_alone = {uid: at for uid, at in self._left_alone.items() if at > now_ms}
        due: list[Recalled] = []
        if rule.enabled:
            alone = self._left_alone.keys()
            due = self._overuse.due(hook.tree, hook.book, hook.total, now_ms, alone)
        self._metrics.set("admission_recalls_due", len(due))
        asked = {one.uid for one in due}
        self._asked = {uid: said for uid, said in self._asked.items() if uid in asked}
        for one in due:
            if not self._leads():
                return
            self._note(one, await self._ask(one.uid, one.namespace, one.name))

    def _note(self, one: Recalled, outcome: str) -> None:
        """Count and tell what is new; leave alone who cannot be made to go."""
        now_ms = self._clock()
        since_ms, before = self._asked.get(one.uid, (now_ms, ""))
        self._asked[one.uid] = since_ms, outcome
        if outcome != before:
            self._metrics.count("admission_recalls", outcome)
            log.info("%s/%s is called back: %s (%s)", one.namespace, one.name, outcome, one.why)
        if outcome in REFUSALS or now_ms - since_ms >= self._rule.patience_s * 1000:
            self._left_alone[one.uid] = now_ms + self._rule.left_alone_s * 1000
