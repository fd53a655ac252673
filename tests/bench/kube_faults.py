"""`python -m tests.bench.kube_faults`: six faults, 20 runs each, between a real Kafka and cluster.

Two bridges tell 12 nodes; batch pods run on four of them. In every run numbers change while a
kubelet's wipe, a kill of the API server, an expired watch (410), a storm of conflicts (409), a
kill -9 of the leading bridge, or a leader that is halted past its lease and wakes again, is under
way. Measured: seconds until all nodes show exactly what is desired, counted from the fault's end
(the API server answers again; for a killed or halted bridge: from the kill, from the waking).

Ends with one line of JSON; exit 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import uuid
from pathlib import Path

from streams.dev_broker import DevBroker
from tests.bench.common import Goal, finish, median, say
from tests.kube import programs
from tests.kube.cluster import Cluster
from tests.kube.fault_stage import FAULTS, Stage, play

AGAIN_WITHIN_S = 5.0


async def series(stage: Stage, runs: int) -> tuple[dict[str, list[float]], int]:
    took_s: dict[str, list[float]] = {fault: [] for fault in (*FAULTS, "conflict_storm")}
    evictions = 0
    await stage.begin()
    for run in range(runs):
        for number, fault in enumerate(took_s):
            cpu_milli = 2_000 if number % 2 else 6_000  # always far from the one before
            seconds, evicted = await play(stage, fault, cpu_milli)
            took_s[fault].append(seconds)
            evictions += len(evicted)
        say(f"run {run}: " + ", ".join(f"{fault} {s[-1]:.2f} s" for fault, s in took_s.items()))
    return took_s, evictions


async def measure(folder: Path, runs: int) -> tuple[dict[str, list[float]], int]:
    with DevBroker() as broker, Cluster(folder / "cluster", programs.find()) as cluster:
        prefix = f"b{uuid.uuid4().hex[:8]}."
        async with Stage(cluster, broker.bootstrap, prefix, folder) as stage:
            return await series(stage, runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took_s, evictions = asyncio.run(measure(Path(folder), chosen.runs))
    figures = {
        "runs": chosen.runs,
        "median_s": {fault: round(median(s) or 0.0, 2) for fault, s in took_s.items()},
    }
    goals = [
        Goal(f"{fault}_longest_s", _shown(max(s)), AGAIN_WITHIN_S) for fault, s in took_s.items()
    ]
    return finish("kube_faults", figures, [*goals, Goal("evictions", evictions, 0)])


def _shown(seconds: float) -> float | None:
    """None: it never came."""
    return None if math.isinf(seconds) else round(seconds, 2)


if __name__ == "__main__":
    sys.exit(main())
