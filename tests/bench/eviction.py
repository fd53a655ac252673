"""Evictions in time: throttled spinners, and memory that grows towards a limit. Real groups.

    python -m tests.bench.eviction [--trials 20] [--only spinners|memory]

Spinners: twenty in one pod under a quota of 1 ms, evicted by command through the agent's own hands
(journal and all, in this process); the time until the kernel says that the group is empty. A
killed task dies only when it runs, so this takes about a second where the quota is not lifted.

Memory: a real agent without Kafka, sampling once a second; a pod grows by 400 MB a second under the
best-effort root's own limit, from far below it; the policy's mark lies 200 MB below. The agent's
last gate must kill it before the kernel does: no `oom_kill` is counted. A run that grew by less
than nine tenths of that (foreign load) is told apart and not judged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node_agent import originals
from node_agent.cgroup.layout import detect
from node_agent.inventory import Census
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.obey import Obey
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups, remove_stale
from node_agent.workbench.worker import Worker
from schemas.policy import EvictMemory, Policy
from schemas.records import Cause, Command, Inventory, PodFact
from tests.bench.common import Goal, finish, median, say
from tests.bench.lone_agent import Lone, Others, until
from tests.support import patient

NAME = "slackwater-eviction"
SPINNERS, FLOOR_MILLI = 20, 10
GONE_GOAL_MS = 50.0
MB = 1_000_000
LIMIT_BYTES = 1400 * MB
MARGIN_BYTES = 200 * MB
START_BYTES = 700 * MB
GROWTH_BYTES = 400 * MB
LEAST_GROWTH = 0.9  # of it, or the run proves nothing
CALM_BYTES = 50 * MB
NOISY_ATTEMPTS = 4  # for each run that is judged
LOOK_S = 0.002
COOL_S = 5.0  # longer than the policy's cool-down
POLICY = f"""
name: default
rollout: {{stage: expand}}
suppress: {{threshold_percent: 100, floor_percent: 50, raise_permille: 1000}}
evict_memory: {{threshold_percent: 99, lower_percent: 98, limit_margin_bytes: {MARGIN_BYTES},
  limit_lower_bytes: {MARGIN_BYTES + 100 * MB}}}
"""


@dataclass(slots=True)
class Run:
    """One growth towards the limit. ``by``: whose kill it was; ``in_time_ms``: from the mark on."""

    by: str
    in_time_ms: float
    left_mb: float
    growth_mb_per_s: float

    @property
    def judged(self) -> bool:
        return self.growth_mb_per_s >= GROWTH_BYTES / MB * LEAST_GROWTH


@dataclass(slots=True)
class Hands:
    """The agent's hands on real groups, without the rest of it."""

    groups: Groups
    folder: Path
    orders: int = 0
    took_ms: list[float] = field(default_factory=list)

    def evict(self) -> float:
        """Milliseconds from the command to the ack, which comes when the group is empty."""
        self.orders += 1
        uid = f"batch-{self.orders}"
        greedy = Greedy(self.groups.pod("besteffort", uid), SPINNERS, self.folder / uid)
        trees = originals.open_trees(self.groups.layout, self.groups.be_root)
        journal = Journal(self.folder / f"state-{self.orders}", "k" * 32)
        try:
            lease = NodeLease("n", FLOOR_MILLI, policy=Policy(evict_memory=EvictMemory()))
            lease.clock.acknowledged(0, 0)
            obey = Obey(boot="b" * 32, journal=journal, lease=lease, mono_us=_mono_us)
            record = Inventory("n", 1, 1000, 1 << 30, pods=(PodFact(uid, uid, qos="BE"),))
            group = f"{self.groups.be_root}/{uid}"
            obey.follow(Census(record, (group,), self.groups.be_root), trees)
            obey.hold.quota(FLOOR_MILLI)
            obey.hold.idle()
            cause = Cause(1, 0, self.orders, _mono_us() // 1000, "digest", 1)
            command = Command(
                uid, "n", "evict_memory", cause, cause.log_ms + 30_000, "", pods=(uid,)
            )
            until(lambda: greedy.work_done() > 0, "spinners that spin", 30.0)
            began = time.monotonic()
            acks = asyncio.run(obey.command(command))
            took_ms = (time.monotonic() - began) * 1000
            assert acks[0].outcome == "applied", acks
            assert acks[0].pods == (uid,), acks
            obey.release()
        finally:
            journal.close()
            trees.close()
            greedy.stop()
        return took_ms


def _mono_us() -> int:
    return time.monotonic_ns() // 1000


class Growth:
    """Runs of a growing pod beside a calm one, under one agent."""

    def __init__(self, agent: Lone) -> None:
        self.agent, self.groups = agent, agent.groups
        self.runs: list[Run] = []
        self._memory = self.groups.directory("memory", self.groups.be_root)
        v1 = self.groups.layout.versions()["memory"] == 1
        limit, self._charged, self._events = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
            if v1
            else ("memory.max", "memory.current", "memory.events")
        )
        (self._memory / limit).write_text(str(LIMIT_BYTES))

    def name_pods(self, *uids: str) -> None:
        """The inventory of now; each group is made."""
        paths = {uid: self.groups.pod("besteffort", uid) for uid in uids}
        rows = "".join(f"- {{uid: {u}, qos: BE, cgroup: {p}}}\n" for u, p in paths.items())
        text = f"best_effort_root: {self.groups.be_root}\npods:\n{rows}"
        fresh = self.agent.inventory.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.agent.inventory)

    def run(self) -> Run:
        """Grow until somebody kills it."""
        uid = f"hog-{len(self.runs) + 1}"
        self.name_pods("calm", uid)
        growth = int(GROWTH_BYTES / patient(1))  # a slow machine's race is run at its own pace
        config = {"start_bytes": START_BYTES, "bytes_per_s": growth}
        group = f"{self.groups.be_root}/{uid}"
        hog = Worker("tests.bench.hog", group, config)
        try:
            until(lambda: self.charged() >= START_BYTES, "the first bytes", 30.0)
            time.sleep(COOL_S)  # the agent's cool-down; and the law knows the pod
            return self._grow(hog, uid, group)
        finally:
            hog.stop()

    def _grow(self, hog: Worker, uid: str, group: str) -> Run:
        began, first = time.monotonic(), self.charged()
        marked = dead = None
        most, most_at = first, began
        hog.say("go")
        while dead is None and time.monotonic() - began < patient(60.0):
            charged, now = self.charged(), time.monotonic()
            if charged > most:
                most, most_at = charged, now
            if marked is None and charged >= LIMIT_BYTES - MARGIN_BYTES:
                marked = now
            if not hog.alive:
                dead = now
            time.sleep(LOOK_S)
        assert dead is not None, "nobody killed it"
        oom_kills = self.oom_kills(self._memory.parent.parent / group)
        until(lambda: self.acked(uid) or oom_kills > 0, "the agent's word", 10.0)
        growth = (most - first) / MB / max(most_at - began, 0.001)
        by = "kernel" if oom_kills else "agent"
        in_time_ms = (dead - (marked or dead)) * 1000
        self.runs.append(Run(by, in_time_ms, (LIMIT_BYTES - most) / MB, growth))
        return self.runs[-1]

    def charged(self) -> int:
        return int((self._memory / self._charged).read_text())

    def oom_kills(self, directory: Path) -> int:
        lines = (directory / self._events).read_text().split("\n")
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def acked(self, uid: str) -> bool:
        return any(
            line["kind"] == "command" and line["outcome"] == "local" and line["pods"] == [uid]
            for line in self.agent.lines()
        )


