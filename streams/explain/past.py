"""What was said up to a moment, sorted for questions. Pure; `streams.explain.read` fills it.

It does not know whether its records come from a recording or from the topics of a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from agents.side import POLICY_NAME
from schemas import codec, ledger
from schemas.errors import BadRecord
from schemas.ledger_records import LedgerGrant
from schemas.records import (
    LEASE_KEY,
    Ack,
    Capacity,
    Cause,
    Command,
    Decision,
    EvictionReport,
    LedgerEntry,
    PolicyRecord,
)
from schemas.signing import AUDITED, NODE_SAYS, WORKER_SAYS, key_id
from streams.explain.policies import Policies
from streams.intake import Check
from streams.pod_sets import PodSets

DECIDED = ("decisions", "commands", "capacity")
DONE = ("acks", "evictions")
SEALED = (*WORKER_SAYS, *AUDITED, *NODE_SAYS)
KNOWN = ("policies", "inventory", "ledger")
"""What decided, what came of it, and what is read from its beginning because the newest holds."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands; ``signer``: id of the key it is signed with, hex."""

    topic: str
    partition: int
    offset: int
    log_ms: int  # append time
    signer: str | None = None
    doubt: str | None = None  # why the signature is not believed; "": it is; None: not checked


@dataclass(slots=True)
class Past:
    """`note` records in log order, each topic by itself; nothing later than ``at_ms`` is kept.

    What a crash said again is kept once.
    """

    at_ms: int
    check: Check | None = None  # who is believed; None: nobody was asked for
    decisions: list[tuple[Place, Decision]] = field(default_factory=list)
    commands: dict[str, tuple[Place, Command]] = field(default_factory=dict)
    capacities: dict[str, list[tuple[Place, Capacity]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    acks: list[tuple[Place, Ack]] = field(default_factory=list)
    reports: list[tuple[Place, EvictionReport]] = field(default_factory=list)
    held: dict[tuple[str, str], LedgerEntry] = field(default_factory=dict)
    grants: list[tuple[Place, LedgerGrant]] = field(default_factory=list)
    policies: Policies = field(default_factory=Policies)
    sets: PodSets = field(default_factory=PodSets)
    partition_of: dict[str, int] = field(default_factory=dict)  # by node
    revisions: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of the pod sets behind evictions, by partition and offset of the sample."""
    unreadable: int = 0
    _decided: dict[str, tuple[Place, Decision, int]] = field(default_factory=dict)
    _answered: dict[str, list[tuple[Place, Ack | EvictionReport]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _said: set[tuple[Any, ...]] = field(default_factory=set)

    def note(self, topic: str, record: Any) -> None:
        """Take a record over; ``topic`` is the name in the table."""
        if record.timestamp > self.at_ms and topic not in DECIDED:
            return
        if topic == "inventory":
            self.sets.note(record)
            self.partition_of[(record.key or b"").decode("utf-8", "replace")] = record.partition
        elif topic == "ledger":
            self._ledger(record)
        elif topic == "policies" and record.key != POLICY_NAME.encode():
            return  # another name than the one that holds: workers pass it over
        elif record.value is not None and record.key != LEASE_KEY:
            try:
                said = codec.read(topic, record.key, record.value, record.headers)
            except BadRecord:
                self.unreadable += 1  # `topics cat` shows what cannot be read
                return
            self.take(self._place(topic, record), said)

    def _place(self, topic: str, record: Any) -> Place:
        """Where a record stands, who signed it, and whether that holds."""
        doubt = None
        if self.check is not None and topic in SEALED:
            try:
                self.check(topic, record.key, record.headers, record.value)
                doubt = ""
            except BadRecord as error:
                doubt = error.reason
        signer = key_id(record.headers)
        return Place(topic, record.partition, record.offset, record.timestamp, signer, doubt)

    def take(self, place: Place, said: Any) -> None:
        """Take over what a record says that can be read."""
        if isinstance(said, PolicyRecord):
            self.policies.note(said, place.log_ms)
        elif isinstance(said, Ack):
            if self._new("ack", said.node, said.boot, said.seq):
                self.acks.append((place, said))
                self.partition_of.setdefault(said.node, place.partition)
                self._answered[said.command_id].append((place, said))
        elif isinstance(said, EvictionReport):
            self.reports.append((place, said))
            self._answered[said.command_id].append((place, said))
        elif said.cause.log_ms > self.at_ms:
            return
        elif isinstance(said, Command):
            self.commands.setdefault(said.id, (place, said))
        elif isinstance(said, Capacity):
            if self._new("capacity", said.node, said.cause.incarnation, said.cause.offset):
                self.capacities[said.node].append((place, said))
                self.partition_of.setdefault(said.node, place.partition)
        elif isinstance(said, Decision):
            if not _even(said):
                self.unreadable += 1
                return
            cause = said.cause
            key = (cause.partition, cause.incarnation, cause.offset, said.decider, said.nodes)
            if self._new("decision", *key):
                self.decisions.append((place, said))
                for i, command_id in enumerate(said.command_ids):
                    self._decided[command_id] = (place, said, i)

    def _new(self, *key: Any) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def _ledger(self, record: Any) -> None:
        try:
            key = ledger.parse(record.key)
            kind = ledger.kind_of(record.key)
            if record.value is None:
                self._given_back(key)
                return
            said = codec.read("ledger", record.key, record.value, record.headers)
        except BadRecord:
            self.unreadable += 1
            return
        if kind is LedgerEntry:
            self.held[said.node, said.scheduler] = said
        elif kind is LedgerGrant:
            place = Place("ledger", record.partition, record.offset, record.timestamp)
            self.grants.append((place, said))

    def _given_back(self, key: ledger.LedgerKey) -> None:
        """A tombstone of what is held; without a scheduler: of all on the node."""
        if key.claim:
            return
        for each in [k for k in self.held if k[0] == key.node and key.scheduler in ("", k[1])]:
            del self.held[each]

    def capacity_at(self, node: str, log_ms: int) -> tuple[Place, Capacity] | None:
        """The newest capacity of a node that was decided by then."""
        found = [each for each in self.capacities.get(node, []) if each[1].cause.log_ms <= log_ms]
        return max(found, key=lambda each: _order(each[1])) if found else None

    def places(self, node: str, cause: Cause) -> dict[int, str]:
        """Uids by place in the pod set of the sample that was folded; empty: not known."""
        revision = self.revisions.get((cause.partition, cause.offset))
        if revision is None:
            return {}
        pods = self.sets.of_revision(node, revision, cause.log_ms)
        return {place: pod.uid for place, pod in enumerate(pods or ())}

    def nodes(self) -> tuple[str, ...]:
        """All that are known, by whatever they said or what was decided about them."""
        named = {node for _, decision in self.decisions for node in decision.nodes if node}
        acked = {ack.node for _, ack in self.acks}
        return tuple(sorted({*self.sets.nodes, *self.capacities, *named, *acked}))

    def decided(self, command_id: str) -> tuple[Place, Decision, int] | None:
        """The line of the audit log beside a command, and which of its nodes it is about."""
        return self._decided.get(command_id)

    def answers(self, command_id: str) -> list[tuple[Place, Ack | EvictionReport]]:
        """What node and bridge said of a command, in the order of the log."""
        found = self._answered.get(command_id, []) if command_id else []
        return sorted(found, key=lambda each: each[0].log_ms)


def _even(decision: Decision) -> bool:
    """Whether every column is as long as there are nodes, as a worker writes them."""
    ids = [decision.command_ids] if decision.command_ids else []
    columns = [decision.outcome, *decision.columns.values(), *ids]
    return all(len(column) == len(decision.nodes) for column in columns)


def _order(record: Capacity) -> tuple[int, int]:
    return record.cause.incarnation, record.cause.offset
