"""`make bench NAME=law`: what all deciders cost a tick, prediction included, and what they hold.

The state is built through `agents.step` from samples as a node agent encodes them, one a node and
second. Timed is CPU time of the deciders alone, those of the samples of one second and those of
the tick after it, without decoding and folding: first 10,000 nodes in one state, then partitions
of 208 nodes, which shows what a call costs however few nodes it has. One node in a hundred is
short of memory and evicts at every sample. Beside it prediction is timed by itself: a minute's
samples into the histograms of 5,000 nodes, and the sixtieth of the pods that is trained and asked a
tick. Then the same 10,000 nodes with every optional decider on (`law_load.ALL`), prediction within.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from agents import step as law
from agents.predict import PERIOD_MS
from agents.prediction import fleet
from tests.bench.common import Goal, finish, say
from tests.bench.law_load import ALL, PLAIN, Laden, Partition
from tests.bench.step import PODS, START_MS, Machine, obey, resident_bytes

PERIOD_S = PERIOD_MS // 1000
PARTITIONS = 24
PARTITION_NODES = 208
PREDICTED_NODES = 5000
HOT_EVERY = 100
SHORT_BYTES = 10 << 30
PLENTY_BYTES = 90 << 30
TICK_MS, EVICTING = 150, 10
SETTLE, LADEN_WARM = 65, 205
"""Seconds until every model has learnt twice, the second time warm, is given its past, and settles:
each of its answers is a minute old before anything is timed.
"""
CALLERS = ("_decide_samples", "_decide_tick")
"""Functions of `agents.step` that call the deciders."""
COLLECT = (50_000, 20, 100)
"""As the worker does."""
MS = 1e3
MIB = 1 << 20
HALF_LIVES_MS = (43_200_000, 86_400_000)


class Clock:
    """CPU milliseconds by decider: whatever `agents.step` calls for samples and ticks, by module.

    What a decider calls of another one counts for both by name, and once in `all`.
    """

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = {"all": 0.0}
        self._inside = False
        called = {name for caller in CALLERS for name in vars(law)[caller].__code__.co_names}
        for part, module in vars(law).copy().items():
            if isinstance(module, ModuleType) and module.__name__.startswith("agents."):
                for name in sorted(called & vars(module).keys()):
                    if isinstance(getattr(module, name), FunctionType):
                        self._wrap(module, name, f"{part}.{name}")

    def _wrap(self, module: ModuleType, name: str, label: str) -> None:
        inner: Callable[..., Any] = getattr(module, name)
        self.spent_ms[label] = 0.0

        def timed(*given: Any) -> Any:
            outermost, self._inside = not self._inside, True
            begin = time.process_time()
            try:
                return inner(*given)
            finally:
                spent_ms = (time.process_time() - begin) * MS
                self.spent_ms[label] += spent_ms
                if outermost:
                    self.spent_ms["all"] += spent_ms
                    self._inside = False

        setattr(module, name, timed)


def run(
    clock: Clock, machines: list[Machine], partitions: list[Partition], warm: int, ticks: int
) -> dict[str, float]:
    """Milliseconds a tick over all partitions together, by decider, and who was evicting."""
    times: list[dict[str, float]] = []
    evicting = 0
    for second in range(warm + ticks):
        # Only now, so that best-effort pods to evict last for all that is timed.
        for machine in machines[::HOT_EVERY]:
            machine.available_bytes = SHORT_BYTES if second >= warm else PLENTY_BYTES
        before = clock.spent_ms.copy()
        outputs = [output for partition in partitions for output in partition.second(second)]
        if not isinstance(machines[0], Laden):  # bound by CPU set there is no quota to read back
            obey(machines, outputs)
        if second == warm - SETTLE:
            for partition in partitions:
                partition.remember()
        if second >= warm:
            times.append({name: ms - before[name] for name, ms in clock.spent_ms.items()})
            evicting += sum(
                output.topic == "commands" and output.decider == "evict_memory"
                for output in outputs
            )
        if second % 10 == 9:
            say(f"second {second + 1} of {warm + ticks}")
    medians = {name: statistics.median(tick[name] for tick in times) for name in times[0]}
    longest = max(tick["all"] for tick in times)
    return medians | {"longest": longest, "evicting": evicting / ticks}


def predict(nodes: int, turn_nodes: int) -> dict[str, float]:
    """Histogram updates a second over all pods of ``nodes``; ms of one turn of ``turn_nodes``."""
    rows = nodes * PODS
    seed = np.random.default_rng(1)
    models = fleet.models(rows, HALF_LIVES_MS, 0.0001)
    everyone = np.arange(rows, dtype=np.int64)
    rates: list[float] = []
    for minute in range(7):
        usage = np.stack([seed.integers(1, 4000, rows), seed.integers(1, 1 << 33, rows)], axis=1)
        begin = time.process_time()
        fleet.train(models, everyone, usage, START_MS + minute * 60_000)
        rates.append(2 * rows / (time.process_time() - begin))
    turns: list[float] = []
    size = turn_nodes * PODS // PERIOD_S
    usage = np.stack([seed.integers(1, 4000, size), seed.integers(1, 1 << 33, size)], axis=1)
    for second in range(20):
        due = np.arange(second, rows, rows // size, dtype=np.int64)[:size]
        begin = time.process_time()
        fleet.train(models, due, usage, START_MS + 420_000 + second * 1000)
        fleet.ask(models, due, (0.95,), (0.98,))
        turns.append((time.process_time() - begin) * MS)
    return {
        "updates_per_s": statistics.median(rates[1:]),
        "turn_ms": statistics.median(turns),
        "turn_rows": size,
    }


def plain(clock: Clock, nodes: int, warm: int, ticks: int) -> tuple[dict[str, Any], float, float]:
    """(figures, milliseconds of a tick, permille evicting) under the shipped policy."""
    machines = [Machine(i, 1) for i in range(nodes)]
    gc.collect()
    gc.freeze()
    before = resident_bytes()
    whole = Partition(machines, PLAIN)
    one = run(clock, machines, [whole], warm, ticks)
    gc.collect()
    held = resident_bytes() - before
    table_bytes = whole.table_bytes()
    del whole
    gc.collect()
    calls = min(PARTITIONS, nodes // PARTITION_NODES)
    parts = (machines[i * PARTITION_NODES : (i + 1) * PARTITION_NODES] for i in range(calls))
    many = run(clock, machines, [Partition(part, PLAIN) for part in parts], warm, ticks)
    alike = one["all"] * calls * PARTITION_NODES / nodes
    predicted_mib = PREDICTED_NODES * PODS * fleet.ROW_BYTES / MIB
    figures = told(one) | {
        "memory_mib": round(held / nodes * PREDICTED_NODES / MIB + predicted_mib),
        "partitions": calls,
        "partition_nodes": PARTITION_NODES,
        "partitions_deciders_ms_median": round(many["all"], 2),
        "partitions_deciders_ms_max": round(many["longest"], 2),
        "call_overhead_ms": round((many["all"] - alike) / max(calls, 1), 3),
        "table_bytes_per_pod": round(table_bytes / nodes / PODS),
        "prediction_bytes_per_pod": fleet.ROW_BYTES,
    }
    return figures, one["all"], one["evicting"] * 1000 / nodes


def laden(clock: Clock, nodes: int, warm: int, ticks: int) -> tuple[dict[str, Any], float, float]:
    """The same with every optional decider on and something to say for each."""
    machines: list[Machine] = [Laden(i, 1) for i in range(nodes)]
    gc.collect()
    gc.freeze()
    before = resident_bytes()
    whole = Partition(machines, ALL)
    one = run(clock, machines, [whole], warm, ticks)
    gc.collect()
    held_mib = (resident_bytes() - before) / nodes * PREDICTED_NODES / MIB
    figures = told(one) | {"memory_mib": round(held_mib)}
    return figures, one["all"], one["evicting"] * 1000 / nodes


def told(one: dict[str, float]) -> dict[str, Any]:
    """Figures of a run."""
    return {
        "deciders_ms_median": round(one["all"], 2),
        "deciders_ms_max": round(one["longest"], 2),
        "parts_ms_median": {name: round(ms, 2) for name, ms in one.items() if "." in name},
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=10_000)
    options.add_argument("--warm", type=int, default=22)
    options.add_argument("--laden-warm", type=int, default=LADEN_WARM)
    options.add_argument("--ticks", type=int, default=20)
    options.add_argument("--only", choices=("plain", "all"), help="one row of the two")
    chosen = options.parse_args()
    gc.set_threshold(*COLLECT)
    clock = Clock()
    figures: dict[str, Any] = {"nodes": chosen.nodes, "pods_per_node": PODS}
    goals: list[Goal] = []
    if chosen.only != "all":
        prediction = predict(PREDICTED_NODES, chosen.nodes)
        gc.collect()
        row, tick_ms, permille = plain(clock, chosen.nodes, chosen.warm, chosen.ticks)
        figures["plain"] = row | {
            "prediction_turn_ms": round(prediction["turn_ms"], 2),
            "prediction_turn_rows": prediction["turn_rows"],
        }
        rate = round(prediction["updates_per_s"])
        goals += [
            Goal("tick_ms_median", round(tick_ms + prediction["turn_ms"], 2), TICK_MS),
            Goal("evicting_permille", round(permille, 1), EVICTING, "at_least"),
            Goal("histogram_updates_per_s", rate, 10_000_000, "at_least"),
            Goal(f"memory_mib_of_{PREDICTED_NODES}_nodes", row["memory_mib"], 2048),
        ]
        gc.unfreeze()
        gc.collect()
    if chosen.only != "plain":
        row, tick_ms, permille = laden(clock, chosen.nodes, chosen.laden_warm, chosen.ticks)
        figures["all_on"] = row
        goals += [
            Goal("all_on_tick_ms_median", round(tick_ms, 2), TICK_MS),
            Goal("all_on_evicting_permille", round(permille, 1), EVICTING, "at_least"),
        ]
        if "plain" in figures:
            before_ms = figures["plain"]["deciders_ms_median"]
            figures["all_on_of_plain"] = round(tick_ms / before_ms, 2)
    return finish("law", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