@contextmanager
def bench_groups() -> Iterator[Groups]:
    """Groups of this process; those of killed runs go first."""
    layout = detect()
    remove_stale(layout, NAME)
    with Groups(f"{NAME}-{os.getpid()}", layout) as groups:
        yield groups


@contextmanager
def growing(folder: Path, groups: Groups) -> Iterator[Growth]:
    """An agent, and a calm pod beside those that will grow."""
    agent = Lone(groups, folder, POLICY, "--no-cpu-idle")
    growth = Growth(agent)
    growth.name_pods("calm")
    config = {"start_bytes": CALM_BYTES, "bytes_per_s": 0}
    calm = Worker("tests.bench.hog", f"{groups.be_root}/calm", config)
    try:
        with agent.running():
            yield growth
            assert calm.alive, "the calm pod was killed"
    finally:
        calm.stop()


def spinners(trials: int) -> list[float]:
    """Milliseconds of each eviction."""
    with tempfile.TemporaryDirectory() as folder, bench_groups() as groups:
        hands, others = Hands(groups, Path(folder)), Others(groups)
        for number in range(1, trials + 1):
            others.milli()
            hands.took_ms.append(hands.evict())
            foreign = others.milli() / 1000
            say(f"spinners {number}: {hands.took_ms[-1]:.1f} ms, others {foreign:.2f} core")
        return hands.took_ms


def memory(trials: int) -> list[Run]:
    """Judged runs, as many as asked for if patience lasts, and the noisy ones."""
    with (
        tempfile.TemporaryDirectory() as folder,
        bench_groups() as groups,
        growing(Path(folder), groups) as growth,
    ):
        while (
            sum(run.judged for run in growth.runs) < trials
            and len(growth.runs) < NOISY_ATTEMPTS * trials
        ):
            run = growth.run()
            fate = "" if run.judged else ", too slow to judge"
            say(
                f"memory {len(growth.runs)}: killed by the {run.by} {run.in_time_ms:.0f} ms after "
                f"the mark, {run.left_mb:.0f} MB left, {run.growth_mb_per_s:.0f} MB/s{fate}"
            )
        return growth.runs


def p95(values: list[float]) -> float | None:
    """Nearest rank."""
    return sorted(values)[min(len(values) - 1, len(values) * 95 // 100)] if values else None


def run(trials: int, only: str | None) -> int:
    figures: dict[str, float | int | None] = {"trials": trials}
    goals: list[Goal] = []
    if only != "memory":
        took_ms = spinners(trials)
        figures |= {"gone_p50_ms": median(took_ms), "gone_p95_ms": p95(took_ms)}
        goals.append(Goal("gone_p95_ms", p95(took_ms), GONE_GOAL_MS))
    if only != "spinners":
        runs = memory(trials)
        judged = [one for one in runs if one.judged]
        figures |= {
            "runs_judged": len(judged),
            "runs_too_slow": len(runs) - len(judged),
            "agent_first": sum(one.by == "agent" for one in judged),
            "kernel_first_in_all": sum(one.by == "kernel" for one in runs),
            "killed_p50_ms": median([one.in_time_ms for one in judged]),
            "killed_p95_ms": p95([one.in_time_ms for one in judged]),
            "left_least_mb": min((one.left_mb for one in judged), default=None),
        }
        goals.append(Goal("agent_first", figures["agent_first"], trials, "at_least"))
        goals.append(Goal("kernel_first_in_all", figures["kernel_first_in_all"], 0))
    return finish("eviction", figures, goals)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", choices=("spinners", "memory"))
    options = parser.parse_args()
    return run(options.trials, options.only)


if __name__ == "__main__":
    sys.exit(main())
