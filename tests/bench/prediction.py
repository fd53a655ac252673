"""`make bench NAME=prediction`: histograms of 250,000 pods: updates a second, percentiles, bytes.

5,000 nodes of 50 pods, cpu and memory, float32 cells, CPU time of this process on one core. Goals:
10,000,000 updates a second with every row once a minute, and all models within 2 GiB. Cells that
were never written cost a page fault each the first time, so a first round is not counted.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from agents.predict import PERIOD_MS
from agents.prediction import fleet
from agents.table import Array
from tests.bench.common import Goal, finish, say

NODES, PODS = 5_000, 50
PERIOD_S = PERIOD_MS // 1000
HALF_LIVES_MS = (43_200_000, 86_400_000)
EPSILON = 0.0001
START_MS = 1_700_000_000_000
SHAPES = 8
"""Different minutes of usage, made before the clock runs."""


def usages(rows: int, seed: int) -> list[Array]:
    """Millicores and bytes of each row, some minutes of them: levels of their own, and noise."""
    draw = np.random.default_rng(seed)
    level = draw.lognormal(6, 1.5, rows)
    minutes = []
    for _ in range(SHAPES):
        cpu = (level * draw.lognormal(0, 0.3, rows)).astype(np.int64)
        minutes.append(np.stack([cpu, cpu << 21], axis=1))
    return minutes


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="prediction")
    parser.add_argument("--minutes", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(argv)
    rows = NODES * PODS
    models, minutes = fleet.models(rows, HALF_LIVES_MS, EPSILON), usages(rows, chosen.seed)
    every = np.arange(rows)
    for minute in range(SHAPES):
        fleet.train(models, every, minutes[minute], START_MS + minute * PERIOD_MS)
    begin = time.process_time()
    for minute in range(SHAPES, SHAPES + chosen.minutes):
        fleet.train(models, every, minutes[minute % SHAPES], START_MS + minute * PERIOD_MS)
    rate = 2 * rows * chosen.minutes / (time.process_time() - begin)
    say(f"all rows at once: {rate / 1e6:.1f} million updates a second")
    taught_s = asked_s = 0.0
    for second in range(PERIOD_S):
        due = np.arange(second, rows, PERIOD_S)
        usage = minutes[second % SHAPES][due]
        begin = time.process_time()
        fleet.train(models, due, usage, START_MS + 100 * PERIOD_MS + second * 1000)
        between = time.process_time()
        fleet.ask(models, due, (0.95,), (0.98,))
        asked_s += time.process_time() - between
        taught_s += between - begin
    shared = 2 * rows / taught_s
    say(f"a sixtieth a tick: {shared / 1e6:.1f} million, percentiles {asked_s:.2f} s a minute")
    held = rows * fleet.ROW_BYTES
    figures = {
        "rows": rows,
        "bytes_per_row": fleet.ROW_BYTES,
        "updates_per_s": round(rate),
        "updates_per_s_in_sixtieths": round(shared),
        "train_ms_per_tick": round(taught_s * 1000 / PERIOD_S, 2),
        "percentiles_ms_per_tick": round(asked_s * 1000 / PERIOD_S, 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    goals = [
        Goal("updates_per_s", rate, 10_000_000, "at_least"),
        Goal("state_mib", held / (1 << 20), 2048),
    ]
    return finish("prediction", figures, goals)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
