"""`make bench NAME=step`: what the law costs alone: decode, fold and decide, no transport.

Two cases. A fleet of 5,000 nodes with 50 pods in one state, samples in waves of 200 or more and a
tick a second of event time, long enough to turn minutes and to take points and baselines. Cost is
CPU time of this process, so that other work on the machine does not count. And one
node by itself, as the node agent runs it: one sample and one tick a step.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agents.log import LAW_VERSION, Entry, Output, SampleEntry, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas import codec, packed
from schemas.columns import SLOW_POD_COLUMNS
from schemas.records import Inventory, NodeSample, PodFact, PolicyRecord, Sli, Tick
from tests.bench.common import Goal, finish, say

START_MS = 1_700_000_000_000
PODS = 50
ONLINE = 30
CAPACITY_MILLI = 64_000
MEMORY_BYTES = 256 << 30
POLICY = (
    "rollout: {stage: expand}\ninterference: {history_ms: 30000}\nreservation: {warm_ms: 10000}\n"
)


class Machine:
    """One simulated node: counters that grow, some noise, a pod set."""

    def __init__(self, number: int, seed: int) -> None:
        self.name = f"node-{number:05d}"
        self.random = random.Random(seed * 100_003 + number)
        self.boot = f"{number:032x}"
        self.mono_us = 10_000_000 + self.random.randrange(1_000_000)
        self.shares = [self.random.randrange(50, 900) for _ in range(PODS)]
        self.memory = [self.random.randrange(1 << 26, 3 << 30) for _ in range(PODS)]
        self.cpu_us = [self.random.randrange(10**9) for _ in range(PODS)]
        self.pressure_us = [0] * PODS
        self.wait_us = [0] * PODS
        self.throttled_us = [0] * PODS
        self.busy_us = sum(self.cpu_us)
        self.quota_milli = -1
        self.available_bytes = 90 << 30
        self.seq = 0

    def inventory(self) -> Inventory:
        pods = tuple(
            PodFact(
                uid=f"{self.name}-4f3a-pod-{i:03d}-8c51",
                name=f"pod-{i}",
                qos="LS" if i < ONLINE else "BE",
                priority_class="prod" if i < ONLINE else "batch",
                cpu_request_milli=1000,
                memory_request_bytes=2 << 30,
            )
            for i in range(PODS)
        )
        return Inventory(self.name, 1, CAPACITY_MILLI, MEMORY_BYTES, pods=pods)

    def sample(self) -> bytes:
        """The next second, encoded as the node agent does."""
        self.seq += 1
        self.mono_us += 1_000_000
        noises, total = self.random.choices(range(-40, 41), k=PODS), 0
        for i, share in enumerate(self.shares):
            noise = noises[i]
            grown = (share + noise) * 1000
            self.cpu_us[i] += max(grown, 0)
            self.pressure_us[i] += 900 * (i % 7) + abs(noise) * 50
            self.wait_us[i] += 1500 * (i % 5) + abs(noise) * 90
            total += max(grown, 0)
        self.busy_us += total + 900_000
        slow = SLOW_POD_COLUMNS[self.seq % len(SLOW_POD_COLUMNS)]
        return packed.encode(
            NodeSample(
                self.name, self.boot, self.boot, self.seq, self.mono_us, START_MS, 1000, 1, PODS,
                {
                    "cpu_busy_us": self.busy_us, "cpu_steal_us": 0,
                    "memory_total_bytes": MEMORY_BYTES,
                    "memory_available_bytes": self.available_bytes,
                    "psi_cpu_some_us": self.seq, "psi_memory_some_us": 0, "psi_memory_full_us": 0,
                    "psi_io_some_us": 0, "be_cpu_usage_us": sum(self.cpu_us[ONLINE:]),
                    "be_cpu_throttled_us": 0, "be_cpu_quota_milli": self.quota_milli,
                    "samples_dropped": 0, "oom_kills": 0,
                },
                {
                    "cpu_usage_us": [*self.cpu_us], "cpu_throttled_us": [*self.throttled_us],
                    "memory_used_bytes": [*self.memory], "psi_cpu_some_us": [*self.pressure_us],
                    "runq_wait_us": [*self.wait_us], slow: [1] * PODS,
                },
            )
        )  # fmt: skip


class Log:
    """A partition's log in the making: offsets, append times, and the side records of tick one."""

    def __init__(self, machines: list[Machine], rules: str = POLICY) -> None:
        self.machines = machines
        self.rules = rules
        self.offset = self.slis = 0
        self.log_ms = START_MS

    def first_tick(self) -> TickEntry:
        policy = PolicyRecord("default", 1, "", self.rules)
        side = [SideRecord("policies", 0, 0, b"default", policy)]
        for i, machine in enumerate(self.machines):
            side.append(SideRecord("inventory", 0, i, machine.name.encode(), machine.inventory()))
        vector = {"inventory/0": len(self.machines), "policies/0": 0}
        return TickEntry(0, self.log_ms, Tick(0, 1, LAW_VERSION, vector), tuple(side))

    def tick(self, slis: Sequence[Sli] = ()) -> TickEntry:
        """A tick that admits what services said."""
        self.offset += 1
        side = tuple(
            SideRecord("slis", 0, self.slis + i, sli.node.encode(), sli)
            for i, sli in enumerate(slis)
        )
        self.slis += len(slis)
        vector = {"slis/0": self.slis - 1} if slis else {}
        return TickEntry(self.offset, self.log_ms, Tick(0, 1, LAW_VERSION, vector), side)

    def second(self) -> list[tuple[int, int, bytes]]:
        """(offset, log time, bytes) of one sample of every machine, in a jumbled order."""
        rows: list[tuple[int, int, bytes]] = []
        base_ms = self.log_ms
        for i, machine in enumerate(self.machines):
            self.offset += 1
            rows.append((self.offset, base_ms + i * 1000 // len(self.machines), machine.sample()))
        self.log_ms = base_ms + 1000
        return rows


def parse(rows: list[tuple[int, int, bytes]]) -> list[Entry]:
    return [SampleEntry(offset, log_ms, packed.PackedSample(raw)) for offset, log_ms, raw in rows]


def fleet_case(nodes: int, seconds: int, wave: int) -> dict[str, float]:
    """us a sample for parsing and for `step`, ticks included; MB of state; outputs a sample."""
    machines = [Machine(i, 1) for i in range(nodes)]
    log, state = Log(machines), PartitionState(0, 1)
    before = resident_bytes()
    step(state, [log.first_tick()])
    parse_s = step_s = tick_s = 0.0
    samples = outputs = output_bytes = warm = 0
    for second in range(seconds):
        rows = log.second()
        measured = second >= 3
        for begin in range(0, len(rows), wave):
            raw = rows[begin : begin + wave]
            t0 = time.process_time()
            entries = parse(raw)
            t1 = time.process_time()
            answer = step(state, entries)
            t2 = time.process_time()
            if measured:
                parse_s, step_s, samples = parse_s + t1 - t0, step_s + t2 - t1, samples + len(raw)
                outputs += len(answer)
            obey(machines, answer)
        t0 = time.process_time()
        answer = step(state, [log.tick()])
        if measured:
            tick_s += time.process_time() - t0
            outputs += len(answer)
            warm += 1
            if second % 10 == 0:
                output_bytes = max(output_bytes, encoded_bytes(answer))
        if second % 10 == 9:
            say(f"second {second + 1} of {seconds}")
    gc.collect()
    held = resident_bytes() - before
    return {
        "parse_us_per_sample": parse_s / samples * 1e6,
        "step_us_per_sample": step_s / samples * 1e6,
        "tick_us_per_sample": tick_s / samples * 1e6,
        "us_per_sample": (parse_s + step_s + tick_s) / samples * 1e6,
        "tick_ms": tick_s / warm * 1e3,
        "outputs_per_sample": outputs / samples,
        "tick_output_bytes": output_bytes,
        "state_mb": held / 1e6,
    }


def single_case(steps: int) -> float:
    """Median ms of a step with one sample and one tick, for a state of one node."""
    log, state = Log([Machine(0, 2)]), PartitionState(0, 1)
    step(state, [log.first_tick()])
    times: list[float] = []
    for _ in range(steps):
        rows = log.second()
        t0 = time.process_time()
        step(state, [*parse(rows), log.tick()])
        times.append(time.process_time() - t0)
    return statistics.median(times) * 1e3


def obey(machines: list[Machine], outputs: list[Output]) -> None:
    """Let commands come into force, as the next sample's read-back shows."""
    for output in outputs:
        if output.topic == "commands" and output.decider == "suppress":
            machines[int(output.node[-5:])].quota_milli = output.record.allow_milli


def encoded_bytes(outputs: list[Output]) -> int:
    return sum(len(codec.encode(output.record)) for output in outputs)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--seconds", type=int, default=70)
    options.add_argument("--wave", type=int, default=200)
    options.add_argument("--single-steps", type=int, default=600)
    chosen = options.parse_args()
    fleet = fleet_case(chosen.nodes, chosen.seconds, chosen.wave)
    single_ms = single_case(chosen.single_steps)
    figures = {name: round(value, 3) for name, value in fleet.items()}
    figures |= {"nodes": chosen.nodes, "pods_per_node": PODS, "wave_samples": chosen.wave}
    goals = [
        Goal("us_per_sample", figures["us_per_sample"], 35),
        Goal("state_mb", figures["state_mb"], 700),
        Goal("single_node_step_ms", round(single_ms, 3), 1.5),
    ]
    return finish("step", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
