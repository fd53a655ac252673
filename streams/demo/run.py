"""The story of the demo: everyone starts, the phases pass, everyone stops, nothing is left.

Called by `cli`. `Demo` owns the processes of one run; the verdict comes from `summary`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import uvloop

from streams.demo import cast, judge, leftovers, outage, real
from streams.demo.board import Board
from streams.demo.cast import PARTITIONS, PREFIX, REAL_NODE, Cast
from streams.demo.probe import OwnCpu, free_port, lags, ready
from streams.demo.reader import Reader
from streams.demo.real import RealNode
from streams.demo.settings import DemoSettings
from streams.demo.stage import Stage
from streams.demo.summary import Outage, Summary
from streams.demo.supervisor import Child, DemoError, Supervisor
from streams.demo.trace import Trace
from streams.demo.view import DRAW_EVERY_S, Status, View

FIRST_START_S = 300.0  # the very first start fetches the broker
START_S = 60.0
GONE_WITHIN_S = 5.0
LAG_EVERY_S = 1.0
WORKERS = 2
OUTAGE_AFTER_S = 8.0  # of the protected phase: the loop has shown that it turns


def perform(settings: DemoSettings) -> Summary:
    """Run the demo to its end; failures are in the summary, leftovers too."""
    return uvloop.run(_perform(settings))


async def _perform(settings: DemoSettings) -> Summary:
    folder = settings.keep_logs or Path(tempfile.mkdtemp(prefix="slackwater-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    demo = Demo(settings, folder.resolve())
    story = asyncio.create_task(demo.play())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, demo.interrupt, story)
    with demo.view:
        try:
            await story
        except asyncio.CancelledError:
            demo.summary.interrupted = True
        except (DemoError, OSError) as error:
            demo.summary.error = str(error)
        finally:
            await demo.close()
    if settings.keep_logs is None and not demo.summary.error:
        shutil.rmtree(folder, ignore_errors=True)
    return demo.summary


class Demo:
    """One run."""

    def __init__(self, settings: DemoSettings, folder: Path) -> None:
        self.settings = settings
        self.mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.group = f"slackwater-demo-{os.getpid()}"
        self.cast = Cast(folder)
        self.supervisor = Supervisor(folder, self.mark)
        self.board = Board(watched="")
        self.status = Status(workers=WORKERS)
        self.view = View(self.board, self.status)
        self.summary = Summary(nodes=settings.nodes, seconds=0.0)
        self.begun = time.monotonic()
        self.real: RealNode | None = None
        self.reader: Reader | None = None
        self.own: OwnCpu | None = None
        self._worker_ports: list[int] = []
        self._java_pid = 0
        self._interrupts = 0
        self._ends: float | None = None
        self._apart_us: tuple[int, int] | None = None  # of the outage, return included

    def interrupt(self, story: asyncio.Task[None]) -> None:
        """Ctrl-C: end in order; a second one: at once."""
        self._interrupts += 1
        if self._interrupts == 1:
            story.cancel()
        else:
            self.supervisor.kill_all()

    async def play(self) -> None:
        """Start everyone and let the phases pass."""
        why_not = real.why_not() if self.settings.real else "asked not to (--no-real)"
        self.summary.why_not_real = why_not
        if why_not:
            self.view.say(f"demo: no real node: {why_not}; the rest runs")
        self.cast.make_keys()
        async with self._background():
            await self._start_broker(FIRST_START_S)
            await self.supervisor.finish(
                self.supervisor.start("topics", self.cast.topics()), START_S
            )
            await self.supervisor.finish(
                self.supervisor.start("policy", self.cast.policy()), START_S
            )
            if self.settings.record is not None:
                self._launch("record", self.cast.recorder(self.settings.record), cast.RECORDER)
            self.reader = Reader(self.cast.brokers, PREFIX, self.board)
            self.reader.start()
            ports = self._start_loop()
            if not why_not:
                self.real = await self._start_workbench()
            await self._await_loop(ports)
            await self._phases()

    async def _start_broker(self, within_s: float) -> Child:
        """The broker on its port and data, answering."""
        self.cast.ready_file.unlink(missing_ok=True)
        child = self._launch("broker", self.cast.broker(), cast.BROKER)
        self.status.detail = "broker is coming up (the first time it is fetched)"
        await self.supervisor.until("an answer", self.cast.ready_file.exists, within_s, child)
        said = json.loads(self.cast.ready_file.read_text())
        self._java_pid = int(said["pid"])
        brokers = str(said["bootstrap"])
        self.cast = Cast(self.cast.folder, brokers, int(brokers.rsplit(":", 1)[1]))
        self.status.broker = brokers
        return child

    def _start_loop(self) -> list[tuple[Child, int]]:
        """Workers, second stage, bridge; returns those that say when they are ready."""
        played, start = self.cast, self._launch
        self._worker_ports = [free_port() for _ in range(WORKERS)]
        started = [
            (start(f"worker-{number}", played.worker(port), cast.LOOP), port)
            for number, port in enumerate(self._worker_ports, 1)
        ]
        port = free_port()
        start("fleet", played.fleet(port), cast.LOOP)
        port = free_port()
        started.append((start("bridge", played.bridge(port), cast.LOOP), port))
        return started

    async def _start_workbench(self) -> RealNode:
        self.board.watched = self.status.real_node = REAL_NODE
        child = self._launch("workbench", self.cast.workbench(self.group), cast.FLEET, pipes=True)
        trace = Trace(capacity_milli=1000 * (os.cpu_count() or 1))
        stage = Stage(child, trace)
        stage.listen()
        await self.supervisor.until("groups and load", lambda: stage.ready, real.WORKBENCH_S, child)
        self.own = OwnCpu(self._own_pids, trace.ours)
        self.own.start()
        return RealNode(
            settings=self.settings,
            cast=self.cast,
            supervisor=self.supervisor,
            board=self.board,
            status=self.status,
            stage=stage,
            own=self.own,
            hold=self._hold,
        )

    def _launch(self, name: str, command: list[str], rank: int, *, pipes: bool = False) -> Child:
        env = cast.BROKER_ENV if rank == cast.BROKER else None
        return self.supervisor.start(
            name, command, patience_s=cast.STOP_S, rank=rank, pipes=pipes, env=env
        )

    def _own_pids(self) -> list[int]:
        """Every process of the demo that is not in one of the two measured groups."""
        return [*(child.pid for child in self.supervisor.children), self._java_pid]

    async def _await_loop(self, ports: list[tuple[Child, int]]) -> None:
        """Until workers and bridge call themselves ready and the simulated nodes are seen."""
        for child, port in ports:
            self.status.detail = f"{child.name} is coming up"
            await self.supervisor.until("readiness", partial(ready, port), START_S, child)
        self._launch("simulate", self.cast.simulate(self.settings.nodes), cast.FLEET)
        self.status.detail = "waiting for the first commands and capacities of the fleet"
        await self.supervisor.until("capacity of a node", self._turning, START_S)
        self.status.detail = ""

    def _turning(self) -> bool:
        rows = self.board.rows.values()
        return any(row.batch_milli is not None for row in rows) and outage.applied(self.board) > 0

    async def _phases(self) -> None:
        """The time that was asked for begins now."""
        begun = time.monotonic()
        if self.settings.for_s is not None:
            self._ends = begun + self.settings.for_s + self.settings.outage_s
        self.status.ends_mono_s = self._ends
        one = self.real
        if one is None:
            self.status.phase = "simulated"
            async with self._outage():
                while self._ends is None or time.monotonic() < self._ends:
                    await self._hold(DRAW_EVERY_S)
            return
        await one.alone()
        await one.unprotected()
        await one.protect()
        async with self._outage():
            await one.steps(lambda: self._ends, lambda: self._apart_us)
        await one.finish()

    @contextlib.asynccontextmanager
    async def _outage(self) -> AsyncIterator[None]:
        """Beside what runs in the block: the broker goes and comes back, when that was asked."""
        if not self.settings.outage_s:
            yield
            return
        task = asyncio.create_task(self._take_broker_away())
        try:
            yield
            await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _take_broker_away(self) -> None:
        await self._hold(OUTAGE_AFTER_S)
        broker = next(child for child in self.supervisor.children if child.name == "broker")
        before = outage.applied(self.board)
        from_us = time.monotonic_ns() // 1000
        phase, self.status.phase, self.status.broker = self.status.phase, "outage", "stopped"
        await self.supervisor.stop(broker)
        await self._hold(
            max(0.0, self.settings.outage_s - (time.monotonic_ns() / 1e9 - from_us / 1e6))
        )
        to_us = time.monotonic_ns() // 1000
        await self._start_broker(START_S)
        self.status.phase, self.status.detail = phase, "the broker is back"
        found = Outage(self.settings.outage_s, None, [], None, outage.WHOLE_WITHIN_S)
        whole = outage.Whole(
            board=self.board,
            since_ms=time.time_ns() // 1_000_000,
            since_mono_us=time.monotonic_ns() // 1000,
            partitions=PARTITIONS,
            applied_before=before,
            lag=lambda: self.status.lag,
            lag_allowed=self.settings.nodes + 1,
        )
        self.summary.outage = found
        await outage.await_whole(whole, self.supervisor, self._hold, found)
        self._apart_us = from_us, time.monotonic_ns() // 1000
        if self.real is not None:
            trace = self.real.trace_so_far()
            found.seconds_measured, found.beyond_law = judge.seconds_beyond_law(
                trace, self.real.bounds, from_us, to_us
            )

    async def _hold(self, for_s: float) -> None:
        """Let time pass, watching that every process lives."""
        until = time.monotonic() + for_s
        while True:
            self.supervisor.check()
            left = until - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(left, 0.2))

    @contextlib.asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """The view and the workers' lag, beside the story."""
        tasks = [asyncio.create_task(self._draw()), asyncio.create_task(self._ask_workers())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _draw(self) -> None:
        while True:
            self.view.draw()
            await asyncio.sleep(DRAW_EVERY_S)

    async def _ask_workers(self) -> None:
        while True:
            states = [await ready(port) for port in self._worker_ports]
            self.status.workers_ready = sum(states)
            lag: dict[str, int] = {}
            for port in self._worker_ports:
                lag |= await lags(port)
            self.status.lag = sum(lag.values()) if len(lag) == PARTITIONS else None
            await asyncio.sleep(LAG_EVERY_S)

    async def close(self) -> None:
        """Stop everyone in order, prove that nothing is left, fill the summary."""
        self.status.phase, self.status.ends_mono_s = "closing", time.monotonic()
        self.view.draw()
        self.summary.seconds = time.monotonic() - self.begun
        if self.reader is not None:
            await self.reader.stop()
        if self.own is not None:
            await self.own.stop()
        self._sum_up()
        try:
            await self.supervisor.stop_all()
        finally:
            self.supervisor.kill_all()
        if self.real is not None:
            await self.real.stage.close()
        await self._prove()

    def _sum_up(self) -> None:
        summary = self.summary
        summary.read_board(self.board, REAL_NODE)
        with contextlib.suppress(OSError):
            summary.bridge_patches = len(self.cast.patches.read_text().splitlines())
        if self.real is not None:
            summary.bounds = self.real.bounds
            summary.verdict = judge.verdict(
                self.real.trace_so_far(), self.real.bounds, self._apart_us
            )
            summary.latencies = self.real.stage.latencies
            summary.own_milli = self.real.own_milli()
            summary.real_best_effort_core_s = self.real.best_effort_core_s()

    async def _prove(self) -> None:
        """Nothing of this run may be there any more; grandchildren get a moment."""
        summary = self.summary
        deadline = time.monotonic() + GONE_WITHIN_S
        while time.monotonic() < deadline:
            if not leftovers.processes(self.mark) and not leftovers.cgroups(self.group):
                break
            await asyncio.sleep(0.1)
        left = leftovers.processes(self.mark)
        summary.left_processes = [f"{one.name} (pid {one.pid})" for one in left]
        summary.left_cgroups = [str(path) for path in leftovers.cgroups(self.group)]
        summary.killed = self.supervisor.killed
