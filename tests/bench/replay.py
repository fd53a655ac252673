"""`make bench NAME=replay`: how fast a recording is decided again and compared, on one core.

Two recordings are made and replayed by `slackwater replay` in a process of its own: a hundred
nodes with fifty pods, and a thousand nodes for an hour. Time is wall time of that process, start
included; memory is its largest resident set. `--hour-nodes 0` leaves the second out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.bench.common import Goal, finish, say
from tests.bench.replay_load import make

RUN = "from streams.replay.cli import app; app()"


@dataclass(frozen=True, slots=True)
class Replay:
    """What one run of the command came to."""

    said: dict[str, Any]
    wall_s: float
    cpu_s: float
    memory_mib: float

    @property
    def times(self) -> float:
        """Log time by wall time."""
        return float(self.said["span_s"]) / self.wall_s


def replay(path: Path) -> Replay:
    """Replay in a process of its own, on one core. Raises RuntimeError unless it is identical."""
    began = time.monotonic()
    command = [sys.executable, "-c", RUN, str(path), "--json", "--jobs", "1"]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdout=said) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - began
        said.seek(0)
        document = orjson.loads(said.read() or b"{}")
    if process.returncode != 0:
        raise RuntimeError(f"exit {process.returncode}: {document.get('first_difference')}")
    return Replay(document, wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def case(name: str, folder: Path, nodes: int, seconds: int, runs: int) -> Replay:
    """Make a recording and replay it ``runs`` times; the median by wall time."""
    began = time.monotonic()
    outputs = make(folder / name, nodes, seconds)
    size = sum(path.stat().st_size for path in (folder / name).rglob("*.parquet"))
    say(
        f"{name}: {nodes} nodes, {seconds} s, {outputs} outputs, {size / 1e6:.0f} MB, made in "
        f"{time.monotonic() - began:.0f} s"
    )
    found = []
    for _ in range(runs):
        one = replay(folder / name)
        found.append(one)
        say(
            f"{name}: {one.wall_s:.1f} s ({one.times:.0f} times real time), CPU {one.cpu_s:.1f} s, "
            f"{one.memory_mib:.0f} MiB"
        )
    return sorted(found, key=lambda one: one.wall_s)[len(found) // 2]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=600, help="of the hundred nodes")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--hour-nodes", type=int, default=1000)
    options.add_argument("--hour-seconds", type=int, default=3600)
    options.add_argument("--scratch", type=Path, default=None, help="on a disk with 20 GB free")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as made:
        small = case("hundred", Path(made), 100, chosen.seconds, chosen.runs)
        figures: dict[str, Any] = {
            "times_real_time": round(small.times, 1),
            "outputs_equal": small.said["equal"],
            "cpu_s": round(small.cpu_s, 2),
            "times_real_time_by_cpu": round(float(small.said["span_s"]) / small.cpu_s, 1),
            "load_average": round(os.getloadavg()[0], 1),
        }
        goals = [Goal("times_real_time", round(small.times, 1), 100, "at_least")]
        if chosen.hour_nodes:
            hour = case("hour", Path(made), chosen.hour_nodes, chosen.hour_seconds, 1)
            figures |= {
                "hour_nodes": chosen.hour_nodes,
                "hour_seconds": chosen.hour_seconds,
                "hour_outputs_equal": hour.said["equal"],
                "hour_cpu_s": round(hour.cpu_s, 1),
                "hour_times_real_time": round(hour.times, 2),
            }
            goals += [
                Goal("hour_wall_s", round(hour.wall_s, 1), 600),
                Goal("hour_memory_mib", round(hour.memory_mib), 2048),
            ]
    return finish("replay", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
