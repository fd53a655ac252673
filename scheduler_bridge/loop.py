"""The bridge at work: read, fold, reconcile, tell the sink at a pace. Started by the CLI.

Nothing is told before the logs have been read to the ends they had at the start, and before the
sink knows what its system shows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from scheduler_bridge.life import Part, live, mono_ms, shown
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Patch, reconcile
from scheduler_bridge.source import Source
from scheduler_bridge.teller import Teller
from scheduler_bridge.view import View
from schemas import codec
from schemas.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scheduler_bridge.ledger.keeper import Keeper
    from scheduler_bridge.settings import Settings
    from scheduler_bridge.sinks import Sink

log = logging.getLogger("slackwater.bridge")
ALIVE_S = 30.0


class Bridge:
    """One view, one sink; `_read` keeps the view fresh, `Teller` works the differences off."""

    def __init__(self, settings: Settings, sink: Sink, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.sink = sink
        self.view = View()
        self.metrics = Metrics() if metrics is None else metrics
        self._teller = Teller(sink, self.metrics, settings.patches_per_s, settings.patches_at_once)
        self._source = Source(settings.brokers, settings.prefix, settings.retry_max_s)
        self.keeper: Keeper | None = None
        self.parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        """More tasks that live as long as the loop, by name."""
        self._strangers: frozenset[str] = frozenset()
        self._stop = asyncio.Event()
        self._turned_s = time.monotonic()

    @property
    def told(self) -> int:
        """Patches told since the start."""
        return self._teller.told

    @property
    def ready(self) -> bool:
        """Caught up with the log and with what the sink's system shows."""
        return self._source.caught_up and self.sink.ready

    @property
    def alive(self) -> bool:
        return time.monotonic() - self._turned_s < ALIVE_S

    def stop(self) -> None:
        """Ask `run` to end; safe to call from a signal handler and more than once."""
        self._stop.set()

    async def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT; a task that dies of a bug ends the process with it."""
        poll_s = self.settings.poll_ms / 1000
        parts: dict[str, Part] = {
            "read": self._read,
            "sink": self.sink.run,
            "tell": lambda: self._teller.run(self._due, poll_s),
            "letters": self._source.write_letters,
            **self.parts,
        }
        host, port = self.settings.metrics_host, self.settings.metrics_port
        async with shown(self.metrics, host, port, lambda: self.alive, lambda: self.ready):
            try:
                await live(parts, self._stop)
            finally:
                await self._source.stop()

    async def _read(self) -> None:
        await self._source.start()
        log.info("reading %s", self.settings.brokers)
        was_ready = False
        while True:
            for topic, record in await self._source.records(self.settings.poll_ms):
                self._fold(topic, record)
                self._teller.wake()
            self._turned_s = time.monotonic()
            self._show()
            if self.ready and not was_ready:
                was_ready = True
                log.info("caught up: %d nodes", len(self.view.desired))

    def _fold(self, topic: str, record: Any) -> None:
        """One record into the view; a bad one becomes a dead letter and harms nothing else."""
        self.view.saw(record.timestamp, mono_ms())
        try:
            if record.value is not None:
                codec.encoding_of(record.headers)
            if topic == "capacity":
                fate = self.view.fold_capacity(record.key, record.value, record.timestamp)
            else:
                fate = self.view.fold_ledger(
                    record.key, record.value, record.partition, record.offset, record.timestamp
                )
        except BadRecord as error:
            self.metrics.count("records", topic, "bad")
            self.metrics.count("dead_letters", error.reason)
            self._source.dead_letter(record, error.reason, error.detail)
        else:
            self.metrics.count("records", topic, fate)

    def _due(self) -> list[Patch]:
        """What is to be told now; nothing before all is known, or while another bridge leads."""
        known, keeper, name = self.sink.nodes, self.keeper, self.sink.NAME
        if not (self.ready and self.sink.may_tell and (keeper is None or keeper.turned)):
            return []
        desired = self.view.desired if keeper is None else keeper.desired(name)
        lent = self.view.lent if keeper is None else keeper.lent(name)
        if known is not None:
            desired = {node: one for node, one in desired.items() if node in known}
            self._tell_of_strangers(frozenset(self.view.desired.keys() - desired.keys()))
        self.metrics.set("nodes_unknown", len(self.view.desired) - len(desired))
        return reconcile(
            desired,
            self.sink.observed,
            lent,
            self.view.now_ms(mono_ms()),
            self.settings.rules,
        )

    def _tell_of_strangers(self, names: frozenset[str]) -> None:
        """Nodes that report and that the sink's system does not know: once, as they come."""
        here = frozenset(name for name in names if not self.view.desired[name].removed)
        if here - self._strangers:
            log.warning(
                "%d of %d nodes have capacity and are none of this cluster's, so nothing is told "
                "of them: %s", len(here), len(self.view.desired), ", ".join(sorted(here))[:300],
            )  # fmt: skip
        self._strangers = here

    def _show(self) -> None:
        shown = self.sink.observed.values()
        self.metrics.set("nodes", len(self.view.desired))
        self.metrics.set("cpu_milli", sum(one.amount.cpu_milli for one in shown))
        self.metrics.set("lent_cpu_milli", sum(one.cpu_milli for one in self.view.lent.values()))
        self.metrics.set("lag_records", self._source.lag)
        self.metrics.set("ready", int(self.ready))
        self.metrics.set("leads", int(self.sink.may_tell))
