"""The closed loop on this kernel: kernel file to Kafka to decision to command to kernel.

    python -m tests.bench.closed_loop [--rounds 25] [--patience 10] [--keep-logs DIR]

A round is three trials of the same online load, which steps up and down: alone, beside a greedy
best-effort job that nobody limits, and beside the same job under the agent (200 ms sampling, real
Kafka, one worker). In all three Kafka and the worker, which run on other machines in earnest, are
in an idle group of their own, and the agent is beside the pods; `node_agent.workbench.bystanders`
says why. A trial during
which load that is neither ours nor the broker's takes more than 0.1 core is discarded and counted;
steps are judged one by one in the same way. Ends with one line of JSON; exit 1 when a goal is
missed. Needs root and cgroups.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvloop

from streams.demo import judge, leftovers, real
from streams.demo.board import Board
from streams.demo.cast import (
    BROKER,
    BROKER_ENV,
    FLEET,
    INTERVAL_MS,
    LOOP,
    NODE,
    PREFIX,
    REAL_NODE,
    STOP_S,
    Cast,
)
from streams.demo.probe import OwnCpu, free_port, ready
from streams.demo.reader import Reader
from streams.demo.stage import Stage
from streams.demo.supervisor import DemoError, Supervisor
from streams.demo.text import step_line
from streams.demo.trace import Trace
from tests.bench.common import Goal, finish, median, say

Kind = Literal["alone", "unprotected", "protected"]
KINDS: tuple[Kind, ...] = ("alone", "unprotected", "protected")
CLEAN_WANTED = 5
CALM_S, CALM_MILLI = 1.5, 50  # a trial begins when foreign load was below this for so long
UP_STEPS_WANTED = 20
LOAD_MILLI = 400  # the step of the online load; the service itself takes about 300
STEP_S = 2.5  # longer than it may take to settle, by two seconds
UP_STEPS_A_TRIAL: dict[Kind, int] = {"alone": 1, "unprotected": 1, "protected": 4}
P99_AT_LEAST_US = 1_000  # below this nobody feels anything


@dataclass(slots=True)
class Trial:
    """One stretch of one kind."""

    kind: Kind
    p99_us: int
    others_milli: int

    @property
    def clean(self) -> bool:
        return self.others_milli <= judge.OTHERS_MILLI


@dataclass(slots=True)
class Bench:
    """The processes of one bench run and what was measured with them."""

    folder: Path
    supervisor: Supervisor
    board: Board
    cast: Cast
    stage: Stage
    own: OwnCpu
    trials: list[Trial] = field(default_factory=list)

    @property
    def bounds(self) -> judge.Bounds:
        row = self.board.row(REAL_NODE)
        return judge.Bounds(INTERVAL_MS * 1000, self.board.policy.suppress, row.reserved_milli)

    def verdict(self) -> judge.Verdict:
        self.board.tell(self.stage.trace)
        return judge.verdict(self.stage.trace, self.bounds)

    def clean(self, kind: Kind) -> list[Trial]:
        return [trial for trial in self.trials if trial.kind == kind and trial.clean]

    def enough(self) -> bool:
        trials = all(len(self.clean(kind)) >= CLEAN_WANTED for kind in KINDS)
        return trials and len(self.verdict().judged) >= UP_STEPS_WANTED

    async def hold(self, for_s: float) -> None:
        until = time.monotonic() + for_s
        while (left := until - time.monotonic()) > 0:
            self.supervisor.check()
            await asyncio.sleep(min(left, 0.2))

    async def calm(self, patience_s: float) -> None:
        """Wait until foreign load is small, but not longer than ``patience_s``."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            begun = time.monotonic_ns() // 1000
            await self.hold(CALM_S)
            ended = self.stage.trace.ours.at_us[-1]
            trace = self.stage.trace
            if trace.covers(begun, ended) and trace.others_milli(begun, ended) <= CALM_MILLI:
                return

    async def trial(self, kind: Kind, number: int) -> Trial:
        """Put the stage in the state of this kind, let the load step, read the figures."""
        await self.stage.ask("greedy", on=kind != "alone")
        agent = None
        if kind == "protected":
            assert self.stage.inventory is not None, "the workbench is ready"
            command = self.cast.node(self.stage.inventory, self.stage.best_effort_root)
            agent = self.supervisor.start("node", command, patience_s=STOP_S, rank=NODE)
            await self.stage.place("node", agent.pid)
            await self.supervisor.until("a quota", self._limited, real.AGENT_S, agent)
            await self.hold(1.0)
        name = f"{kind}-{number}"
        await self.stage.measure(name)
        begun = time.monotonic_ns() // 1000
        for _ in range(UP_STEPS_A_TRIAL[kind]):
            for up in (False, True):
                await self.stage.load(LOAD_MILLI if up else 0, up=up)
                await self.hold(STEP_S)
        ended = time.monotonic_ns() // 1000
        # Only what happens under the agent is a step to be judged.
        self.stage.end_step(ended)
        if kind != "protected":
            del self.stage.trace.steps[-2 * UP_STEPS_A_TRIAL[kind] :]
        await self.hold(0.4)
        await self.stage.measure("")
        await self.stage.load(0, up=False)
        self.stage.drop_step()
        if agent is not None:
            await self.supervisor.stop(agent)
        others = self.stage.trace.others_milli(begun, ended)
        return Trial(kind, self.stage.latencies[name].p99_us, others)

    def _limited(self) -> bool:
        return self.stage.trace.quota_at(time.monotonic_ns() // 1000) >= 0


async def start(folder: Path, supervisor: Supervisor) -> Bench:
    """Broker, topics, one worker, workbench; all answering."""
    cast = Cast(folder)
    broker = supervisor.start(
        "broker", cast.broker(), patience_s=STOP_S, rank=BROKER, env=BROKER_ENV
    )
    await supervisor.until("an answer", cast.ready_file.exists, 300.0, broker)
    said = json.loads(cast.ready_file.read_text())
    cast = Cast(folder, said["bootstrap"], int(said["bootstrap"].rsplit(":", 1)[1]))
    await supervisor.finish(supervisor.start("topics", cast.topics()), 60.0)
    port = free_port()
    worker = supervisor.start("worker", cast.worker(port), patience_s=STOP_S, rank=LOOP)
    await supervisor.until("readiness", lambda: ready(port), 60.0, worker)
    board = Board(watched=REAL_NODE)
    workbench = supervisor.start(
        "workbench", cast.workbench(group()), patience_s=STOP_S, rank=FLEET, pipes=True
    )
    stage = Stage(workbench, Trace(capacity_milli=1000 * (os.cpu_count() or 1)))
    stage.listen()
    await supervisor.until("groups and load", lambda: stage.ready, real.WORKBENCH_S, workbench)

    def pids() -> list[int]:
        return [*(one.pid for one in supervisor.children), said["pid"]]

    await stage.place("node", os.getpid())
    await stage.place("elsewhere", broker.pid, worker.pid, said["pid"])
    own = OwnCpu(pids, stage.trace.ours)
    own.start()
    return Bench(folder, supervisor, board, cast, stage, own)


def group() -> str:
    """The run's own cgroup; ends with the process id, so that a later run knows a dead one's."""
    return f"slackwater-bench-{os.getpid()}"


async def measure(bench: Bench, rounds: int, patience_s: float) -> None:
    """Rounds of three trials until there is enough, or no round is left."""
    reader = Reader(bench.cast.brokers, PREFIX, bench.board)
    reader.start()
    try:
        for number in range(1, rounds + 1):
            for kind in KINDS:
                await bench.stage.ask("greedy", on=False)
                await bench.calm(patience_s)
                trial = await bench.trial(kind, number)
                bench.trials.append(trial)
                others = f"others {trial.others_milli / 1000:.2f} core"
                fate = "" if trial.clean else ", discarded"
                say(f"round {number} {kind}: p99 {trial.p99_us / 1000:.2f} ms, {others}{fate}")
            _say_steps(bench.verdict())
            if bench.enough():
                return
    finally:
        await reader.stop()


def _say_steps(verdict: judge.Verdict) -> None:
    judged, disturbed = len(verdict.judged), verdict.disturbed_steps
    say(f"  up-steps judged {judged}, disturbed steps {disturbed}; the newest trial's:")
    for one in verdict.reactions[-2 * UP_STEPS_A_TRIAL["protected"] :]:
        say(f"    {step_line(one)}")


def figures(bench: Bench) -> tuple[dict[str, Any], list[Goal]]:
    """What was measured, and what of it was promised."""
    verdict, bounds = bench.verdict(), bench.bounds
    p99 = {kind: median([one.p99_us / 1000 for one in bench.clean(kind)]) for kind in KINDS}
    judged = verdict.judged
    first = _times(judged, lambda one: one.first_us)
    settled = _times(judged, lambda one: one.settled_us)
    commands = [one.command_us for one in judged if one.command_us is not None]
    calm = [one for one in verdict.reactions if not one.disturbed]
    found: dict[str, Any] = {
        "interval_ms": INTERVAL_MS,
        "load_step_milli": LOAD_MILLI,
        "up_steps_judged": len(judged),
        "steps_disturbed": verdict.disturbed_steps,
        "first_write_p50_ms": _ms(judge.percentile_us(first, 500)),
        "first_write_max_ms": _ms(max(first, default=None)),
        "first_write_by_local_law": sum(one.by == "local" for one in judged),
        "first_write_by_command": sum(one.by == "command" for one in judged),
        "command_arrived_p50_ms": _ms(judge.percentile_us(commands, 500)),
        "command_arrived_p95_ms": _ms(judge.percentile_us(commands, 950)),
        "steps_without_command": sum(one.command_us is None for one in judged),
        "settled_p50_ms": _ms(judge.percentile_us(settled, 500)),
        "settled_max_ms": _ms(max(settled, default=None)),
        "rule_error_p50_milli": judge.percentile_us([one.error_milli for one in calm], 500),
        "p99_alone_ms": p99["alone"],
        "p99_unprotected_ms": p99["unprotected"],
        "trials": {
            kind: {
                "clean": len(bench.clean(kind)),
                "discarded": sum(one.kind == kind and not one.clean for one in bench.trials),
                "p99_ms": [one.p99_us / 1000 for one in bench.clean(kind)],
            }
            for kind in KINDS
        },
        "core_seconds_best_effort": round(bench.stage.greedy_us / 1e6, 1),
    }
    alone, loud = p99["alone"], p99["unprotected"]
    goals = [
        Goal("up_steps_judged", len(judged), UP_STEPS_WANTED, "at_least"),
        Goal("clean_trials", min(len(bench.clean(k)) for k in KINDS), CLEAN_WANTED, "at_least"),
        Goal("first_write_p95_ms", _p95(judged, first), bounds.first_us / 1000),
        Goal("settled_p95_ms", _p95(judged, settled), bounds.settled_us / 1000),
        Goal("rule_error_max_milli", verdict.rule_error_milli if calm else None, 100),
        Goal(
            "p99_protected_ms",
            p99["protected"],
            max(2 * (alone or 0.0), P99_AT_LEAST_US / 1000),
        ),
        Goal(
            "p99_protected_of_unprotected",
            None if not loud or p99["protected"] is None else round(p99["protected"] / loud, 3),
            round(1 / 3, 3),
        ),
    ]
    return found, goals


def _times(
    reactions: tuple[judge.Reaction, ...], pick: Callable[[judge.Reaction], int | None]
) -> list[int]:
    return [value for one in reactions if (value := pick(one)) is not None]


def _p95(judged: tuple[judge.Reaction, ...], times: list[int]) -> float | None:
    """Over all judged steps: one that never came counts as longer than any."""
    never = [sys.maxsize] * (len(judged) - len(times))
    value = judge.percentile_us(times + never, 950)
    return None if value is None or value == sys.maxsize else value / 1000


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else value_us / 1000


async def run(rounds: int, patience_s: float, folder: Path) -> int:
    """The whole bench; returns the exit code."""
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    supervisor = Supervisor(folder, mark)
    try:
        bench = await start(folder, supervisor)
        await measure(bench, rounds, patience_s)
        found, goals = figures(bench)
        await bench.own.stop()
    finally:
        await supervisor.stop_all()
    await bench.stage.close()
    left = [f"{one.name} {one.pid}" for one in leftovers.processes(mark)]
    left += [str(path) for path in leftovers.cgroups(group())]
    found["left_behind"] = left
    goals.append(Goal("left_behind_count", len(left), 0))
    return finish("closed-loop", found, goals)


def main() -> int:
    """Entry point; says what is missing when it cannot run here."""
    parser = argparse.ArgumentParser(description="Closed loop on this kernel through real Kafka.")
    parser.add_argument("--rounds", type=int, default=25, help="rounds of three trials at most")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="seconds to wait for calm before a trial"
    )
    parser.add_argument("--keep-logs", type=Path, help="folder that keeps every process's log")
    arguments = parser.parse_args()
    reason = real.why_not()
    if reason:
        say(f"closed-loop: {reason}")
        return 2
    with contextlib.ExitStack() as stack:
        folder = arguments.keep_logs
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return uvloop.run(run(arguments.rounds, arguments.patience, folder.resolve()))
        except DemoError as error:
            say(f"closed-loop: {error}")
            return 1
        except KeyboardInterrupt:
            say("closed-loop: interrupted; everything was stopped")
            return 130


if __name__ == "__main__":
    sys.exit(main())
