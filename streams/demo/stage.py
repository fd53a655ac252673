"""The demo's side of the workbench: the process that makes real load on the real node.

The workbench (`python -m node_agent.workbench`) owns the cgroups, the online service, the greedy
job and a sampler of kernel counters; one JSON object a line travels each way over its pipes.
Called by `run` and by the closed-loop bench.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streams.demo.supervisor import Child, DemoError
from streams.demo.trace import Quota, Step, Trace

ANSWER_S = 20.0


@dataclass(slots=True)
class Latency:
    """What the online service felt in one phase; delay beyond schedule and service, open loop."""

    count: int
    p50_us: int
    p99_us: int
    max_us: int


@dataclass(slots=True)
class Stage:
    """One workbench process; `listen` in the background fills ``trace``."""

    child: Child
    trace: Trace
    inventory: Path | None = None
    best_effort_root: str = ""
    greedy_us: int = 0  # CPU time of the greedy job, as its group says
    latencies: dict[str, Latency] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None
    _ready: bool = False
    _load: tuple[int, int, bool] | None = None  # since when (us), milli, up
    _acted: dict[str, int] = field(default_factory=dict)  # newest answer to each kind of command

    def listen(self) -> None:
        """Begin to read what the workbench tells."""
        self._task = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def ready(self) -> bool:
        return self._ready

    def tell(self, do: str, **arguments: Any) -> None:
        """Send one command. Raises DemoError when the workbench is gone."""
        pipe = self.child.process.stdin
        assert pipe is not None, "the workbench is started with pipes"
        try:
            pipe.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise self.child.failure("does not read its commands any more") from None

    async def ask(self, do: str, **arguments: Any) -> None:
        """Send one command and wait until the workbench says that it is done."""
        before = self._acted.get(do, 0)
        self.tell(do, **arguments)
        deadline = time.monotonic() + ANSWER_S
        while self._acted.get(do, 0) == before:
            if time.monotonic() > deadline or not self.child.running:
                raise self.child.failure(f"did not answer {do!r}")
            await asyncio.sleep(0.01)

    async def measure(self, phase: str) -> None:
        """End the latency phase that runs and begin one called ``phase``."""
        await self.ask("phase", name=phase)

    async def place(self, role: str, *pids: int) -> None:
        """Put processes into the workbench's group for ``node`` or ``elsewhere``."""
        await self.ask("place", role=role, pids=list(pids))

    async def load(self, milli: int, *, up: bool) -> None:
        """Set the stepping load; the step before ends here, at the moment the workbench names."""
        self.end_step(time.monotonic_ns() // 1000)
        await self.ask("load", milli=milli)
        self._load = (self._acted["load"], milli, up)

    def end_step(self, mono_us: int) -> None:
        """The step that runs was measured until now."""
        if self._load is not None:
            since, milli, up = self._load
            self.trace.steps.append(Step(since, mono_us, milli, up))
            self._load = None

    def drop_step(self) -> None:
        """The load that stands now is no step to be judged."""
        self._load = None

    async def _read(self) -> None:
        pipe = self.child.process.stdout
        assert pipe is not None, "the workbench is started with pipes"
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while raw := await reader.readline():
            try:
                self._take(json.loads(raw))
            except (ValueError, KeyError, TypeError) as error:
                raise DemoError(f"workbench said {raw[:80]!r}: {error}") from error

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "usage":
                at = event["mono_us"]
                self.trace.online.add(at, event["online_us"])
                self.trace.best_effort.add(at, event["best_effort_us"])
                self.trace.machine.add(at, event["machine_us"])
                self.greedy_us = event["best_effort_us"]
            case "quota":
                self.trace.quotas.append(Quota(event["mono_us"], event["milli"]))
            case "latency":
                self.latencies[event["phase"]] = Latency(
                    event["count"], event["p50_us"], event["p99_us"], event["max_us"]
                )
            case "done":
                self._acted[event["do"]] = event["mono_us"]
            case "ready":
                self.inventory = Path(event["inventory"])
                self.best_effort_root = event["best_effort_root"]
                self._ready = True
            case other:
                raise ValueError(f"unknown event {other!r}")
