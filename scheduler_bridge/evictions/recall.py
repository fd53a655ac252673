"""Pods of over-used quotas called back through the Eviction API: one call for admission's keeper.

Its limits are its own process's, beside the evictor's. Who is no best-effort pod, or opted out,
is refused as everywhere; what cannot go now is asked for again by the keeper's next turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from asyncio_throttle.throttler import Throttler

from scheduler_bridge.evictions.api import EvictionApi
from scheduler_bridge.evictions.budget import Budget, Limits
from scheduler_bridge.evictions.victim import NotAVictim, victim
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError
from scheduler_bridge.life import mono_ms

log = logging.getLogger("slackwater.evictor")


class Recaller:
    """``per_s``: calls of the API server a second at most. Only who leads may call."""

    def __init__(
        self,
        kube: Kube,
        limits: Limits,
        *,
        per_s: int = 10,
        dry_run: bool = False,
        clock: Callable[[], int] = mono_ms,
    ) -> None:
        self._api = EvictionApi(kube)
        self._budget = Budget(limits)
        self._throttle = Throttler(rate_limit=per_s, period=1.0)
        self._dry_run = dry_run
        self._clock = clock

    async def recall(self, uid: str, namespace: str, name: str) -> str:
        """Ask for the end of exactly this pod. What became of it, in a word: ``evicted``, ``gone``,
        ``going``, why it may not go, or what stands against it now. Never raises.
        """
        async with self._throttle:
            try:
                pod = await self._api.look(namespace, name)
            except KubeError as error:
                log.warning("%s", error)
                return "api_away"
            if pod is None or pod.uid != uid:
                return "gone"
            if not pod.active:
                return "going"
            stands = self._budget.refusal(self._clock(), pod.node, pod.namespace)
            if stands:
                return stands
            try:
                chosen = victim(pod, "quota")
            except NotAVictim as error:
                return error.reason
            answer = await self._api.evict(chosen, dry_run=self._dry_run)
        if answer.kind == "evicted":
            self._budget.learn(self._clock(), pod.node, pod.namespace, pod.uid)
        return answer.kind if answer.kind in ("evicted", "gone") else answer.reason or answer.kind
