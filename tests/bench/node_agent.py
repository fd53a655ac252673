"""What the node agent costs with all its signals: real groups, a real broker.

    python -m tests.bench.node_agent [--seconds 60] [--pods 100] [--only sampler|agent|many]

Three phases: the sampler alone in a process of its own, the whole agent (`slackwater node run`:
sampling, Kafka, the local law, the reflex, the actuators on its own best-effort root) with 100 pods
of 2 containers, and the whole agent with 1,000 pods. Each runs in a group of its own whose CPU time
is read from the kernel, to the nanosecond and with all threads. Some containers hold a process in a
network of its own that wakes 20 times a second; pods and agent share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from node_agent.cgroup.layout import Layout, detect
from node_agent.signals import cpu_usage
from streams import topics_admin
from streams.dev_broker import DevBroker
from tests.bench.common import Goal, finish, median, say
from tests.node_agent.realgroups import RealGroups, sweep_leftovers, until

ACTIVE = """
import ctypes, sys, time
sys.stdin.readline()
ctypes.CDLL(None).unshare(0x40000000)  # CLONE_NEWNET
while True:
    time.sleep(.05)
    sum(range(3000))
"""
MANY_PODS, MANY_GOAL_PERCENT = 1000, 6.0
CPU_GOAL_PERCENT = 1.0
RSS_GOAL_MIB = 60.0
READY_S = 60.0
STOP_S = 15.0
WARM_SWEEPS = 5
SWEEPS_LEAST = 0.9  # a second
PREFIX = "bench."
SPENT = 'signal_seconds_total{signal="'


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process cost over a stretch of time."""

    seconds: float
    cpu_percent: float
    rss_mib: float
    rss_peak_mib: float
    sweeps: int
    signals_us: dict[str, int]  # a sweep, by signal, mean since the start


class Probe:
    """CPU time of a group, memory of the process in it."""

    def __init__(self, layout: Layout, group: str, pid: int) -> None:
        place = layout.place("cpu_usage", group)
        assert place is not None
        self._usage = Path(place.path)
        self._parse = cpu_usage.parse_v1 if place.version == 1 else cpu_usage.parse_v2
        self._status = Path(f"/proc/{pid}/status")

    def cpu_us(self) -> int:
        used_us = self._parse(self._usage.read_bytes())[0]
        assert used_us is not None
        return used_us

    def mib(self, key: str) -> float:
        line = next(row for row in self._status.read_text().splitlines() if row.startswith(key))
        return int(line.split()[1]) / 1024


def populate(groups: RealGroups, pods: int, containers: int, active: int) -> None:
    """Pods in the form that discovery finds, a third of them best-effort."""
    for pod in range(pods):
        kind = "besteffort" if pod % 3 == 0 else "online"
        for container in range(containers):
            groups.make(f"{kind}/pod{pod:03d}/c{container}")
        if pod < active:
            groups.run(f"{groups.top}/{kind}/pod{pod:03d}/c0", ACTIVE)


