"""The planted incident: a policy that reclaims too much on the simulated fleet, and its rollback.

The fleet of `slackwater simulate` (its model, hands, scheduler and services) under the simulated
log and workers, in one thread, with a clock of its own: the same seed gives the same bytes. What
happens, in seconds from the start: at 150 a worker dies and another takes its partition over; at
`BAD_S` ann publishes a policy that takes nearly the whole machine for best-effort work; at `GOOD_S`
bob takes it back. The services of the nodes where batch work then collides leave their objective.

`python -m tests.sim.incident FILE` writes it as a bundle: tests/fixtures/recordings/incident.slack.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.log import Output
from node_agent.inbox import partition_of
from node_agent.lease import BrokerClock
from node_agent.simulate import trace
from node_agent.simulate.fleet import GIB, MIB, Fleet, build
from node_agent.simulate.hands import Hands
from node_agent.simulate.law import FleetLaw
from node_agent.simulate.world import Said, World
from schemas import codec, policy
from schemas.records import LEASE_KEY, Capacity, Command, Lease, PolicyRecord
from schemas.topics import BY_NAME
from streams.metrics import Metrics
from tests.sim.broker import START_MS, Broker
from tests.sim.others import SecondStage
from tests.sim.worker import INCARNATION, SimWorker
from tests.streams.recording.made import bundle_of

SEED = 7
NODES, PODS, PARTITIONS = 6, 12, 2
BUSY, HOTTEST, CORES_MILLI, BATCH_SLOTS = 3, 12, 16_000, 8
MEMORY_BYTES = 24 * GIB
BAD_S, GOOD_S, END_S = 180, 330, 420
KILL_S, TICK_MS, QUANTUM_MS, IMAGE_MS = 150, 1_000, 100, 30_000
SPEED = 8.0  # trace seconds in a second: online load moves, as in an hour of a real fleet
MONO_US = 1_000_000_000
OBJECTIVES = "".join(
    f"    - {{workload: {name}, p99_us: {p99_us}, errors_permille: 20, rounds: 2}}\n"
    for name, p99_us in (("shop/web", 48_000), ("shop/cart", 48_000))
)
POLICY = """name: default
rollout: {{stage: expand}}
loop: {{report_ms: 10000, refresh_ms: 30000}}
suppress: {{threshold_percent: {threshold}}}
capacity: {{cpu_reclaim_percent: {reclaim}, memory_reclaim_percent: {reclaim}, refresh_ms: 30000,
  raise_permille_per_min: 6000}}
