"""Admission at work: mirrors, the webhook's server, and the leader's keepers. Started by the CLI.

Every replica answers; of all replicas one leads, lets gangs go and calls back. Nothing is answered
before the mirrors are full.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scheduler_bridge.admission.cluster import Cluster
from scheduler_bridge.admission.gang_keeper import GangKeeper
from scheduler_bridge.admission.metrics import ADMISSION_TABLE
from scheduler_bridge.admission.names import Resources
from scheduler_bridge.admission.recall_keeper import RecallKeeper
from scheduler_bridge.admission.rules_file import RulesFile
from scheduler_bridge.admission.webhook import Webhook
from scheduler_bridge.evictions.budget import Limits
from scheduler_bridge.evictions.recall import Recaller
from scheduler_bridge.http import HttpServer, HttpSettings
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.election import Election, identity
from scheduler_bridge.life import Part, live
from scheduler_bridge.metrics import Metrics

log = logging.getLogger("slackwater.admission")
LEASE = "slackwater-admission"
SHOW_S = 1.0
COLLECT = (50_000, 20, 100)
"""As the worker does: a full collection takes longer than an answer may."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator says; the rules are a file of their own."""

    rules: Path
    http: HttpSettings
    lease_namespace: str
    names: Resources = field(default_factory=Resources)
    recall: bool = True  # False: over-use is told of, and nobody goes


class Admission:
    """Raises BadPolicy, OSError or ValueError at its making: no start on bad settings."""

    def __init__(
        self, settings: Settings, kube: Kube, full: Callable[[], None] = lambda: None
    ) -> None:
        """``full`` is called once, when the mirrors are."""
        self.settings = settings
        self.metrics = Metrics(ADMISSION_TABLE)
        self._file = RulesFile(settings.rules)
        self.cluster = Cluster(kube, settings.names)
        self.webhook = Webhook(self.cluster, self._file.rules, settings.names, self.metrics)
        self.election = Election(kube, settings.lease_namespace, LEASE, identity())
        self.server = HttpServer(
            settings.http,
            self.webhook.routes,
            self.metrics,
            alive=lambda: True,
            ready=lambda: self.ready,
        )
        self.gangs = GangKeeper(
            kube, self.cluster, self.metrics, lambda: self.election.leads,
            lambda: self.webhook.rules.gangs,
        )  # fmt: skip
        recaller = Recaller(kube, Limits(), dry_run=not settings.recall)
        self._recalls = RecallKeeper(
            self.webhook, self.cluster, self.metrics, lambda: self.election.leads, recaller.recall
        )
        self._full = full
        self._stop = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.cluster.fresh

    def stop(self) -> None:
        """Ask `run` to end; safe more than once."""
        self._stop.set()

    async def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT; a task that dies of a bug ends the process with it."""
        parts: dict[str, Part] = {
            "cluster": self.cluster.run,
            "election": self.election.run,
            "gangs": self.gangs.run,
            "recalls": self._recalls.run,
            "rules": lambda: self._file.watch(self._rules_changed),
            "show": self._show,
        }
        await self.server.start()
        await live(parts, self._stop, self.server.stop)

    def look_at_rules(self) -> bool | None:
        """Read the rules now, as `run` does now and then; True: new ones are in force."""
        changed = self._file.look()
        if changed is not None:
            self._rules_changed(changed)
        return changed

    def _rules_changed(self, good: bool) -> None:
        self.metrics.count("admission_rules_reads", "used" if good else "refused")
        if good:
            self.webhook.use(self._file.rules)

    async def _show(self) -> None:
        await self.cluster.wait_synced()
        self._full()
        while True:
            self.metrics.set("admission_leads", int(self.election.leads))
            self.metrics.set("admission_mirror_age_seconds", self.cluster.age_s)
            await asyncio.sleep(SHOW_S)


def settle_memory() -> None:
    """What the mirrors hold stays: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