@contextmanager
def placed(groups: RealGroups, command: list[str], word: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in its own group, ended by SIGTERM."""
    home = Path(groups.layout.anchor) / groups.make(word) / "cgroup.procs"
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        home.write_text(str(child.pid))
        try:
            yield child
        except BaseException:
            log.seek(0)
            say(log.read()[-4000:].decode(errors="replace"))
            raise
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(STOP_S)
            if child.stdout is not None:
                child.stdout.close()


def measure(probe: Probe, seconds: float, sweeps: int, word: str) -> tuple[float, float]:
    """(CPU percent of one core, seconds) over about ``seconds``."""
    say(f"{word}: warm after {sweeps} sweeps, measuring for {seconds:.0f} s")
    begin_us, begin = probe.cpu_us(), time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        time.sleep(min(5.0, seconds - passed))
        used = (probe.cpu_us() - begin_us) / 1e4 / (time.monotonic() - begin)
        say(f"{word}: {time.monotonic() - begin:4.0f} s  {used:.3f} % of a core")
    passed = time.monotonic() - begin
    return (probe.cpu_us() - begin_us) / 1e4 / passed, passed


def sampler_alone(groups: RealGroups, seconds: float) -> tuple[Cost, list[int]]:
    """The sampler and the packed codec in a process of their own; cost of each sweep in us."""
    command = [sys.executable, "-m", "tests.bench.node_agent_sampler", groups.top]
    with placed(groups, command, "sampler") as child:
        assert child.stdout is not None
        for _ in range(WARM_SWEEPS):
            child.stdout.readline()
        probe = Probe(groups.layout, f"{groups.top}/sampler", child.pid)
        os.set_blocking(child.stdout.fileno(), False)
        percent, passed = measure(probe, seconds, WARM_SWEEPS, "sampler")
        lines = child.stdout.read().splitlines()
        sweeps = undisturbed(len(lines), passed, "sampler")
        cost = Cost(passed, percent, probe.mib("VmRSS"), probe.mib("VmHWM"), sweeps, {})
    return cost, [int(line) for line in lines]


def whole_agent(groups: RealGroups, brokers: str, seconds: float, state: str) -> Cost:
    """`python -m node_agent run` as an operator starts it."""
    port = free_port()
    options = {
        "--node": "bench",
        "--brokers": brokers,
        "--prefix": PREFIX,
        "--period": "1s",
        "--discover": f"{groups.top}/*/pod*",
        "--be-root": f"{groups.top}/besteffort",
        "--state-dir": state,
        "--metrics-port": str(port),
    }
    words = [word for option in options.items() for word in option]
    with placed(groups, [sys.executable, "-m", "node_agent", "run", *words], "agent") as child:

        def metrics() -> dict[str, float]:
            if child.poll() is not None:
                raise RuntimeError(f"the agent ended with {child.returncode}")
            return scrape(port)

        until(lambda: metrics().get("samples_total", 0) >= WARM_SWEEPS, "agent up", READY_S)
        until(lambda: metrics().get("records_sent_total", 0) >= WARM_SWEEPS, "sending", READY_S)
        before = metrics()["samples_total"]
        probe = Probe(groups.layout, f"{groups.top}/agent", child.pid)
        percent, passed = measure(probe, seconds, int(before), "agent")
        after = metrics()
        if after["samples_dropped_total"] or not after["records_sent_total"]:
            raise RuntimeError("the agent dropped samples: the figure would flatter it")
        sweeps = undisturbed(int(after["samples_total"] - before), passed, "agent")
        memory = probe.mib("VmRSS"), probe.mib("VmHWM")
        return Cost(passed, percent, *memory, sweeps, by_signal(after))


def undisturbed(sweeps: int, seconds: float, word: str) -> int:
    """The sweeps, if there was about one a second: else the process or the machine stood still."""
    if sweeps < SWEEPS_LEAST * seconds:
        raise RuntimeError(f"{word}: {sweeps} sweeps in {seconds:.0f} s: it was stopped meanwhile")
    return sweeps


def by_signal(metrics: dict[str, float]) -> dict[str, int]:
    """Mean microseconds a sweep of each signal since the start; all of them must be sound."""
    spent = {key: value for key, value in metrics.items() if key.startswith(SPENT)}
    broken = [key for key in metrics if key.startswith("signal_ok") and not metrics[key]]
    if not spent or broken:
        raise RuntimeError(f"signals that failed: {broken}; that asked at all: {len(spent)}")
    sweeps = metrics["samples_total"]
    dearest = sorted(spent, key=spent.__getitem__, reverse=True)
    return {key[len(SPENT) : -2]: round(spent[key] * 1e6 / sweeps) for key in dearest}


def scrape(port: int) -> dict[str, float]:
    """The agent's metrics by name, labels included; empty while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name.removeprefix("slackwater_node_"): float(value) for name, value in pairs}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(pods: int, containers: int, seconds: float, only: str | None) -> int:
    """The phases, then the line of JSON."""
    sweep_leftovers(detect())
    figures: dict[str, Any] = {
        "pods": pods,
        "containers_per_pod": containers,
        "period_ms": 1000,
    }
    goals: list[Goal] = []
    if only in (None, "sampler"):
        with populated(pods, containers) as groups:
            cost, sweeps_us = sampler_alone(groups, seconds)
        figures |= named("sampler", cost) | {"sweep_us_median": median(sweeps_us)}
    if only in (None, "agent"):
        cost = agent_with(pods, containers, seconds)
        figures |= named("agent", cost) | {"signals_us": cost.signals_us}
    if only in (None, "many"):
        cost = agent_with(MANY_PODS, 1, seconds)
        figures |= named("many", cost) | {"many_pods": MANY_PODS}
        goals.append(Goal("many_cpu_percent", figures["many_cpu_percent"], MANY_GOAL_PERCENT))
    word = "sampler" if only == "sampler" else "agent"
    if only != "many":
        for name, bound in (("cpu_percent", CPU_GOAL_PERCENT), ("rss_peak_mib", RSS_GOAL_MIB)):
            goals.append(Goal(f"{word}_{name}", figures[f"{word}_{name}"], bound))
    return finish("node_agent", figures, goals)


@contextmanager
def populated(pods: int, containers: int) -> Iterator[RealGroups]:
    """So many pods, ten of them at work."""
    layout = detect()
    say(f"making {pods} pods of {containers} containers in {len(layout.mounts())} hierarchies")
    groups = RealGroups(layout, "bench")
    try:
        populate(groups, pods, containers, active=10)
        yield groups
    finally:
        groups.close()


def agent_with(pods: int, containers: int, seconds: float) -> Cost:
    """The whole agent beside so many pods."""
    with (
        populated(pods, containers) as groups,
        DevBroker() as broker,
        tempfile.TemporaryDirectory() as state,
    ):
        asyncio.run(topics_admin.create(broker.bootstrap, PREFIX, 4, None, policy()))
        return whole_agent(groups, broker.bootstrap, seconds, state)


def policy() -> str:
    """The shipped policy, at the stage where the agent has the most to do."""
    text = (Path(__file__).parents[2] / "agents/policies/default.yaml").read_text()
    assert text.count("stage: observe") == 1
    return text.replace("stage: observe", "stage: expand")


def named(word: str, cost: Cost) -> dict[str, float | int | None]:
    return {
        f"{word}_cpu_percent": round(cost.cpu_percent, 3),
        f"{word}_rss_mib": round(cost.rss_mib, 1),
        f"{word}_rss_peak_mib": round(cost.rss_peak_mib, 1),
        f"{word}_sweeps": cost.sweeps,
        f"{word}_measured_s": round(cost.seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="a round of all columns is 60")
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--containers", type=int, default=2)
    parser.add_argument("--only", choices=("sampler", "agent", "many"))
    options = parser.parse_args()
    return run(options.pods, options.containers, options.seconds, options.only)


if __name__ == "__main__":
    sys.exit(main())
