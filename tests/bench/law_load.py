"""What `make bench NAME=law` feeds the deciders: rules and machines, plain and with all that is on.

Plain is the shipped policy. `ALL` switches every optional decider on: eviction of both resources by
every feature, isolation of every family, burst, CPU sets, prediction with short-term levels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agents import step as law
from agents.log import Output
from agents.predict import PPM
from agents.prediction import fleet
from agents.state import PartitionState
from agents.table import ABSENT
from schemas.records import CpuTopology, Inventory, ResctrlFacts, Sli
from tests.bench.step import CAPACITY_MILLI, ONLINE, POLICY, Log, Machine, parse

JOIN_SECONDS = 10
PLAIN = (
    POLICY
    + "evict_memory: {cooldown_ms: 900}\n"
    + "capacity: {raise_permille_per_min: 60000}\n"  # what rises slowly has risen
)
_ON = "{lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true}}\n"
_FOUR = (
    "{lsr: {enabled: true}, ls: {enabled: true}, be: {enabled: true}, system: {enabled: true}}\n"
)
ALL = (
    PLAIN.replace("warm_ms: 10000", "warm_ms: 10000, short_model: predicted").replace(
        "{cooldown_ms: 900}", "{cooldown_ms: 900, usage_enabled: true, allocatable_enabled: true}"
    )
    + "suppress: {policy: cpuset}\n"
    + "evict_cpu: {enabled: true, usage_enabled: true, allocatable_enabled: true}\n"
    + "prediction: {enabled: true, cold_start_ms: 0}\n"
    + "cpu_burst: {policy: auto, quota_burst_period_s: 3600}\n"
    + f"resctrl: {_ON}block_io: {_ON}oom: {_FOUR}group_identity: {_FOUR}"
    + "memory_qos: {lsr: {enabled: true, min_percent: 50, low_percent: 60},"
    + " ls: {enabled: true, min_percent: 50, low_percent: 60}, be: {enabled: true,"
    + " throttling_percent: 80}}\n"
    + "system_daemons: {enabled: true}\n"
    + "slo_guard: {objectives: [{workload: svc-0, p99_us: 100000},"
    + " {workload: svc-1, p99_us: 90000}, {workload: svc-2, errors_permille: 10}]}\n"
    + "network: {total_mbit_per_s: 10000, ls: {enabled: true, egress_max_percent: 100}}\n"
)
_CPUS = tuple(range(CAPACITY_MILLI // 1000))
_HALVES = tuple(cpu * 2 // len(_CPUS) for cpu in _CPUS)
TOPOLOGY = CpuTopology(_CPUS, tuple(cpu // 2 for cpu in _CPUS), _HALVES, _HALVES)
THROTTLED_PODS = range(0, ONLINE, 15)
"""Pods that meet their limit in some seconds, so that their quota moves and comes back."""
THROTTLED_EVERY = 40
SERVICES, SUFFERS_EVERY = 3, 50
"""Services with an objective on each node, and of how many nodes one suffers."""
REMEMBERED, LEVEL, SPREAD = 60, 0.4, 0.35
"""Samples of the past, around that part of the peak."""


class Laden(Machine):
    """A machine of which every decider has something to say."""

    def inventory(self) -> Inventory:
        plain = super().inventory()
        pods = tuple(
            replace(
                pod, cpu_limit_milli=2000, memory_limit_bytes=4 << 30, opted_in=place >= ONLINE,
                cpu_request_milli=1000 if place < ONLINE else 200,
                memory_request_bytes=1 << (31 if place < ONLINE else 20),
                recoverable=bool(place % 2) if place >= ONLINE else None,
                workload=f"svc-{place % SERVICES}" if place < ONLINE else "",
            )
            for place, pod in enumerate(plain.pods)
        )  # fmt: skip
        facts = ResctrlFacts(domain_ids=(0, 1), cbm_mask=0xFFFFF, bandwidth=True)
        return replace(plain, pods=pods, topology=TOPOLOGY, resctrl=facts)

    def __init__(self, number: int, seed: int) -> None:
        super().__init__(number, seed)
        self.turn = number

    def reports(self) -> list[Sli]:
        """What its services say of themselves; on a few machines the first of them suffers."""
        slow = self.turn % SUFFERS_EVERY == 0
        return [
            Sli(f"svc-{i}", self.name, 10_000, 0, 200_000 if slow and i == 0 else 20_000, 1_000)
            for i in range(SERVICES)
        ]

    def sample(self) -> bytes:
        """Now and then a few online pods were throttled."""
        if (self.seq + self.turn) % THROTTLED_EVERY == 0:
            for place in THROTTLED_PODS:
                self.throttled_us[place] += 20_000
        return super().sample()


class Partition:
    """One state with the machines that feed it."""

    def __init__(self, machines: list[Machine], rules: str) -> None:
        self.machines = machines
        self.log = Log(machines, rules)
        self.state = PartitionState(0, 1)
        law.step(self.state, [self.log.first_tick()])
        assert self.state.policy is not None, "the rules were refused"

    def second(self, number: int) -> list[Output]:
        """One sample of every machine in one wave, then a tick. Machines join over ten seconds.

        So what is due every ten seconds is due for a tenth of them, as in a fleet of some age.
        """
        self.log.machines = [
            machine for i, machine in enumerate(self.machines) if i % JOIN_SECONDS <= number
        ]
        outputs = law.step(self.state, parse(self.log.second()))
        said = [
            sli
            for machine in self.machines[number % JOIN_SECONDS :: JOIN_SECONDS]
            if isinstance(machine, Laden)
            for sli in machine.reports()
        ]
        return outputs + law.step(self.state, [self.log.tick(said)])

    def remember(self) -> None:
        """Give the models that there are an afternoon of varied use: each a few tens of buckets."""
        held = self.state.models
        if held is None:
            return
        draw, rule = np.random.default_rng(1), self.state.law.prediction
        for bank in (held.pods, held.classes):
            rows = np.flatnonzero(bank["since_ms"] != ABSENT)
            models = bank.models(held.half_lives_ms, rule.epsilon_ppm / PPM)
            level = bank["peak"][rows] * LEVEL
            for _ in range(REMEMBERED):
                usage = (level * draw.lognormal(0, SPREAD, (len(rows), 1))).astype(np.int64)
                fleet.train(models, rows, usage, self.log.log_ms)

    def table_bytes(self) -> int:
        """What the arenas hold."""
        tables = (self.state.nodes, self.state.pods)
        return sum(table[f.name].nbytes for table in tables for f in table.fields)
