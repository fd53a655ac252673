"""The two questions of the API server, answered by the pure rules. Routes of the HTTP server.

Whoever cannot answer honestly fails, and the webhook's failure policy decides: pods that borrow
wait, online pods go on. A dry run leaves no trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scheduler_bridge.admission import mutate, review, validate
from scheduler_bridge.admission.cluster import Cluster, KeptPod
from scheduler_bridge.admission.names import Resources
from scheduler_bridge.admission.pod import read
from scheduler_bridge.admission.profile import ProfileError
from scheduler_bridge.admission.quota import NOBODYS, QuotaRefused, Tree
from scheduler_bridge.admission.quota_book import QuotaBook, entry_of
from scheduler_bridge.admission.rules import Rules
from scheduler_bridge.http import BadQuestion, Handler
from scheduler_bridge.metrics import Metrics

MUTATE_PATH = "/mutate"
VALIDATE_PATH = "/validate"


class Webhook:
    """Counts in ``book`` what it lets in; `use` takes new rules and counts anew under them."""

    def __init__(
        self,
        cluster: Cluster,
        rules: Rules,
        names: Resources,
        metrics: Metrics,
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._cluster = cluster
        self._names = names
        self._metrics = metrics
        self._clock = clock
        self.rules = rules
        self.tree = Tree(rules, names)
        self.book = QuotaBook()
        cluster.pods.listen(self._pod_changed)

    @property
    def routes(self) -> dict[str, Handler]:
        return {MUTATE_PATH: self.mutate, VALIDATE_PATH: self.validate}

    @property
    def total(self) -> dict[str, int]:
        """What quotas share: as the rules say, else what the nodes give."""
        return {**self._cluster.total, **self.tree.said_total}

    def use(self, rules: Rules) -> None:
        """New rules: every pod is counted again."""
        self.rules = rules
        self.tree = Tree(rules, self._names)
        before, self.book = self.book, QuotaBook()
        self.book.take_over(before, self._clock())
        for key, kept in self._cluster.pods.objects.items():
            self._pod_changed(key, None, kept)

    async def mutate(self, body: bytes) -> bytes:
        """Answer for a pod that is to be created. Raises BadQuestion."""
        asked = review.question(body)
        self._check_ready()
        if asked.operation != "CREATE":
            return self._yes("mutate", review.allowed(asked))
        labels = await self._cluster.namespace_labels(asked.namespace)
        if labels is None:
            raise BadQuestion(f"namespace {asked.namespace} cannot be read now: try again")
        try:
            changed = mutate.mutate(
                asked.pod,
                asked.namespace,
                labels,
                asked.uid,
                self.rules,
                self._names,
                self._cluster.priorities,
            )
        except ProfileError as error:
            return self._no("mutate", asked, [f"profile_unusable: {error}"])
        except ValueError as error:
            raise BadQuestion(str(error)) from None
        return self._yes(
            "mutate", review.allowed(asked, changed.patch, changed.warnings, changed.notes)
        )

    async def validate(self, body: bytes) -> bytes:
        """Answer for a pod as it will be stored. Raises BadQuestion."""
        asked = review.question(body)
        self._check_ready()
        try:
            new = read(asked.pod, self._names, asked.namespace)
            old = None if asked.old is None else read(asked.old, self._names, asked.namespace)
        except ValueError as error:
            raise BadQuestion(str(error)) from None
        if asked.operation == "UPDATE" and old is not None:
            verdict = validate.update(new, old, self.rules, self._names)
        else:
            now_ms = self._clock()
            self._expire(now_ms)
            verdict = validate.creation(
                new, self.rules, self._names, self.tree, self.book, self.total
            )
            if verdict.entry is not None and not asked.dry_run:
                self.book.let_in(verdict.entry, now_ms)
        if verdict.complaints:
            return self._no("validate", asked, verdict.complaints)
        return self._yes("validate", review.allowed(asked))

    def _expire(self, now_ms: int) -> None:
        for _ in range(self.book.expire(now_ms)):
            self._metrics.count("admission_unseen")

    def _check_ready(self) -> None:
        if not self._cluster.fresh:
            raise BadQuestion("the cluster's pods are not known yet, or too old: try again")

    def _pod_changed(self, _key: str, before: KeptPod | None, after: KeptPod | None) -> None:
        """The mirror's listener: it must not raise."""
        if before is not None and (after is None or after.view.uid != before.view.uid):
            self.book.see(before.view.uid, None)
        if after is None:
            return
        view = after.view
        if view.over:
            self.book.see(view.uid, None)
            return
        try:
            quota = self.tree.quota_of(view)
        except QuotaRefused:
            quota = NOBODYS
        self.book.see(view.uid, entry_of(view, quota, self._names, self.rules.free))

    def _yes(self, which: str, answer: bytes) -> bytes:
        self._metrics.count("admission_reviews", which, "allowed")
        return answer

    def _no(self, which: str, asked: review.Question, complaints: list[str]) -> bytes:
        self._metrics.count("admission_reviews", which, "refused")
        for one in complaints:
            self._metrics.count("admission_refusals", one.partition(":")[0])
        return review.refused(asked, complaints)
