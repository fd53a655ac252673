"""What else a cluster has: the second stage, the bridge, and a scheduler that lends.

Real: `agents.fleet.Fleet`, `View` and `reconcile`. The shells around them are a few lines here.
"""

from __future__ import annotations

from random import Random

from agents.fleet import Fleet, due
from scheduler_bridge.reconcile import Observed, Patch, Rules, fall_permille, reconcile
from scheduler_bridge.view import View
from schemas import codec
from schemas.errors import BadRecord
from schemas.policy import Policy
from schemas.records import FLEET_KEY, FleetFacts, LedgerEntry, PartitionHealth
from tests.sim.broker import Broker, BrokerDown
from tests.sim.check_output import DOUBT
from tests.sim.findings import Report

RULES = Rules(refresh_ms=10_000, stale_ms=30_000)
SCHEDULER = "yarn"


class SecondStage:
    """Adds up what partitions say. ``mute``: it is down; ``ill``: what it says is that all are."""

    def __init__(self, broker: Broker, partitions: int, incarnation: int) -> None:
        self.fleet = Fleet(partitions, incarnation)
        self.mute = self.ill = False
        self.said: FleetFacts | None = None
        self._broker = broker
        self._next = 0
        self._said_ms = 0

    def step(self, policy: Policy | None) -> None:
        """Read on and publish what is due."""
        if self.mute or not self._broker.up:
            return
        for record in self._broker.read("fleet", 0, self._next):
            self._next = record.offset + 1
            key = record.key or b""
            if record.value is None or not key.startswith(b"partition/"):
                continue
            try:
                health = codec.decode(PartitionHealth, record.value)
                partition = int(key.removeprefix(b"partition/"))
                self.fleet.fold(partition, record.timestamp, record.offset, health)
            except BadRecord:
                continue
            self._say(policy)

    def _say(self, policy: Policy | None) -> None:
        facts = self.fleet.facts(policy)
        if self.ill:
            facts = FleetFacts(
                facts.revision, facts.partitions_seen, facts.nodes, 0, facts.nodes, 1000, 0,
                facts.stale_after_ms, "too_many_ill", (0,) * self.fleet.partitions,
            )  # fmt: skip
        if due(facts, self.fleet.now_ms, self.said, self._said_ms):
            self.said, self._said_ms = facts, self.fleet.now_ms
            self._broker.append("fleet", 0, FLEET_KEY, codec.encode(facts))


class Bridge:
    """Desired capacity to what a scheduler sees, with the checks of its order."""

    def __init__(self, broker: Broker, partitions: int, report: Report, start_ms: int) -> None:
        self.view = View()
        self.observed: dict[str, Observed] = {}
        self._broker, self._partitions = broker, partitions
        self._report, self._start_ms = report, start_ms
        self._next: dict[tuple[str, int], int] = {}

    def step(self) -> None:
        """Once a second."""
        now_ms = self._broker.now_ms
        try:
            for topic in ("capacity", "ledger"):
                for partition in range(self._partitions):
                    self._read(topic, partition)
        except BrokerDown:
            pass
        lent, rules = self.view.lent, RULES
        patches = reconcile(self.view.desired, self.observed, lent, now_ms, rules)
        for patch in patches:
            self._check(patch)
            self.observed[patch.node] = patch.applied()
        falls = [fall_permille(p.previous, p.amount) if p.previous else 0 for p in patches]
        if falls != sorted(falls, reverse=True):
            self._broken("bridge_in_order", f"falls not first: {falls}")
        again = reconcile(self.view.desired, self.observed, lent, now_ms, rules)
        if again:
            self._broken("bridge_in_order", f"applied twice is not once: {again}")

    def _read(self, topic: str, partition: int) -> None:
        for record in self._broker.read(topic, partition, self._next.get((topic, partition), 0)):
            self._next[topic, partition] = record.offset + 1
            try:
                if topic == "ledger":
                    self.view.fold_ledger(record.key, record.value)
                else:
                    self.view.fold_capacity(record.key, record.value, record.timestamp)
            except BadRecord:
                continue

    def _check(self, patch: Patch) -> None:
        amounts = patch.amount.each()
        if min(amounts) < 0:
            self._broken("capacity_not_negative", f"{patch}")
        lent, shown = self.view.lent.get(patch.node), self.observed.get(patch.node)
        if shown is not None and patch.order < shown.order:
            self._broken("bridge_in_order", f"{patch} after {shown}")
        if patch.reason not in DOUBT or lent is None:
            return
        if any(amount < owed for amount, owed in zip(amounts, lent.each(), strict=True)):
            self._broken("doubt_keeps_what_is_lent", f"{patch}, lent {lent}")

    def _broken(self, invariant: str, detail: str) -> None:
        self._report.broken(invariant, self._broker.now_ms - self._start_ms, detail)


class Scheduler:
    """Lends some of what it is shown; gives back, late, what it was lent too much."""

    def __init__(self, broker: Broker, bridge: Bridge, dice: Random) -> None:
        self._broker, self._bridge, self._dice = broker, bridge, dice

    def step(self, node: str, partition: int) -> None:
        """Now and then, for one node."""
        shown = self._bridge.observed.get(node)
        if shown is None or not self._broker.up:
            return
        lent = self._bridge.view.lent.get(node)
        held = lent.each() if lent is not None else (0,) * 4
        offered = shown.amount.each()
        if shown.new_work:
            wanted = [self._dice.randint(0, most) for most in offered]
        else:
            wanted = [min(have, most) for have, most in zip(held, offered, strict=True)]
        entry = LedgerEntry(
            node, SCHEDULER, wanted[0], wanted[1], mid_cpu_milli=wanted[2],
            mid_memory_bytes=wanted[3],
        )  # fmt: skip
        self._broker.append("ledger", partition, node.encode(), codec.encode(entry))
