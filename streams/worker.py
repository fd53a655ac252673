"""A worker: Faust delivers, one engine a partition folds, everything else is wired here.

Started by `streams.worker_cli`. Owns no rule of the law; the rules of movement it keeps are seek
and gate, order (outputs, image, commit) and who may tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from agents.log import Output
from schemas.records import Installation
from streams import faust_app, installation, stages
from streams.cutter import Cutter
from streams.engine import Gate, PartitionEngine, Ports
from streams.health import HealthServer
from streams.images import ImageWriter
from streams.keyring import authenticity
from streams.leave import stopped
from streams.log_clock import LogClock
from streams.metrics import Metrics
from streams.outputs import OutputFailed, Outputs
from streams.recovery import Recovery
from streams.settings import WorkerSettings
from streams.side_inputs import SideReader
from streams.ticker import Ticker
from streams.watchdog import Sight, Watchdog

log = logging.getLogger(__name__)

LOOK_S = 2.0
IMAGES_LATE = 6  # intervals without a new image, then liveness fails
RETRY_S = 1.0
FINAL_S = 10.0
SILENT_S = 15.0  # ticks are acknowledged every second while the broker is there


class Worker:
    """One worker process. `run` returns the exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.clock = LogClock()
        self.engines: dict[int, PartitionEngine] = {}
        signer, check = authenticity(
            settings.keys, settings.prefix, accept_unsigned=settings.accept_unsigned
        )
        self.outputs = Outputs(settings, self.clock, self.metrics, signer)
        self.side = SideReader(settings, self.metrics, self._refuse, check)
        self.writer = ImageWriter(settings, self.metrics)
        self.cutter = Cutter(settings, self.metrics, self.outputs, self.writer)
        self.watchdog = Watchdog(
            settings.stall_after_s, settings.stall_after_s + IMAGES_LATE * settings.image_interval_s
        )
        self.port = 0
        self.app: faust_app.WorkerApp | None = None
        self._probe = AIOKafkaConsumer(
            bootstrap_servers=settings.brokers, enable_auto_commit=False, request_timeout_ms=10_000
        )
        self._ends: dict[int, int] = {}
        self._stage = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeks: dict[int, int] = {}
        self._generation = -1
        self._stopping = asyncio.Event()
        self._crash = ""
        self._ports = Ports(
            publish=self.outputs.publish,
            seek=self._seek,
            recover=self._output_lost,
            log_start=self._log_start,
            side=self.side,
            metrics=self.metrics,
            held_records=settings.held_records,
            check=check,
        )

    async def run(self) -> int:
        """Work until `stop`; 0 after an orderly end, 1 after a crash or a stall."""
        health = HealthServer(
            self.settings.metrics_host,
            self.settings.metrics_port,
            self.metrics,
            self.why_not_live,
            self.why_not_ready,
        )
        try:
            await self._probe.start()
        except KafkaConnectionError:
            await stopped(self._probe.stop)
            raise installation.NotInstalled(
                f"no broker answers at {self.settings.brokers}: start it (`slackwater dev-broker` "
                "on a desk) or say --brokers"
            ) from None
        try:
            installed = await installation.find(self.settings)
            self.recovery = Recovery(
                self.settings,
                self.metrics,
                self._probe,
                installed.incarnation,
                self.side,
                self.clock,
            )
            self.port = await health.start()
            await self.outputs.start()
            await self.writer.start()
            await self.side.start()
            self.app = app = faust_app.build(self.settings, self)
            app.finalize()
            self._spawn_all(installed)
            await app.start()
            log.info("incarnation %d, %d partitions", installed.incarnation, installed.partitions)
            await self._stopping.wait()
            await self._end()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await stopped(
                self.side.stop, self.writer.stop, self.outputs.stop, self._probe.stop, health.stop
            )
        if self._crash:
            log.error("ends: %s", self._crash)
        return 1 if self._crash else 0

    def stop(self) -> None:
        """End in order: gates shut, final images, commit."""
        self._stopping.set()

    def why_not_live(self) -> str:
        """Liveness: "" or what is wrong."""
        if self._crash:
            return self._crash
        return self.watchdog.why

    def why_not_ready(self) -> str:
        """Readiness: "" when every assigned gate is open and little is behind."""
        if self._between_owners() or self._generation < 0:
            return "no assignment yet"
        for partition, engine in sorted(self.engines.items()):
            if not engine.open:
                return f"partition {partition} is {engine.gate.value}"
            behind = self._ends.get(partition, 0) - engine.next
            if behind > self.settings.ready_lag:
                return f"partition {partition} is {behind} records behind"
        silent_s = self.clock.silent_s(monotonic())
        if self.engines and silent_s > SILENT_S:
            return f"the broker has acknowledged nothing for {silent_s:.0f} s"
        return self.why_not_live()

    # What Faust's transport and agent ask (streams.transport.Desk, streams.faust_app.Receiver).

    def on_assignment(self, partitions: frozenset[int], generation: int) -> None:
        """Kept partitions keep their engine; new ones recover; the others go."""
        if generation == self._generation and partitions == self.engines.keys():
            return
        if self._stopping.is_set():
            return
        kept = partitions & self.engines.keys()
        log.info("generation %d: %d partitions, %d kept", generation, len(partitions), len(kept))
        for partition in self.engines.keys() - partitions:
            self._drop(partition)
        for partition in kept:
            engine = self.engines[partition]
            if engine.gate in (Gate.OPEN, Gate.SHUT):
                self._seek(partition, engine.next, "kept")
        for partition in sorted(partitions - self.engines.keys()):
            self.engines[partition] = engine = PartitionEngine(partition, self._ports)
            self._spawn(self._recover(engine))
        self._generation = generation

    def deliverable(self) -> frozenset[int]:
        """Partitions with a state and with room."""
        return frozenset(
            p for p, e in self.engines.items() if e.gate in (Gate.OPEN, Gate.SHUT) and not e.full
        )

    def take_seeks(self) -> dict[int, int]:
        """Positions asked for."""
        taken, self._seeks = self._seeks, {}
        return taken

    def sought(self, partition: int, offset: int) -> None:
        """The position is set; an empty rest of the log opens the gate."""
        engine = self.engines.get(partition)
        if engine is not None:
            engine.sought(offset, self._ends.get(partition, offset + 1))

    def committable(self, partition: int) -> int | None:
        """Never ahead of the newest image."""
        engine = self.engines.get(partition)
        return None if engine is None or engine.image_at is None else engine.image_at + 1

    async def deliver(self, partition: int, records: Sequence[Any]) -> None:
        """A batch of one partition."""
        engine = self.engines.get(partition)
        if engine is None:
            self.metrics.add("ignored_total", partition, by=len(records))
            return
        await engine.deliver(records)
        now = self.clock.now_ms(monotonic())
        if now is not None and engine.newest_ms:
            self.metrics.time("fold_delay_seconds", max(now - engine.newest_ms, 0) / 1000)

    def on_bug(self, error: BaseException) -> None:
        """Something raised that must not: end, a restart folds again from the images."""
        log.error("bug in delivery", exc_info=error)
        self._crash = self._crash or f"bug: {error!r}"
        self.stop()

    # Inside.

    def _between_owners(self) -> bool:
        """Not connected yet, or in a rebalance: nobody knows who owns what."""
        return self.app is None or bool(self.app.rebalancing)

    def _seek(self, partition: int, offset: int, why: str) -> None:
        self._seeks[partition] = offset
        self.metrics.add("seeks_total", partition, why)

    def _drop(self, partition: int) -> None:
        engine = self.engines.pop(partition)
        engine.stop()
        self._seeks.pop(partition, None)
        self.side.release(partition)
        self.outputs.forget(partition)
        self.metrics.put("lag_records", partition, value=0)  # another's now

    def _output_lost(self, partition: int) -> None:
        engine = self.engines.get(partition)
        if engine is not None and not self._stopping.is_set():
            self._spawn(self._again(engine))

    async def _again(self, engine: PartitionEngine) -> None:
        await self.outputs.renew()
        self.outputs.forget(engine.partition)
        await self._recover(engine)

    async def _recover(self, engine: PartitionEngine) -> None:
        """Bring a state, for as long as it takes."""
        partition = engine.partition
        while self.engines.get(partition) is engine:
            try:
                found = await self.recovery.find(partition)
            except (KafkaError, TimeoutError) as error:
                log.warning("partition %d cannot recover yet: %r", partition, error)
                await asyncio.sleep(RETRY_S)
                continue
            if self.engines.get(partition) is engine:
                self._ends[partition] = found.end
                engine.begin(found.state, found.mute_until)
                engine.image_at = found.image_at
            else:
                self.side.release(partition)
            return

    async def _log_start(self, partition: int) -> int:
        where = TopicPartition(self.settings.topic("samples"), partition)
        with contextlib.suppress(KafkaError, TimeoutError):
            return int((await self._probe.beginning_offsets([where]))[where])
        return 0

    async def _refuse(self, partition: int, letters: Iterable[Output]) -> None:
        with contextlib.suppress(OutputFailed):
            await self.outputs.publish(partition, letters)

    def _periods(self) -> dict[int, int]:
        if self._between_owners() or self._stopping.is_set():
            return {}
        return {
            p: e.state.law.loop.tick_ms
            for p, e in self.engines.items()
            if e.open and e.state is not None and self.side.caught_up(p)
        }

    def _spawn_all(self, installed: Installation) -> None:
        ticker = Ticker(
            installed.incarnation,
            installed.partitions,
            self._periods,
            self.side.vector,
            self.outputs.tick,
            self.metrics,
        )
        loops = (self.side.run, self._pump_waiting, self._cut_due, self._look, ticker.run)
        for loop in loops:
            self._spawn(loop())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.on_bug(error)

        task.add_done_callback(done)

    async def _pump_waiting(self) -> None:
        """Side inputs advanced: engines that waited for them go on."""
        while True:
            await self.side.advanced.wait()
            self.side.advanced.clear()
            for engine in list(self.engines.values()):
                if engine.waiting:
                    await engine.pump()

    async def _cut_due(self) -> None:
        await self.cutter.run(self.engines)

    async def _look(self) -> None:
        """Ends of the logs, the watchdog, loop lag, Faust's own crashes."""
        while True:
            late = monotonic()
            await asyncio.sleep(LOOK_S)
            now = monotonic()
            self.metrics.put("loop_lag_seconds", value=now - late - LOOK_S)
            if self.app is not None and self.app.crashed:
                self._crash = f"Faust crashed: {self.app.crash_reason!r}"
                self.stop()
            try:
                await self._find_ends()
            except (KafkaError, TimeoutError) as error:
                log.warning("the broker does not say where the logs end: %r", error)
                self.watchdog.pause(monotonic())
            else:
                self.watchdog.look(now, self._sights())
            self._say_stage()
            self.metrics.put("live", value=int(not self.why_not_live()))
            if self.watchdog.failing_s(now) > self.settings.stall_grace_s:
                self._crash = f"stalled: {self.watchdog.why}"
                self.stop()

    def _say_stage(self) -> None:
        """At the start and when it changes: why nothing is lent should be no riddle."""
        states = [e.state for e in self.engines.values() if e.open and e.state is not None]
        for state in [each for each in states if each.tick_ms >= 0][:1]:
            published = state.laws.published
            told = stages.NO_POLICY if published is None else stages.told(published)
            if told != self._stage:
                self._stage = told
                log.info("%s", told)

    async def _find_ends(self) -> None:
        owned = {
            TopicPartition(self.settings.topic("samples"), partition): partition
            for partition in self.engines
        }
        if owned:
            ends = await asyncio.wait_for(self._probe.end_offsets(list(owned)), 10)
            self._ends = {owned[where]: end for where, end in ends.items()}

    def _sights(self) -> dict[int, Sight]:
        sights = {}
        for partition, engine in self.engines.items():
            end = self._ends.get(partition, engine.at + 1)
            sights[partition] = Sight(
                next=engine.at + 1,
                end=end,
                image_at=-1 if engine.image_at is None else engine.image_at,
                stopped=engine.gate is Gate.STOPPED,
            )
            self.metrics.put("lag_records", partition, value=max(end - engine.at - 1, 0))
        return sights

    async def _end(self) -> None:
        """Shut the gates, cut final images, let Faust commit and leave the group."""
        try:
            async with asyncio.timeout(FINAL_S):
                for engine in self.engines.values():
                    async with engine.lock:
                        if engine.gate is not Gate.STOPPED:
                            engine.stop()
                for engine in self.engines.values():
                    if engine.image_at != engine.at:
                        await self.cutter.cut(engine)
                if self.app is not None:
                    await self.app.stop()
        except TimeoutError:
            log.warning("not all final images were cut; the next owner folds a little more")
