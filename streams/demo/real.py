"""The real node: an online service alone, then with an unlimited neighbour, then under the agent.

Called by `run` when this process may make cgroups. Tells `stage` what to do and lets time pass; the
verdict is `judge`'s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from streams.demo import judge, leftovers
from streams.demo.board import Board, cores
from streams.demo.cast import INTERVAL_MS, NODE, REAL_NODE, STOP_S, Cast
from streams.demo.judge import Bounds
from streams.demo.probe import OwnCpu
from streams.demo.settings import EXTRA_S, DemoSettings
from streams.demo.stage import Stage
from streams.demo.supervisor import Supervisor
from streams.demo.trace import Trace
from streams.demo.view import Status

LOAD_MILLI = 300  # the step; the service itself takes about as much
WORKBENCH_S = 20.0
AGENT_S = 20.0


def why_not() -> str:
    """Why this process cannot play the real node; empty: it can."""
    if os.geteuid() != 0:
        return "not root, so no cgroups: run it with sudo to see your own kernel throttled"
    mounts = leftovers.hierarchies()
    if not mounts:
        return "no cgroup file system is mounted here"
    locked = [str(mount) for mount in mounts if not os.access(mount, os.W_OK)]
    if locked:
        return (
            f"cgroups are read-only here ({', '.join(locked[:2])}): a container without the right"
        )
    return ""


@dataclass(slots=True)
class RealNode:
    """What `run` lends to the real node; ``hold`` lets time pass and fails when a child dies."""

    settings: DemoSettings
    cast: Cast
    supervisor: Supervisor
    board: Board
    status: Status
    stage: Stage
    own: OwnCpu
    hold: Callable[[float], Awaitable[None]]
    protected_from_us: int = 0

    @property
    def bounds(self) -> Bounds:
        """From the policy that the topics carry."""
        row = self.board.row(REAL_NODE)
        return Bounds(INTERVAL_MS * 1000, self.board.policy.suppress, row.reserved_milli)

    async def alone(self) -> None:
        """The online service and nothing beside it."""
        self.status.phase = "alone"
        await self.stage.measure("alone")
        await self.hold(self.settings.quiet_s)

    async def unprotected(self) -> None:
        """A greedy job beside it that nobody limits."""
        self.status.phase = "unprotected"
        await self.stage.ask("greedy", on=True)
        await self.stage.measure("unprotected")
        await self.hold(self.settings.quiet_s)

    async def protect(self) -> None:
        """Start the agent and wait until it has put its first quota in force."""
        stage = self.stage
        assert stage.inventory is not None, "the workbench said that it is ready"
        agent = self.supervisor.start(
            "node",
            self.cast.node(stage.inventory, stage.best_effort_root),
            patience_s=STOP_S,
            rank=NODE,
        )
        await stage.place("node", agent.pid)
        now_us = time.monotonic_ns() // 1000
        await self.supervisor.until(
            "a quota on the best-effort group",
            lambda: stage.trace.quota_at(time.monotonic_ns() // 1000) >= 0,
            AGENT_S,
            agent,
        )
        await self.stage.measure("protected")
        self.protected_from_us = now_us
        self.status.phase = "protected"

    async def steps(
        self,
        until_s: Callable[[], float | None],
        apart_us: Callable[[], tuple[int, int] | None],
    ) -> None:
        """The load goes up and down until the monotonic time that ``until_s`` says (None: never).

        Goes on longer when foreign load, or an outage (``apart_us``), left too few steps to judge.
        """
        up = False
        while True:
            up = not up
            await self.stage.load(LOAD_MILLI if up else 0, up=up)
            await self.hold(self.settings.step_s)
            self._tell_last()
            end = until_s()
            if end is None or time.monotonic() + self.settings.step_s <= end:
                continue
            judged = len(judge.verdict(self.trace_so_far(), self.bounds, apart_us()).judged)
            if judged >= judge.JUDGED_AT_LEAST or time.monotonic() > end + EXTRA_S:
                break
        self.stage.end_step(time.monotonic_ns() // 1000)

    async def finish(self) -> None:
        """Close the last latency phase, so that its figures come."""
        await self.hold(0.3)  # counters beyond the end of the last step
        await self.stage.measure("")

    def trace_so_far(self) -> Trace:
        """The recording with what the node acked about it."""
        self.board.tell(self.stage.trace)
        return self.stage.trace

    def best_effort_core_s(self) -> float:
        """What the greedy job got since the agent took over."""
        series = self.stage.trace.best_effort
        if not self.protected_from_us or not series.at_us:
            return 0.0
        return (series.value[-1] - series.read(self.protected_from_us)) / 1e6

    def own_milli(self) -> int:
        """CPU of broker, workers and all else that is ours but not in the two groups."""
        ours = self.stage.trace.ours
        if not self.protected_from_us or len(ours.at_us) < 2:
            return 0
        return ours.rate_milli(self.protected_from_us, ours.at_us[-1])

    def _tell_last(self) -> None:
        """Say in the header how the newest complete step went."""
        trace = self.trace_so_far()
        if trace.steps:
            one = judge.reaction(trace, self.bounds, trace.steps[-1])
            if one is not None and one.step.up:
                after = "never" if one.first_us is None else f"after {one.first_us / 1000:.0f} ms"
                self.status.detail = (
                    f"last step up {cores(one.step.milli)}: quota fell {after} ({one.by or '-'}), "
                    f"used {cores(one.used_milli)} rule {cores(one.rule_milli)}"
                )