reservation: {{warm_ms: 20000}}
interference: {{history_ms: 60000}}
blast: {{evictions_permille: 500}}
slo_guard:
  enabled: false
  objectives:
{objectives}"""
VERSIONS = (
    (1, 3, 65, 60, "ann", "what ran for weeks"),
    (BAD_S, 4, 98, 95, "ann", "batch is behind: take what is idle"),
    (GOOD_S, 5, 65, 60, "bob", "back to version 3: shop/web is slow"),
)
"""Second, version, suppress threshold, CPU reclaimed, author, note of each policy published."""


def text(threshold: int, reclaim: int) -> str:
    """The policy of the incident with these two figures."""
    return POLICY.format(threshold=threshold, reclaim=reclaim, objectives=OBJECTIVES)


def busy(fleet: Fleet, load: trace.Trace) -> Fleet:
    """The same fleet on nodes of 16 cores; the first `BUSY` nodes with the busiest of the trace."""
    hot = np.argsort(-load.mean.mean(axis=1), kind="stable")[:HOTTEST]
    entity = fleet.entity.copy()
    entity[:BUSY] = hot[fleet.entity[:BUSY] % HOTTEST]
    cpu_milli = np.full_like(fleet.cpu_milli, CORES_MILLI)
    request = fleet.online_cpu_milli * CORES_MILLI // fleet.cpu_milli[:, None] // 10 * 10
    was_mib = fleet.memory_bytes[:, None] // MIB
    memory = fleet.online_memory_bytes // MIB * (MEMORY_BYTES // MIB) // was_mib * MIB
    return replace(
        fleet, entity=entity, cpu_milli=cpu_milli, online_cpu_milli=request,
        memory_bytes=np.full_like(fleet.memory_bytes, MEMORY_BYTES), online_memory_bytes=memory,
        batch_slots=BATCH_SLOTS,
    )  # fmt: skip


class Nobody:
    """Hears what workers publish, and says nothing of it."""

    def said(self, worker: str, partition: int, output: Output, value: bytes) -> None: ...
    def recovered(self, worker: str, partition: int, how: str) -> None: ...


class Scene:
    """All parts, and `play`."""

    def __init__(self, seed: int = SEED, versions: Any = VERSIONS) -> None:
        self.broker = Broker()
        self._versions = versions
        load = trace.load("azure")
        fleet = busy(build(NODES, PODS, seed, load.mean.shape[0], "node"), load)
        self.world = World(fleet, load, seed, TICK_MS, scheduling=True)
        self._clock = BrokerClock()
        self._clock.acknowledged(START_MS, MONO_US)
        self.hands = Hands(self.world, self._clock, lambda: self.mono_us, 10, None)
        self.law = FleetLaw()
        self._home = {name: partition_of(name, PARTITIONS) for name in fleet.names}
        self._rows = {name.encode(): row for row, name in enumerate(fleet.names)}
        self._next: dict[tuple[str, int], int] = {}
        self.policy: policy.Policy | None = None
        self.stage = SecondStage(self.broker, PARTITIONS, INCARNATION)
        self.workers = [
            SimWorker(f"w{i}", self.broker, Nobody(), Metrics(), 600_000) for i in range(2)
        ]
        for number in range(PARTITIONS):
            self.workers[number % 2].own(number)

    @property
    def at_ms(self) -> int:
        """Since the start."""
        return self.broker.now_ms - START_MS

    @property
    def mono_us(self) -> int:
        """Of every node."""
        return MONO_US + self.at_ms * 1000

    def play(self, end_s: int = END_S) -> Broker:
        """Everything, up to ``end_s``; the log that is left."""
        while self.at_ms < end_s * 1_000:
            self.broker.now_ms += QUANTUM_MS
            self._happen()
            self._hear()
            self._phase(self.at_ms // QUANTUM_MS % (TICK_MS // QUANTUM_MS))
            self._work()
        return self.broker

    def _happen(self) -> None:
        for second, version, threshold, reclaim, author, note in self._versions:
            if self.at_ms == second * 1_000:
                said = text(threshold, reclaim)
                self.policy = policy.parse(said, "the incident")
                digest = policy.digest(self.policy)
                self._say(
                    "policies", "default",
                    PolicyRecord("default", version, digest, said, author, note),
                )  # fmt: skip
        if self.at_ms == KILL_S * 1_000:
            self.workers[1].drop(1)
            self.workers[0].own(1)

    def _phase(self, phase: int) -> None:
        """One node's period; after the last node's the local law's tick."""
        if phase < NODES:
            rows = slice(phase, phase + 1)
            name = self.world.fleet.names[phase]
            self.world.step(rows, self.mono_us, self.at_ms / 1000 * SPEED)
            self._say_all(self.world.settle(rows, self.mono_us))
            raws = self.world.sampler.sample(rows, self.mono_us, self.broker.now_ms)
            for raw in raws:
                self.broker.append(
                    "samples", self._home[name], name.encode(), raw, codec.PACKED_HEADERS
                )
            said = self.law.fold(raws, self.mono_us)
            self._say_all(self.hands.beat(phase, said.get(name, [])))
        elif phase == NODES:
            self.law.tick(self.mono_us)
            self.hands.policy(self.law.policy)

    def _work(self) -> None:
        for worker in self.workers:
            worker.poll()
            for number in list(worker.engines):
                if (self.at_ms - number * QUANTUM_MS) % TICK_MS == 0:
                    worker.tick(number)
                if (self.at_ms - number * QUANTUM_MS) % IMAGE_MS == 0:
                    worker.cut(number)
        if self.at_ms % 500 == 0:
            self.stage.step(self.policy)

    def _hear(self) -> None:
        """What nodes and scheduler read of what was said."""
        for number in range(PARTITIONS):
            for record in self._fresh("commands", number):
                if record.key == LEASE_KEY:
                    lease = codec.decode(Lease, record.value or b"")
                    self._say_all(self.hands.renewed(lease, number))
                else:
                    command = codec.decode(Command, record.value or b"")
                    row = self._rows[record.key or b""]
                    self._say_all(self.hands.command(row, command, number))
            for record in self._fresh("capacity", number):
                said = codec.decode(Capacity, record.value or b"")
                self.world.scheduler.hear(self._rows[record.key or b""], said, self.mono_us)

    def _fresh(self, topic: str, number: int) -> Any:
        found = self.broker.read(topic, number, self._next.get((topic, number), 0))
        self._next[topic, number] = self._next.get((topic, number), 0) + len(found)
        return found

    def _say_all(self, said: list[Said]) -> None:
        for topic, key, record in said:
            self._say(topic, key, record)

    def _say(self, topic: str, key: str, record: Any) -> None:
        raw_key = key.encode()
        if topic in ("inventory", "acks", "policies"):
            self.law.hear(topic, raw_key, record)
        number = 0
        if BY_NAME[topic].partitioned:
            node = getattr(record, "node", "") or key
            number = self._home.get(node, partition_of(key, PARTITIONS))
        self.broker.append(topic, number, raw_key, codec.encode(record))


def main() -> None:
    """Write the bundle that the tests read."""
    bundle_of(Scene().play(), PARTITIONS, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
