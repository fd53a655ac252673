"""One simulated node: the agent's real parts over a fake kernel and the fake log.

Real: `Obey` with lease, journal and answers, `LocalLaw`, `Spool`, `Revisions`, the packed encoding.
Stood in for: the reading of kernel files (`_columns`), the hands (`tests.sim.hands`), and Kafka
(`Broker`). One `Agent` is one start of the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from node_agent.inventory import Census, Pod, Revisions
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.local_law import LocalLaw
from node_agent.obey import Obey
from node_agent.outbox import Parcel, Spool
from schemas import codec, packed
from schemas.errors import BadRecord
from schemas.records import LEASE_KEY, Ack, Command, Inventory, Lease, NodeSample, PolicyRecord
from tests.sim import hands
from tests.sim.broker import Broker, BrokerDown, Record
from tests.sim.hands import ROOT, FakeTrees
from tests.sim.kernel import Kernel

PERIOD_MS = 1_000
INVENTORY_REFRESH_MS = 5_000
HISTORY_MS = 300_000
FLOOR_MILLI = 10
SPOOL_PARCELS = 256
Drive = Callable[[Coroutine[Any, Any, list[Ack]]], list[Ack]]


class Witness(Protocol):
    """Who watches what a node hears and does (`tests.sim.check_node`)."""

    def started(self, node: SimNode) -> None: ...
    def heard(self, node: SimNode, command: Command) -> None: ...
    def renewed(self, node: SimNode, lease: Lease) -> None: ...
    def acked(self, node: SimNode, ack: Ack) -> None: ...
    def killed(self, node: SimNode, uid: str, was_there: bool) -> None: ...
    def quota(self) -> None: ...


@dataclass(slots=True)
class Faults:
    """What is wrong with a node now."""

    mute: bool = False  # nothing goes out
    deaf: bool = False  # nothing comes in
    zero: frozenset[str] = frozenset()  # columns that read 0 in the next sample
    absent: frozenset[str] = frozenset()  # columns that are missing in the next sample
    resend: bool = False  # the producer's retry appends each sample twice
    stubborn: bool = False  # killed groups stay populated
    wall_offset_ms: int = 0


class Agent:
    """One start of the node agent."""

    def __init__(self, node: SimNode) -> None:
        self.boot = f"{node.dice.getrandbits(128):032x}"
        self.beats = 0
        self.since_ms = node.broker.now_ms
        kernel = node.kernel
        self.journal = Journal(node.directory, kernel.boot_id, fsync="never")
        self.journal.boot(self.boot, kernel.mono_us)
        self.obey = Obey(
            boot=self.boot, journal=self.journal, lease=NodeLease(kernel.name, FLOOR_MILLI),
            mono_us=lambda: kernel.mono_us,
        )  # fmt: skip
        hands.put_on(self.obey, self.journal, node)
        self.law = LocalLaw(kernel.name)
        self.spool = Spool(max_parcels=SPOOL_PARCELS)
        self.revisions = Revisions(max(node.wall_ms // 1000, 0))
        self.census: Census | None = None
        self.told_ms = 0
        self.seq = 0
        self.policies_at = 0
        self.commands_at: int | None = None  # None: not yet sought


@dataclass
class SimNode:
    """A machine with at most one agent running on it."""

    kernel: Kernel
    broker: Broker
    partition: int
    witness: Witness
    dice: Random
    directory: Path
    drive: Drive
    phase_ms: int
    reserved_milli: int = 0
    faults: Faults = field(default_factory=Faults)
    agent: Agent | None = None
    halted: bool = False
    hearing: str = ""  # id of the command that is being carried out
    refused: int = 0
    spare: deque[Record] = field(default_factory=lambda: deque(maxlen=16))

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def wall_ms(self) -> int:
        return self.broker.now_ms + self.faults.wall_offset_ms

    @property
    def stubborn(self) -> bool:
        return self.faults.stubborn

    def wrote_quota(self) -> None:
        self.witness.quota()

    def killed(self, uid: str, *, was_there: bool) -> None:
        self.witness.killed(self, uid, was_there)

    def start(self) -> None:
        """The agent starts, beside what an earlier start left in the journal and the kernel."""
        self.agent = Agent(self)
        self.witness.started(self)

    def crash(self) -> None:
        """The agent dies; what it had not sent is lost, the quota stays."""
        if self.agent is not None:
            self.agent.journal.close()
            self.agent = None

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass on this machine, unless it is halted."""
        if self.halted:
            return
        self.kernel.advance(elapsed_ms)
        if self.agent is None:
            return
        if (self.broker.now_ms - self.phase_ms) % PERIOD_MS == 0:
            self._beat(self.agent)
        self._hear(self.agent)
        self._send(self.agent)

    def _beat(self, agent: Agent) -> None:
        agent.beats += 1
        census = agent.revisions.census(self._facts(), self._pods(), ROOT)
        sample = self._sample(agent, census)
        raw = packed.encode(sample)
        agent.spool.put(Parcel("samples", self.key, raw, codec.PACKED_HEADERS, is_sample=True))
        self._follow(agent, census)
        commands = agent.law.fold(raw, sample.mono_us)
        agent.obey.lease.policy = agent.law.policy
        self.hearing = ""
        self._tell(agent, self.drive(agent.obey.beat(commands)))

    def _follow(self, agent: Agent, census: Census) -> None:
        if census is not agent.census:
            agent.census = census
            agent.obey.follow(census, FakeTrees.of(self.kernel))  # type: ignore[arg-type]
            agent.law.hear_inventory(census.record)
        elif self.broker.now_ms - agent.told_ms < INVENTORY_REFRESH_MS:
            return
        agent.told_ms = self.broker.now_ms
        raw = codec.encode(census.record)
        agent.spool.put(Parcel("inventory", self.key, raw, codec.JSON_HEADERS, is_sample=False))

    def _hear(self, agent: Agent) -> None:
        if self.faults.deaf:
            return
        try:
            for record in self.broker.read("policies", 0, agent.policies_at):
                agent.policies_at = record.offset + 1
                self._guarded(self._on_policy, agent, record)
            if agent.commands_at is None:
                since_ms = self.broker.now_ms - HISTORY_MS
                agent.commands_at = self.broker.first_since("commands", self.partition, since_ms)
            for record in self.broker.read("commands", self.partition, agent.commands_at):
                agent.commands_at = record.offset + 1
                self._guarded(self._on_command, agent, record)
        except BrokerDown:
            return

    def _guarded(self, act: Callable[[Agent, Record], None], agent: Agent, record: Record) -> None:
        try:
            act(agent, record)
        except BadRecord:
            self.refused += 1

    def _on_policy(self, agent: Agent, record: Record) -> None:
        said = None if record.value is None else codec.decode(PolicyRecord, record.value)
        agent.law.hear_policy(record.key or b"", said)

    def _on_command(self, agent: Agent, record: Record) -> None:
        if record.value is None:
            return
        if record.key == LEASE_KEY:
            lease = codec.decode(Lease, record.value)
            self.witness.renewed(self, lease)
            self._tell(agent, agent.obey.renewed(lease))
        elif record.key == self.key:
            command = codec.decode(Command, record.value)
            self.spare.append(record)
            self.witness.heard(self, command)
            self.hearing = command.id
            self._tell(agent, self.drive(agent.obey.command(command)))
            self.hearing = ""

    def _tell(self, agent: Agent, acks: list[Ack]) -> None:
        for ack in acks:
            self.witness.acked(self, ack)
            agent.law.hear_ack(ack)
            raw = codec.encode(ack)
            agent.spool.put(Parcel("acks", self.key, raw, codec.JSON_HEADERS, is_sample=False))

    def _send(self, agent: Agent) -> None:
        if self.faults.mute:
            return
        while parcels := agent.spool.take(64):
            for at, parcel in enumerate(parcels):
                try:
                    for _ in range(2 if self.faults.resend and parcel.is_sample else 1):
                        self._send_one(agent, parcel)
                except BrokerDown:
                    agent.spool.give_back(parcels[at:])
                    return

    def _send_one(self, agent: Agent, parcel: Parcel) -> None:
        done = self.broker.append(
            parcel.topic, self.partition, parcel.key, parcel.value, parcel.headers
        )
        agent.obey.lease.clock.acknowledged(done.timestamp, self.kernel.mono_us)

    def _facts(self) -> Inventory:
        kernel = self.kernel
        return Inventory(
            self.name, 0, kernel.cpu_milli, kernel.memory_bytes,
            cpu_reserved_milli=self.reserved_milli,
        )  # fmt: skip

    def _pods(self) -> list[Pod]:
        return [
            Pod(pod.fact(), f"{ROOT if pod.kind == 'best_effort' else 'online'}/{pod.uid}")
            for pod in self.kernel.pods.values()
        ]

    def _sample(self, agent: Agent, census: Census) -> NodeSample:
        agent.seq += 1
        pods = [self.kernel.pods[fact.uid] for fact in census.record.pods]
        node, columns = self._columns(pods)
        for name in self.faults.zero:
            if name in node:
                node[name] = 0
            elif name in columns:
                columns[name] = [0] * len(pods)
        for name in self.faults.absent:
            node.pop(name, None)
            columns.pop(name, None)
        self.faults.zero = self.faults.absent = frozenset()
        return NodeSample(
            self.name, agent.boot, self.kernel.boot_id, agent.seq, self.kernel.mono_us,
            max(self.wall_ms, 0), PERIOD_MS, census.record.pods_rev, len(pods), node, columns,
        )  # fmt: skip

    def _columns(self, pods: list[Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        kernel = self.kernel
        node = {
            "cpu_busy_us": kernel.busy_us,
            "memory_total_bytes": kernel.memory_bytes,
            "memory_available_bytes": kernel.available_bytes,
            "be_cpu_usage_us": kernel.best_effort_us,
            "be_cpu_quota_milli": kernel.quota_milli,
        }
        columns = {
            "cpu_usage_us": [pod.used_us for pod in pods],
            "memory_used_bytes": [pod.used_bytes for pod in pods],
            "psi_cpu_some_us": [pod.stalled_us for pod in pods],
            "runq_wait_us": [pod.stalled_us for pod in pods],
        }
        return node, columns

    @property
    def key(self) -> bytes:
        return self.name.encode()
