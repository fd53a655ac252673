"""From the start of contention to the written knob, by the node alone: real groups, no Kafka.

    python -m tests.bench.reflex [--trials 20] [--quiet 600s] [--cpu-idle]

A real agent that samples once a second watches an online service of one worker a CPU beside a
best-effort job of two spinners a CPU. In each trial all workers become busy at once; a witness
looks at the quota every 2 ms. The floor that the policy gives the law lies above every cut, so a
lower quota can only be the reflex's. Then the quiet part: the service at a steady load beside the
throttled job, in which every cut is a false one. A trial, or a quiet second, with more than 0.1
core of foreign load is told apart and not judged; others are waited for, as long as patience lasts.

By default best-effort groups are not `cpu.idle` here (as where a kubelet owns their root): they
collide with the service as equals, which is when a reflex is needed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node_agent.cgroup.layout import detect
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups, remove_stale
from node_agent.workbench.online import Load
from tests.bench.common import Goal, finish, median, say
from tests.bench.lone_agent import Lone, Others, until

NAME = "slackwater-reflex"
GOAL_MS = 200.0
OTHERS_MILLI = 100
LOOK_S = 0.002
GIVE_UP_S = 3.0
REST_S = 1.0
REST_MILLI, BUSY_MILLI = 150, 1000
WARM_SAMPLES = 6  # until the service's calm is known
NOISY_ATTEMPTS = 6  # for each trial that is judged
PATIENCE = 3  # the quiet part lasts at most so many times as long as is asked for
CPUS = os.cpu_count() or 1
FLOOR_MILLI = CPUS * 500
POLICY = """
name: default
rollout: {stage: expand}
suppress: {threshold_percent: 100, floor_percent: 50, raise_permille: 1000}
reflex: {hold_ms: 1000}
evict_memory: {enabled: false}
"""


@dataclass(slots=True)
class Found:
    """What was measured; a trial is (milliseconds or None, others in millicores)."""

    trials: list[tuple[float | None, int]] = field(default_factory=list)
    quiet_s: int = 0
    noisy_s: int = 0
    false_cuts: int = 0
    noisy_cuts: int = 0
    agent_percent: float = 0.0  # in the quiet part
    looks_per_s: float = 0.0

    @property
    def judged(self) -> list[float | None]:
        return [ms for ms, others in self.trials if others <= OTHERS_MILLI]


class Bench:
    """Service, job and agent, all running."""

    def __init__(self, agent: Lone, loads: list[Load]) -> None:
        self.agent, self.loads = agent, loads
        self.others = Others(agent.groups)

    def load(self, milli: int) -> None:
        for each in self.loads:
            each.set(milli)

    def at_rest(self) -> None:
        """Under the law's bound for a while; ends at any phase of the agent's looks."""
        begins = time.monotonic()
        until(lambda: self.agent.quota_milli() >= FLOOR_MILLI, "the law's bound", 60.0)
        while time.monotonic() - begins < REST_S + time.monotonic_ns() % 7 / 100:
            if self.agent.quota_milli() < FLOOR_MILLI:
                begins = time.monotonic()
            time.sleep(LOOK_S)

    def trial(self) -> tuple[float | None, int]:
        """(milliseconds from the busy workers to the lower quota, others meanwhile)."""
        self.at_rest()
        self.others.milli()
        began = time.monotonic()
        self.load(BUSY_MILLI)
        passed: float | None = None
        while time.monotonic() - began < GIVE_UP_S:
            if self.agent.quota_milli() < FLOOR_MILLI:
                passed = (time.monotonic() - began) * 1000
                break
            time.sleep(LOOK_S)
        others = self.others.milli()
        self.load(REST_MILLI)
        return passed, others

    def quiet(self, seconds: int, found: Found) -> None:
        """Count cuts while nothing happens, second by second."""
        cuts, end = self.agent.metric("reflex_cuts_total"), time.monotonic() + PATIENCE * seconds
        cpu_us, began = self.agent.cpu_us(), time.monotonic()
        looks = self.agent.metric("reflex_looks_total")
        while found.quiet_s < seconds and time.monotonic() < end:
            self.others.milli()
            time.sleep(1.0)
            others, now = self.others.milli(), self.agent.metric("reflex_cuts_total")
            if others <= OTHERS_MILLI:
                found.quiet_s += 1
                found.false_cuts += int(now - cuts)
            else:
                found.noisy_s += 1
                found.noisy_cuts += int(now - cuts)
            cuts = now
        passed_s = time.monotonic() - began
        found.looks_per_s = (self.agent.metric("reflex_looks_total") - looks) / passed_s
        found.agent_percent = (self.agent.cpu_us() - cpu_us) / 1e4 / passed_s


@contextmanager
def staged(folder: Path, policy: str = POLICY, *, cpu_idle: bool, pods: int = 2) -> Iterator[Bench]:
    """Groups, service, job and agent for the time of a measurement; more pods are empty."""
    layout = detect()
    remove_stale(layout, NAME)
    with Groups(f"{NAME}-{os.getpid()}", layout) as groups:
        web, batch = groups.pod("online", "web"), groups.pod("besteffort", "batch")
        options = () if cpu_idle else ("--no-cpu-idle",)
        agent = Lone(groups, folder, policy, *options)
        more = {f"web-{n}": groups.pod("online", f"web-{n}") for n in range(2, pods)}
        rows = [f"- {{uid: {u}, qos: LS, cgroup: {at}}}" for u, at in {"web": web, **more}.items()]
        rows.append(f"- {{uid: batch, qos: BE, cgroup: {batch}}}")
        root = f"best_effort_root: {groups.be_root}\npods:\n"
        agent.inventory.write_text(root + "\n".join(rows) + "\n")
        loads: list[Load] = []
        greedy = Greedy(batch, 2 * CPUS, folder / "counts")
        try:
            loads += [Load(web, REST_MILLI) for _ in range(CPUS)]
            with agent.running():
                yield Bench(agent, loads)
        finally:
            greedy.stop()
            for each in loads:
                each.stop()


def measure(bench: Bench, trials: int, quiet_s: int) -> Found:
    """Judged trials, as many as asked for if patience lasts; then the quiet part."""
    found = Found()
    until(lambda: bench.agent.metric("samples_total") >= WARM_SAMPLES, "enough samples", 60.0)
    while len(found.judged) < trials and len(found.trials) < NOISY_ATTEMPTS * trials:
        found.trials.append(bench.trial())
        ms, others = found.trials[-1]
        said = "no cut" if ms is None else f"{ms:.0f} ms"
        say(f"trial {len(found.trials)}: {said}, others {others / 1000:.2f} core")
    if quiet_s:
        say(f"quiet for {quiet_s} s")
        bench.quiet(quiet_s, found)
    return found


def p95(values: list[float | None]) -> float | None:
    """Nearest rank; None when it falls on a trial without a cut, or there is none."""
    ordered = sorted(values, key=lambda ms: float("inf") if ms is None else ms)
    return ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)] if ordered else None


def run(trials: int, quiet_s: int, pods: int, *, cpu_idle: bool) -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        staged(Path(folder), cpu_idle=cpu_idle, pods=pods) as bench,
    ):
        found = measure(bench, trials, quiet_s)
        peak_kib = next(
            int(line.split()[1])
            for line in Path(f"/proc/{bench.agent.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
    judged, every = found.judged, [ms for ms, _ in found.trials]
    figures = {
        "pods": pods,
        "trials_judged": len(judged),
        "trials_noisy": len(found.trials) - len(judged),
        "cut_p50_ms": median([ms for ms in judged if ms is not None]),
        "cut_p95_ms": p95(judged),
        "cut_p95_noisy_too_ms": p95(every),
        "uncut": judged.count(None),
        "quiet_s": found.quiet_s,
        "noisy_s": found.noisy_s,
        "false_cuts": found.false_cuts,
        "noisy_cuts": found.noisy_cuts,
        "agent_cpu_percent": round(found.agent_percent, 3),
        "looks_per_s": round(found.looks_per_s, 1),
        "agent_rss_peak_mib": round(peak_kib / 1024, 1),
    }
    goals = []
    if trials:
        goals.append(Goal("cut_p95_ms", p95(judged), GOAL_MS))
        goals.append(Goal("trials_judged", len(judged), trials, "at_least"))
    if quiet_s:
        goals.append(Goal("false_cuts", found.false_cuts, 0))
        goals.append(Goal("quiet_s", found.quiet_s, quiet_s, "at_least"))
    return finish("reflex", figures, goals)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--quiet", default="600s", help="length of the quiet part; 0s: none")
    parser.add_argument("--pods", type=int, default=2, help="with so many, most of them empty")
    parser.add_argument("--cpu-idle", action="store_true", help="as an agent does by default")
    options = parser.parse_args()
    quiet_s = int(options.quiet.removesuffix("s"))
    return run(options.trials, quiet_s, options.pods, cpu_idle=options.cpu_idle)


if __name__ == "__main__":
    sys.exit(main())
