"""The closed loop of a simulated fleet: many nodes that sample, obey, and run batch work.

Called by `node_agent.simulate.cli`. The period is cut into phases, each with its share of the
nodes, so that samples come spread over it as from a real fleet. Sending and reading are the node
agent's own outbox and readers: a broker that is away stops no node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiokafka import ConsumerRecord

from node_agent.authentic import Authentic
from node_agent.inbox import Deliver, Reader, said
from node_agent.lease import BrokerClock
from node_agent.outbox import Outbox, Parcel, Spool
from node_agent.simulate import trace as traces
from node_agent.simulate.fleet import build
from node_agent.simulate.hands import Hands
from node_agent.simulate.law import FleetLaw
from node_agent.simulate.settings import Settings
from node_agent.simulate.summary import Summary
from node_agent.simulate.world import Said, World
from schemas import codec
from schemas.records import LEASE_KEY, Command
from schemas.topics import full_name

PHASES = 10
HISTORY_MS = 60_000  # standing commands are said again once a minute
AT_ONCE = 1024
SPOOL_BYTES = 64 << 20
SPOOL_PERIODS = 20
FAREWELL_S = 3.0

log = logging.getLogger(__name__)


class Simulation:
    """All parts of a simulated fleet, wired; `run` is its life."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for a fleet that cannot be."""
        self.settings = settings
        trace = traces.load(settings.trace)
        fleet = build(
            settings.nodes,
            settings.pods,
            settings.seed,
            trace.mean.shape[0],
            settings.node_prefix,
            start=time.time_ns(),
        )
        self.world = World(
            fleet, trace, settings.seed, settings.period_ms, scheduling=settings.scheduling
        )
        clock = BrokerClock()
        self.hands = Hands(
            self.world,
            clock,
            mono_us,
            settings.floor_milli,
            settings.state_dir,
            has_law=settings.decides_itself,
        )
        self.law = FleetLaw()
        self.summary = Summary(settings.nodes, settings.pods, settings.seed, settings.trace)
        spool = Spool(SPOOL_BYTES, max(4096, SPOOL_PERIODS * settings.nodes))
        self.outbox = Outbox(
            settings.brokers, self._client, mono_us, clock.acknowledged, spool, AT_ONCE
        )
        self.authentic = Authentic(
            settings.keys, settings.prefix, mono_us, accept_unsigned=settings.accept_unsigned
        )
        self.readers = [
            self._reader("commands", self._on_command, HISTORY_MS),
            self._reader("policies", self._on_policy, None),
        ]
        if settings.scheduling:
            self.readers.append(self._reader("capacity", self._on_capacity, None))
        self._started_us, self._cpu_s = mono_us(), time.process_time()
        self._stop = asyncio.Event()

    @property
    def _client(self) -> str:
        return f"slackwater-simulate-{self.settings.node_prefix}"

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stop.set()

    async def run(self) -> Summary:
        """Until `stop` or ``for_s``; a part that fails ends it with its error."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._beat(), name="beat"),
            asyncio.create_task(self.outbox.run(), name="outbox"),
            asyncio.create_task(self._stop.wait(), name="stop"),
            *(asyncio.create_task(reader.run()) for reader in self.readers),
        ]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=self.settings.for_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in (tasks[0], *tasks[3:]):
                task.cancel()
            for task in done:
                task.result()
            self._publish(self.world.farewell())
            if self.outbox.connected:
                await self.outbox.drained(FAREWELL_S)
            self._count(slice(0, 0), 0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.hands.close()
        return self.summary

    async def _beat(self) -> None:
        """Phase after phase; a late one is not made up for."""
        nodes = self.settings.nodes
        phases = min(PHASES, nodes)
        cuts = [nodes * at // phases for at in range(phases + 1)]
        clock = asyncio.get_running_loop()
        due = clock.time()
        at = 0
        while True:
            self._phase(slice(cuts[at], cuts[at + 1]))
            at = (at + 1) % phases
            if at == 0:
                self._tick()
            due += self.settings.period_ms / 1000 / phases
            now = clock.time()
            if now > due + self.settings.period_ms / 1000:
                self.summary.beats_late += 1
                due = now
            await asyncio.sleep(max(0.0, due - now))

    def _phase(self, rows: slice) -> None:
        """One period of some nodes: live, say what changed, sample, decide, obey."""
        now = mono_us()
        trace_s = (now - self._started_us) / 1e6 * self.settings.speed
        self.world.step(rows, now, trace_s)
        self._publish(self.world.settle(rows, now))
        raws = self.world.sampler.sample(rows, now, time.time_ns() // 1_000_000)
        names = self.world.fleet.names[rows]
        topic = full_name(self.settings.prefix, "samples")
        for name, raw in zip(names, raws, strict=True):
            headers = self.authentic.headers("samples", name, codec.PACKED_HEADERS, raw)
            self.outbox.put(Parcel(topic, name.encode(), raw, headers, True))
        said = self._ask(raws, now)
        for row, name in enumerate(names, start=rows.start):
            self._publish(self.hands.beat(row, None if said is None else said.get(name, [])))
        self._count(rows, sum(len(raw) for raw in raws))

    def _ask(self, raws: list[bytes], now_us: int) -> dict[str, list[Command]] | None:
        """What the local law says by node; None: it was not asked or failed."""
        if not self.settings.decides_itself:
            return None
        try:
            return self.law.fold(raws, now_us)
        except Exception:
            self.summary.law_failures += 1
            log.exception("the local law failed; best-effort work falls to its floor")
            return None

    def _tick(self) -> None:
        """After each period of the whole fleet: the local law's time."""
        self.law.tick(mono_us())
        self.hands.policy(self.law.policy)

    def _publish(self, said: list[Said]) -> None:
        for topic, key, record in said:
            raw_key = key.encode()
            if topic in ("inventory", "acks"):
                self.law.hear(topic, raw_key, record)
            name, raw = full_name(self.settings.prefix, topic), codec.encode(record)
            headers = self.authentic.headers(topic, key, codec.JSON_HEADERS, raw)
            self.outbox.put(Parcel(name, raw_key, raw, headers, False))

    def _count(self, rows: slice, sample_bytes: int) -> None:
        summary, world = self.summary, self.world
        summary.seconds = (mono_us() - self._started_us) / 1e6
        summary.samples += rows.stop - rows.start
        summary.sample_bytes += sample_bytes
        summary.samples_per_s = summary.samples / max(summary.seconds, 1e-9)
        summary.samples_dropped = self.outbox.spool.samples_dropped
        summary.cores = (time.process_time() - self._cpu_s) / max(summary.seconds, 1e-9)
        summary.jobs_done, summary.evictions = world.jobs_done, world.evictions
        summary.retries, summary.jobs_running = world.retries, int(world.model.running.sum())
        summary.batch_core_s = int(world.model.node["be_cpu_usage_us"].sum()) / 1e6
        summary.online_milli = int(world.model.online_milli.sum())
        summary.batch_milli = int(world.model.batch_milli.sum())
        allow = world.model.allow_milli
        summary.allow_milli = int(allow[allow > 0].sum())
        summary.offered_milli = world.scheduler.offered_milli
        summary.offered_mid_milli = world.scheduler.offered_mid_milli
        summary.lent_milli = int(world.scheduler.lent_milli.sum())
        summary.lent_peak_milli = max(summary.lent_peak_milli, summary.lent_milli)
        summary.acks = self.hands.counts()

    async def _on_command(self, record: ConsumerRecord) -> None:
        """Filter by key before decoding."""
        if record.value is None:
            return
        if record.key == LEASE_KEY:
            self.authentic.check("commands", record)
            lease = said("commands", record)
            self._publish(self.hands.renewed(lease, record.partition))
        elif record.key in self.hands.rows:
            row = self.hands.rows[record.key]
            self.authentic.check("commands", record)
            self.summary.commands += 1
            command = said("commands", record)
            self._publish(self.hands.command(row, command, record.partition))

    async def _on_policy(self, record: ConsumerRecord) -> None:
        self.law.hear("policies", record.key or b"", said("policies", record))

    async def _on_capacity(self, record: ConsumerRecord) -> None:
        row = self.hands.rows.get(record.key or b"")
        if row is None:
            return
        self.world.scheduler.hear(row, said("capacity", record), mono_us())

    def _reader(self, topic: str, deliver: Deliver, history_ms: int | None) -> Reader:
        return Reader(
            self.settings.brokers,
            self._client,
            full_name(self.settings.prefix, topic),
            deliver,
            node=None,
            history_ms=history_ms,
        )


def mono_us() -> int:
    """This process's monotonic clock: the clock of all its nodes."""
    return time.monotonic_ns() // 1000
