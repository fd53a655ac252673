"""The three questions of a scheduler, each from body to body: filter, prioritise, bind.

`service` gives these to the HTTP server. What is decided is `judge`'s and `bindings`'; here are the
forms, the refusal to answer blindly, and the counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from scheduler_bridge.extender import judge, pods
from scheduler_bridge.extender.bindings import Bindings
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.settings import ExtenderSettings
from scheduler_bridge.extender.wire import (
    Binding,
    Bound,
    Filtered,
    NodeList,
    Priority,
    Question,
    decoded,
)
from scheduler_bridge.http import BadQuestion, Handler, Unready
from scheduler_bridge.metrics import Metrics

FITS = "fits"
STEP_MS = 5


class Answers:
    """``blind`` says why nothing can be said just now, "" when it can; ``now_ms`` is log time."""

    def __init__(
        self,
        fleet: Fleet,
        bindings: Bindings,
        settings: ExtenderSettings,
        metrics: Metrics,
        blind: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        self._fleet = fleet
        self._bindings = bindings
        self._settings = settings
        self._metrics = metrics
        self._blind = blind
        self._now_ms = now_ms
        self._encode = msgspec.json.Encoder().encode

    @property
    def routes(self) -> dict[str, Handler]:
        """By path; `/bind` only where we are to bind."""
        found: dict[str, Handler] = {"/filter": self.filter, "/prioritize": self.prioritize}
        if self._settings.binds:
            found["/bind"] = self.bind
        return found

    async def filter(self, body: bytes) -> bytes:
        """Which candidates pass, and why the others do not."""
        question = decoded(body, Question)
        names, pod = question.candidates(), self._pod(question)
        why = self._blind()
        if why:
            # In the answer, so that the pod's events show it; a scheduler may ignore it.
            return self._encode(Filtered(error=why))
        found = self._verdicts(names, pod)
        if found.for_want_of_room:
            found = await self._patiently(names, pod, found)
        return self._encode(self._shaped(question, names, found))

    async def prioritize(self, body: bytes) -> bytes:
        """A score for each candidate. While blind none: the scheduler goes by its own scores."""
        question = decoded(body, Question)
        names, pod = question.candidates(), self._pod(question)
        why = self._blind()
        if why:
            raise Unready(why)
        self._fleet.refresh()
        scores = judge.scored(self._fleet, self._fleet.rows_of(names), pod, self._now_ms())
        scaled = judge.on_the_schedulers_scale(scores).tolist()
        return self._encode([Priority(*pair) for pair in zip(names, scaled, strict=True)])

    async def bind(self, body: bytes) -> bytes:
        """Reserve and bind, once however often it is asked for."""
        asked = decoded(body, Binding)
        why = self._blind() or await self._bindings.bind(asked)
        self._metrics.count("extender_bindings", "refused" if why else "bound")
        return self._encode(Bound(why))

    def _verdicts(self, names: list[str], pod: PodRow) -> judge.Verdicts:
        self._fleet.refresh()
        rows, stale_ms = self._fleet.rows_of(names), self._settings.stale_capacity_ms
        return judge.filtered(self._fleet, rows, pod, self._now_ms(), stale_ms)

    async def _patiently(
        self, names: list[str], pod: PodRow, found: judge.Verdicts
    ) -> judge.Verdicts:
        """Judge again whenever room may have come about, within `patience_ms`."""
        before = self._fleet.eased
        for _ in range(self._settings.patience_ms // STEP_MS):
            await asyncio.sleep(STEP_MS / 1000)
            if self._fleet.eased == before:
                continue
            before, found = self._fleet.eased, self._verdicts(names, pod)
            if not found.for_want_of_room:
                break
        return found

    def _pod(self, question: Question) -> PodRow:
        try:
            return pods.read(question.pod, self._settings.resources)
        except ValueError as error:
            raise BadQuestion(f"the pod cannot be read: {error}") from None

    def _shaped(self, question: Question, names: list[str], found: judge.Verdicts) -> Filtered:
        refused = found.refused.tolist()
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for i in refused:
            code, words = found.why(i)
            counts[code] += 1
            (failed if found.curable(i) else unresolvable)[names[i]] = words
        counts[FITS] = len(names) - len(refused)
        for code, number in counts.items():
            self._metrics.add("extender_verdicts", number, code)
        keep = np.ones(len(names), dtype=bool)
        keep[refused] = False
        answer = Filtered(failed=failed, unresolvable=unresolvable)
        if question.names is not None:
            answer.names = [name for name, good in zip(names, keep.tolist(), strict=True) if good]
        elif question.nodes is not None:
            items = zip(question.nodes.items, keep.tolist(), strict=True)
            answer.nodes = NodeList([raw for raw, good in items if good])
        return answer
