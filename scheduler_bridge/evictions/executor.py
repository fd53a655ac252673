"""Works the queue off: looks at the live pod, asks, says what became of it. Made by `loop`.

One call at a time, at a pace; budgets before each. Only who leads gets here. A crash between the
call and its report costs nothing: the next one finds the pod on its way, or gone, or another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from asyncio_throttle.throttler import Throttler

from scheduler_bridge.evictions.api import WAIT_S, Answer
from scheduler_bridge.evictions.budget import Budget
from scheduler_bridge.evictions.pod import LivePod
from scheduler_bridge.evictions.queue import LAST_WORDS, Pending, Queue, Request
from scheduler_bridge.evictions.victim import NotAVictim, Victim, victim
from scheduler_bridge.kube.errors import KubeError
from schemas.records import EvictionOutcome, EvictionReport

log = logging.getLogger("slackwater.evictor")
UNKNOWN_MS = 3_000  # a pod that the mirror does not show for so long is gone
BUDGET_WAIT_MS = 500


class Api(Protocol):
    """What is needed of `api.EvictionApi`."""

    async def look(self, namespace: str, name: str) -> LivePod | None:
        """The live pod of that name. Raises KubeError."""

    async def evict(self, pod: Victim, *, dry_run: bool) -> Answer:
        """Ask once."""

    async def delete(self, pod: Victim, *, dry_run: bool) -> Answer:
        """Where no Eviction API is served."""


class Executor:
    """``pods``: the mirror, by uid; ``say`` publishes; ``may_delete``: policy, by node.

    ``here``: whether a node is one of this API server's; of others nothing is asked or said, for
    an installation may have several clusters, each with an evictor of its own.
    """

    def __init__(
        self,
        queue: Queue,
        budget: Budget,
        api: Api,
        pods: Mapping[str, LivePod],
        say: Callable[[EvictionReport], None],
        leads: Callable[[], bool],
        here: Callable[[str], bool],
        may_delete: Callable[[str], bool],
        *,
        per_s: int = 10,
        dry_run: bool = False,
    ) -> None:
        self.queue, self.budget = queue, budget
        self._api, self._pods, self._say = api, pods, say
        self._leads, self._here, self._may_delete = leads, here, may_delete
        self._throttle = Throttler(rate_limit=per_s, period=1.0)
        self._dry_run = dry_run
        self._away_until_ms = 0  # the API server did not answer: nobody else is asked for so long
        self._missed: dict[str, int] = {}  # uid -> since when the mirror does not show it

    async def turn(self, now: Callable[[], int]) -> int:
        """Everybody who is due, once; returns how many calls were made. ``now``: log time."""
        for old in self.queue.beaten():
            self._close(Pending(old), now(), "refused", "superseded", self._pods.get(old.uid))
        for late in self.queue.expired(now()):
            reason = late.waiting_for or "not_in_time"
            self._close(late, now(), "expired", reason, self._pods.get(late.request.uid))
        calls = 0
        for pending in self.queue.due(now()):
            if not self._leads() or now() < self._away_until_ms:
                break
            known = self.queue.pending.get(pending.request.uid) is pending
            if known and self._here(pending.request.node):
                calls += await self._serve(pending, now)
        self.queue.forget(now())
        return calls

    async def _serve(self, pending: Pending, now: Callable[[], int]) -> bool:
        """One request; whether the Eviction API was called."""
        request = pending.request
        known = self._pods.get(request.uid)
        if known is None:
            self._unknown(pending, now())
            return False
        self._missed.pop(request.uid, None)
        stands = self.budget.refusal(now(), known.node, known.namespace)
        if stands:
            self._wait(pending, now(), stands, BUDGET_WAIT_MS, known)
            return False
        async with self._throttle:
            # The live pod, not the mirror's, says whether it may go; its uid goes into the call.
            try:
                pod = await self._api.look(known.namespace, known.name)
            except KubeError as error:
                log.warning("%s", error)
                wait_ms = WAIT_S["api_away"] * 1000
                self._away_until_ms = now() + wait_ms
                self._wait(pending, now(), "api_away", wait_ms, known)
                return False
            chosen = self._chosen(pending, pod, known, now())
            if pod is None or chosen is None or not self._leads():
                return False
            pending.tries += 1
            answer = await self._ask(chosen, request)
        self._note(pending, answer, pod, now())
        return True

    async def _ask(self, chosen: Victim, request: Request) -> Answer:
        dry_run = self._dry_run or request.dry_run
        answer = await self._api.evict(chosen, dry_run=dry_run)
        if answer.kind == "unserved" and self._may_delete(request.node):
            answer = await self._api.delete(chosen, dry_run=dry_run)
        return answer

    def _chosen(
        self, pending: Pending, pod: LivePod | None, known: LivePod, now_ms: int
    ) -> Victim | None:
        """The victim, or None with the reason said."""
        request = pending.request
        if pod is None or pod.uid != request.uid:
            self._close(pending, now_ms, "gone", "no_such_pod", known)
            return None
        if pod.terminating or pod.over:
            self._close(pending, now_ms, "gone", "going" if pod.terminating else "over", pod)
            return None
        if request.node and pod.node != request.node:
            self._close(pending, now_ms, "refused", "other_node", pod)
            return None
        try:
            return victim(pod, request.source)
        except NotAVictim as error:
            self._close(pending, now_ms, "refused", error.reason, pod)
            return None

    def _note(self, pending: Pending, answer: Answer, pod: LivePod, now_ms: int) -> None:
        if answer.kind == "evicted":
            self.budget.learn(now_ms, pod.node, pod.namespace, pod.uid)
            self._close(pending, now_ms, "evicted", answer.reason or "accepted", pod)
        elif answer.kind == "gone":
            self._close(pending, now_ms, "gone", answer.reason, pod)
        elif answer.kind == "unserved":
            self._close(pending, now_ms, "refused", "no_eviction_api", pod)
        else:
            if answer.detail and pending.waiting_for != answer.reason:
                log.info("%s/%s waits: %s", pod.namespace, pod.name, answer.detail)
            self._wait(pending, now_ms, answer.reason, answer.wait_ms, pod)

    def _unknown(self, pending: Pending, now_ms: int) -> None:
        """A pod that is not in the mirror: perhaps not yet, and after a while no more."""
        uid = pending.request.uid
        if now_ms - self._missed.setdefault(uid, now_ms) >= UNKNOWN_MS:
            self._close(pending, now_ms, "gone", "no_such_pod", None)
        else:
            pending.not_before_ms = now_ms + BUDGET_WAIT_MS

    def _wait(
        self, pending: Pending, now_ms: int, reason: str, wait_ms: int, pod: LivePod | None
    ) -> None:
        pending.not_before_ms = now_ms + wait_ms
        pending.waiting_for = reason
        if pending.said != reason:
            pending.said = reason
            self._report(pending, "waiting", reason, pod)

    def _close(
        self, pending: Pending, now_ms: int, outcome: EvictionOutcome, reason: str,
        pod: LivePod | None,
    ) -> None:  # fmt: skip
        assert outcome in LAST_WORDS
        self._missed.pop(pending.request.uid, None)
        self.queue.close(pending.request.key, now_ms)
        if self._here(pending.request.node):
            self._report(pending, outcome, reason, pod)

    def _report(
        self, pending: Pending, outcome: EvictionOutcome, reason: str, pod: LivePod | None
    ) -> None:
        request = pending.request
        self._say(
            EvictionReport(
                node=request.node,
                pod=request.uid,
                source=request.source,
                outcome=outcome,
                reason=reason,
                why=request.why,
                command_id=request.id,
                namespace="" if pod is None else pod.namespace,
                name="" if pod is None else pod.name,
                workload="" if pod is None else pod.workload,
                tries=pending.tries,
                asked_log_ms=request.asked_ms,
                until_log_ms=request.until_ms,
                dry_run=self._dry_run or request.dry_run,
                terms=request.terms,
            )
        )
