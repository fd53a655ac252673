"""Calls back what quotas use beyond their shares, turn after turn. Run by `service`; leader only.

The plan is `overuse`'s; it is carried out by the executor of `scheduler_bridge.evictions`, with its
paces, budgets and refusals: disruption budgets hold, and no online pod can become a victim. A pod
that may not go, or does not get away in time, is left alone for a while, so that others are tried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from agents.eviction import labels as eviction
from scheduler_bridge.admission.cluster import Cluster
from scheduler_bridge.admission.overuse import Overuse, Recalled
from scheduler_bridge.admission.pod import PodView
from scheduler_bridge.admission.webhook import Webhook
from scheduler_bridge.evictions.budget import Budget, Limits
from scheduler_bridge.evictions.executor import Api, Executor
from scheduler_bridge.evictions.pod import LivePod
from scheduler_bridge.evictions.queue import Queue, of_quota
from scheduler_bridge.metrics import Metrics
from schemas.records import EvictionReport

log = logging.getLogger("slackwater.admission")
TURN_S = 1.0
EXPIRE_MS = 60_000
LEFT_ALONE_MS = 300_000


class RecallKeeper:
    """The rules of now are the webhook's. ``dry_run``: the API server judges, and nobody goes."""

    def __init__(
        self,
        webhook: Webhook,
        cluster: Cluster,
        metrics: Metrics,
        leads: Callable[[], bool],
        api: Api,
        *,
        dry_run: bool = False,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._webhook = webhook
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._clock = clock
        self._rule = webhook.rules.recall
        self._overuse = Overuse(self._rule.after_s * 1000, self._rule.most)
        self._queue = Queue(EXPIRE_MS)
        self._pods: dict[str, LivePod] = {}
        self._left_alone: dict[str, int] = {}
        self._executor = Executor(
            self._queue,
            Budget(Limits()),
            api,
            self._pods,
            self._said,
            leads,
            lambda _node: False,
            dry_run=dry_run,
        )

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
        now_ms = self._clock()
        due = self._due(now_ms) if rule.enabled else []
        self._metrics.set("admission_recalls_due", len(due))
        self._hand_over(due, now_ms)
        await self._executor.turn(self._clock)

    def _due(self, now_ms: int) -> list[Recalled]:
        self._left_alone = {uid: at for uid, at in self._left_alone.items() if at > now_ms}
        hook = self._webhook
        alone = self._left_alone.keys()
        return self._overuse.due(hook.tree, hook.book, hook.total, now_ms, alone)

    def _hand_over(self, due: list[Recalled], now_ms: int) -> None:
        """Ask for those that are due, and for nobody who is due no more."""
        views = {
            kept.view.uid: kept.view
            for kept in (self._cluster.pods.objects.values() if due else ())
        }
        self._pods.clear()
        for one in due:
            view = views.get(one.uid)
            if view is None:
                continue
            self._pods[one.uid] = _live(view)
            pair = [(one.uid, view.node)]
            for request in of_quota(pair, one.quota, now_ms, now_ms + EXPIRE_MS):
                if self._queue.ask(request):
                    log.info("%s/%s is to be called back: %s", one.namespace, one.name, one.why)
        for uid in self._queue.pending.keys() - self._pods.keys():
            del self._queue.pending[uid]

    def _said(self, report: EvictionReport) -> None:
        self._metrics.count("admission_recalls", report.outcome)
        if report.outcome in ("refused", "expired"):
            self._left_alone[report.pod] = self._clock() + LEFT_ALONE_MS
        log.info(
            "%s/%s called back: %s (%s)%s",
            report.namespace,
            report.name,
            report.outcome,
            report.reason,
            ", dry run" if report.dry_run else "",
        )


def _live(view: PodView) -> LivePod:
    """As the executor knows pods; it looks at the live one before it asks."""
    said = view.annotations.get(eviction.POLICIES_ANNOTATION)
    return LivePod(
        uid=view.uid,
        namespace=view.namespace,
        name=view.name,
        node=view.node,
        classes=view.classes,
        may_go=eviction.may_go(view.classes, view.labels, view.annotations),
        features=eviction.canonical(eviction.policies(said)),
        workload="",
    )
