"""The evictor at work: read, mirror, stand for leader, and while leading work the queue off.

Started by `slackwater bridge evict`. A second instance reads along and stands by, so it goes on
where the first one ended. Nothing is asked before log and API server were read to their ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.evictions import facts, inputs
from scheduler_bridge.evictions.api import EvictionApi
from scheduler_bridge.evictions.budget import Budget
from scheduler_bridge.evictions.executor import Executor
from scheduler_bridge.evictions.metrics import TABLE
from scheduler_bridge.evictions.migrate import Migration
from scheduler_bridge.evictions.node import LiveNode, live_node
from scheduler_bridge.evictions.pod import LivePod, live_pod
from scheduler_bridge.evictions.queue import Queue
from scheduler_bridge.evictions.reports import Reports
from scheduler_bridge.evictions.settings import LEASE, EvictorSettings
from scheduler_bridge.keyring import Keyring
from scheduler_bridge.kube.client import Kube, connect
from scheduler_bridge.kube.election import Election, identity
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.life import Part, live, mono_ms, shown
from scheduler_bridge.log_clock import LogClock
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.source import Source
from schemas.errors import BadRecord
from schemas.records import EvictionReport

log = logging.getLogger("slackwater.evictor")
ALIVE_S = 60.0
DRAIN_S = 5.0
FIRST_ROUND_MS = 1_000  # while there is no policy that says how often


class Evictor:
    """One queue, one API server. Raises ValueError for what cannot work, before anything starts."""

    def __init__(self, settings: EvictorSettings) -> None:
        self.settings = settings
        self.metrics = Metrics(TABLE)
        self.clock = LogClock()
        self.queue = Queue(settings.expire_ms, dry_run=settings.dry_run)
        self.budget = Budget(settings.limits)
        self.facts = facts.Facts()
        self.migration = Migration(self.facts)
        self.calls = 0
        self.pods: dict[str, LivePod] = {}
        self._check: inputs.Check = inputs.unchecked
        if settings.keys is not None:
            self._check = Keyring(settings.keys, settings.prefix).check
        else:
            log.warning("no --keys: whoever may write commands and acks is believed")
        self._kube: Kube = connect(settings.kubeconfig, settings.context)
        self._reports = Reports(settings.brokers, settings.prefix)
        self._source = Source(
            settings.brokers,
            settings.prefix,
            settings.retry_max_s,
            (*inputs.TOPICS, *facts.TOPICS),
            dict.fromkeys((*inputs.TOPICS, "reservations"), settings.history_s),
        )
        self._nodes: Mirror[LiveNode] = Mirror(self._kube, Node, live_node)
        self._mirror: Mirror[LivePod] = Mirror(self._kube, Pod, live_pod)
        self._mirror.listen(self._index)
        where = settings.lease_namespace or self._kube.namespace or "default"
        self.election = Election(self._kube, where, LEASE, identity())
        self.executor = Executor(
            self.queue,
            self.budget,
            EvictionApi(self._kube, grace_s=settings.grace_s),
            self.pods,
            self._say,
            lambda: self.election.leads,
            lambda node: node in self._nodes.objects,
            lambda node: self.facts.deletes(self._nodes.objects.get(node)),
            per_s=settings.per_s,
            dry_run=settings.dry_run,
        )
        self._stop = asyncio.Event()
        self._turned_s = time.monotonic()
        self._round_ms = 0  # of the last one
        self._result = ""

    @property
    def ready(self) -> bool:
        return self._source.caught_up and self._mirror.synced and self._nodes.synced

    @property
    def alive(self) -> bool:
        return time.monotonic() - self._turned_s < ALIVE_S

    def stop(self) -> None:
        """Ask `run` to end; safe to call from a signal handler and more than once."""
        self._stop.set()

    def now_ms(self) -> int:
        """Log time."""
        return self.clock.now_ms(mono_ms())

    async def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT; a task that dies of a bug ends the process with it."""
        parts: dict[str, Part] = {
            "read": self._read,
            "work": self._work,
            "pods": self._mirror.run,
            "nodes": self._nodes.run,
            "election": self.election.run,
            "reports": self._reports.write,
            "letters": self._source.write_letters,
        }
        host, port = self.settings.metrics_host, self.settings.metrics_port
        async with shown(self.metrics, host, port, lambda: self.alive, lambda: self.ready):
            try:
                await live(parts, self._stop, self._drain, first=("work",))
            finally:
                await self._source.stop()
                await self._kube.close()

    async def _drain(self) -> None:
        """What was done is said before we go."""
        if self._reports.waiting:
            await self._reports.drained(DRAIN_S)

    async def _read(self) -> None:
        await self._source.start()
        log.info("reading %s", self.settings.brokers)
        while True:
            for topic, record in await self._source.records(self.settings.poll_ms):
                self._fold(topic, record)

    def _fold(self, topic: str, record: Any) -> None:
        """One record; a bad one becomes a dead letter and harms nothing else."""
        self.clock.saw(record.timestamp, mono_ms())
        try:
            if topic in facts.TOPICS:
                fate = self.facts.fold(topic, record)
            else:
                fate = inputs.fold(
                    topic, record, self.queue, self.budget, self.migration.flights, self._check
                )
        except BadRecord as error:
            self.metrics.count("evictor_records", topic, "bad")
            self.metrics.count("evictor_dead_letters", error.reason)
            self._source.dead_letter(record, error.reason, error.detail)
        else:
            self.metrics.count("evictor_records", topic, fate)

    async def _work(self) -> None:
        while True:
            self._turned_s = time.monotonic()
            if self.ready and self.election.leads:
                self._look_for_hot_nodes()
                calls = await self.executor.turn(self.now_ms)
                self.calls += calls
                for _ in range(calls):
                    self.metrics.count("evictor_calls")
            elif self.ready:
                self.queue.forget(self.now_ms())
            self._show()
            await asyncio.sleep(self.settings.poll_ms / 1000)

    def _look_for_hot_nodes(self) -> None:
        """A round of migration, if one is due."""
        now_ms, published = self.now_ms(), self.facts.policy
        every_ms = FIRST_ROUND_MS if published is None else published.policy.migration.round_ms
        if now_ms - self._round_ms < every_ms:
            return
        self._round_ms = now_ms
        found = self.migration.round(
            now_ms, time.time_ns() // 1_000_000, self._nodes.objects, self.pods
        )
        self.metrics.count("evictor_rounds", found.result)
        self.metrics.set("evictor_hot_nodes", found.hot)
        if found.result != self._result or found.requests:
            self._result = found.result
            log.info("hot nodes: %d; %s", found.hot, found.result)
            for what, said in (("nodes", found.stopped), ("pods left", found.refused)):
                if said:
                    log.info("hot nodes, %s: %s", what, said)
        for request in found.requests:
            if not self.queue.ask(request):
                self.migration.flights.drop(request.uid)

    def _say(self, report: EvictionReport) -> None:
        dry = str(report.dry_run).lower()
        self.metrics.count("evictor_outcomes", report.source, report.outcome, report.reason, dry)
        would = "would be " if report.dry_run and report.outcome == "evicted" else ""
        log.info(
            "%s %s/%s on %s: %s%s (%s; %s)",
            report.source, report.namespace or "?", report.name or report.pod, report.node,
            would, report.outcome, report.reason, report.why,
        )  # fmt: skip
        self.migration.flights.note(report, self.now_ms())
        self._reports.say(report)

    def _index(self, _key: str, before: LivePod | None, after: LivePod | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self.pods.pop(before.uid, None)
        if after is not None:
            self.pods[after.uid] = after

    def _show(self) -> None:
        self.metrics.set("evictor_migrating", len(self.migration.flights.all))
        self.metrics.set("evictor_pending", len(self.queue.pending))
        self.metrics.set("evictor_reports_waiting", self._reports.waiting)
        self.metrics.set("evictor_leads", int(self.election.leads))
        self.metrics.set("evictor_ready", int(self.ready))
