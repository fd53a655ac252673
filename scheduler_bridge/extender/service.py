"""The extender at work: reads the log, mirrors nodes and pods, answers. Started by the CLI.

Everything it knows is in memory and comes back from the log and the API server at a start; it is
ready when it has both. While the log is silent as a whole it says that it is blind, rather than
call every node stale.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

from asyncio_throttle.throttler import Throttler
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.extender import annotate, nodes, pods
from scheduler_bridge.extender.answers import Answers
from scheduler_bridge.extender.api import ExtenderApi
from scheduler_bridge.extender.bindings import Bindings
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.nodes import NodeRow
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.records import EVERYTHING, RECENT, Records
from scheduler_bridge.extender.settings import SCORE_ANNOTATION, Annotating, ExtenderSettings
from scheduler_bridge.http import HttpServer
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.life import Part, live, mono_ms
from scheduler_bridge.log_clock import LogClock
from scheduler_bridge.metrics import EXTENDER_TABLE, HTTP_TABLE, Metrics
from scheduler_bridge.source import Source
from schemas import codec
from schemas.errors import BadRecord
from schemas.policy import Policy

log = logging.getLogger("slackwater.extender")
ALIVE_S = 30.0
SWEEP_S = 2.0
GONE_MS = 3_600_000
"""A node that has no object and of which nothing was heard for so long is forgotten."""
RECORDS_A_TURN = 50
"""So many are folded before questions get their turn."""
YOUNG_S = 600
"""Older reports and signals are not read at a start: they would be stale, and come every 10 s."""


class Extender:
    """One fleet, one server; tasks keep the fleet fresh."""

    def __init__(self, settings: ExtenderSettings, kube: Kube) -> None:
        """Raises ValueError for TLS files that cannot be used."""
        self.settings = settings
        self.fleet = Fleet(Policy())
        self.metrics = Metrics(HTTP_TABLE + EXTENDER_TABLE)
        self.clock = LogClock()
        self.nodes: Mirror[NodeRow] = Mirror(kube, Node, _node)
        self.pods: Mirror[PodRow] = Mirror(
            kube, Pod, lambda pod: pods.read(pod, settings.resources)
        )
        self.nodes.listen(lambda name, _, node: self.fleet.set_node(name, node))
        self.pods.listen(self._pod_changed)
        self._api = ExtenderApi(kube, settings.resources)
        self.bindings = Bindings(
            self.fleet, self.pods.objects, self._api, self.now_ms, settings.stale_capacity_ms,
            settings.unsure_ms,
        )  # fmt: skip
        self._records = Records(self.fleet, settings.scheduler)
        self._source = Source(
            settings.brokers, settings.prefix, settings.retry_max_s, EVERYTHING + RECENT,
            dict.fromkeys(RECENT, YOUNG_S),
        )  # fmt: skip
        answers = Answers(
            self.fleet, self.bindings, settings, self.metrics, self.blind, self.now_ms
        )
        self.server = HttpServer(
            settings.http, answers.routes, self.metrics, lambda: self.alive, lambda: self.ready
        )
        self._stop = asyncio.Event()
        self._turned_s = time.monotonic()
        self._reported_ms = 0  # log time of the newest report; 0: there was none yet

    @property
    def alive(self) -> bool:
        return time.monotonic() - self._turned_s < ALIVE_S

    @property
    def ready(self) -> bool:
        return not self.blind()

    def now_ms(self) -> int:
        return self.clock.now_ms(mono_ms())

    def blind(self) -> str:
        """Why nothing can be said of nodes just now; "" when it can."""
        if not self._source.caught_up:
            return "the extender is still reading the log; ask again"
        if not (self.nodes.synced and self.pods.synced):
            return "the extender does not know all nodes and pods yet; ask again"
        expire_ms = self.fleet.policy.load_aware.expire_after_ms
        silent_ms = self.now_ms() - self._reported_ms if self._reported_ms else 0
        if 0 < expire_ms <= silent_ms:
            silent_s = silent_ms // 1000
            return f"no node was reported on for {silent_s} s: the extender is blind, not they"
        return ""

    def stop(self) -> None:
        """Ask `run` to end; safe to call from a signal handler and more than once."""
        self._stop.set()

    async def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT; the caller has started `server`, which ends with us."""
        parts: dict[str, Part] = {
            "read": self._read,
            "letters": self._source.write_letters,
            "nodes": self.nodes.run,
            "pods": self.pods.run,
            "sweep": self._sweep,
        }
        if (rules := self.settings.annotating) is not None:
            parts["annotate"] = lambda: self._annotate(rules)
        try:
            await live(parts, self._stop, self._settle)
        finally:
            await self._source.stop()

    async def _settle(self) -> None:
        """Answers in flight are given; what was reserved for them is bound, or known not to be."""
        await self.server.stop()
        await self.bindings.settle()

    def fold(self, topic: str, record: Any) -> None:
        """One record into the fleet; a bad one becomes a dead letter and harms nothing else."""
        self.clock.saw(record.timestamp, mono_ms())
        try:
            if record.value is not None:
                codec.encoding_of(record.headers)
            fate = self._records.fold(
                topic, record.key, record.value, record.timestamp, record.partition, record.offset
            )
        except BadRecord as error:
            self.metrics.count("extender_records", topic, "bad")
            self._source.dead_letter(record, error.reason, error.detail)
            return
        self.metrics.count("extender_records", topic, fate)
        if topic == "reservations":
            self._reported_ms = max(self._reported_ms, record.timestamp)

    async def _read(self) -> None:
        await self._source.start()
        log.info("reading %s", self.settings.brokers)
        was_ready = False
        while True:
            for i, (topic, record) in enumerate(await self._source.records(self.settings.poll_ms)):
                self.fold(topic, record)
                if i % RECORDS_A_TURN == RECORDS_A_TURN - 1:
                    self.fleet.refresh()
                    await asyncio.sleep(0)
            self.fleet.refresh()
            self._turned_s = time.monotonic()
            self._show()
            if self.ready and not was_ready:
                was_ready = True
                # What was read at the start stays: no collection need look at it again.
                gc.collect()
                gc.freeze()
                log.info(
                    "ready: %d nodes, %d pods", len(self.nodes.objects), len(self.pods.objects)
                )

    def _pod_changed(self, _: str, before: PodRow | None, after: PodRow | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self.fleet.drop(before.uid)
        if after is None:
            return
        if after.holds:
            just_now = before is not None and not before.node and self._source.caught_up
            # Of one that was found bound only the API server knows since when.
            since_ms = self.now_ms() if just_now else max(after.scheduled_ms, 0)
            self.fleet.put(after, since_ms, seen=True)
        elif after.over:
            self.fleet.drop(after.uid)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.bindings.sweep()
            self._records.let_pass(self.now_ms())
            self.fleet.collect(self.nodes.objects, self.now_ms() - GONE_MS)

    async def _annotate(self, rules: Annotating) -> None:
        """Write scores on nodes, worst first, at a pace; what fails is due again."""
        throttle = Throttler(rate_limit=rules.writes_per_s, period=1.0)
        written_ms: dict[str, int] = {}
        while True:
            await asyncio.sleep(1.0)
            if self.blind():
                continue
            self.fleet.refresh()
            shown = {name: node.score for name, node in self.nodes.objects.items()}
            names, now_ms = sorted(shown), self.now_ms()
            wanted = dict(zip(names, annotate.texts(self.fleet, names, now_ms), strict=True))
            for note in annotate.due(wanted, shown, written_ms, now_ms, rules)[
                : rules.writes_per_s
            ]:
                async with throttle:
                    written_ms[note.node] = now_ms
                    try:
                        await self._api.annotate(note.node, SCORE_ANNOTATION, note.text)
                    except KubeError as error:
                        log.warning("%s; trying again", error)
                    else:
                        self.metrics.count("extender_annotations")

    def _show(self) -> None:
        now_ms, expire_ms = self.now_ms(), self.fleet.policy.load_aware.expire_after_ms
        newest_ms, stale = self.fleet.freshness(now_ms, expire_ms)
        self.metrics.set("extender_data_age_seconds", max(0, now_ms - newest_ms) / 1000)
        self.metrics.set("extender_stale_nodes", stale)
        self.metrics.set("extender_nodes", len(self.nodes.objects))
        self.metrics.set("extender_pods", len(self.pods.objects))
        self.metrics.set("extender_unsure_bindings", self.bindings.unsure)
        self.metrics.set("extender_lag_records", self._source.lag)
        self.metrics.set("extender_ready", int(self.ready))


def _node(node: Node) -> NodeRow:
    return nodes.read(node, SCORE_ANNOTATION)
