"""The ledger as its log says it: what each scheduler holds on a node, asks for, and may hold.

`scheduler_bridge.view` folds every record of topic ``ledger`` into it, and the tests replay it to
any offset. Pure: the same records in the order of their partition make the same book.

A scheduler *counts* with the larger of what it holds and what it was granted. Two things are told
apart by order alone: an answer of an earlier reign that comes after a later reign has begun is
void, and so is a tombstone of an answer that still holds something. Who reigns says such keys
again (`displaced`), because compaction would otherwise keep the void record in place of the valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from scheduler_bridge.ledger.amounts import NOTHING, larger, less, total
from scheduler_bridge.reconcile import Amount
from schemas import codec, ledger
from schemas.errors import BadRecord
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.records import LedgerEntry

Folded = Literal["new", "old", "removed"]
EXPIRY_SLACK_MS = 2_000
"""An answer counts for so much longer than it says: its holder may read the time late."""
SHARE = "share"
"""Claim of a system that cannot ask: what the bridge lets it show."""


class Slot(NamedTuple):
    """One claim of one scheduler on a node."""

    scheduler: str
    claim: str


@dataclass(frozen=True, slots=True)
class Held:
    """What a scheduler holds; ``releasing`` is the part of it that is on its way out."""

    amount: Amount
    releasing: Amount = NOTHING


@dataclass(frozen=True, slots=True)
class Claim:
    """What was asked for at ``offset``, until when (log time).

    ``since``: the offset at which it was first asked for after it was last given back: an answer to
    what was asked before that came too late, and is none.
    """

    amount: Amount
    ttl_ms: int
    offset: int
    until_ms: int
    since: int


@dataclass(slots=True)
class NodeBook:
    """All of one node."""

    held: dict[str, Held] = field(default_factory=dict)
    claims: dict[Slot, Claim] = field(default_factory=dict)
    grants: dict[Slot, LedgerGrant] = field(default_factory=dict)
    revision: int = 0
    """Grows with every record that was folded."""

    def schedulers(self) -> list[str]:
        """Who holds or was answered something, by name."""
        return sorted({*self.held, *(slot.scheduler for slot in self.grants)})

    def holds(self, scheduler: str) -> Amount:
        """What it says that it holds."""
        held = self.held.get(scheduler)
        return held.amount if held is not None else NOTHING

    def granted(self, scheduler: str, now_ms: int, *, without: Slot | None = None) -> Amount:
        """The sum of its answers that are in force, but for one slot."""
        return total(
            amount_of(grant)
            for slot, grant in self.grants.items()
            if slot.scheduler == scheduler and slot != without and self.lives(slot, now_ms)
        )

    def counts(self, scheduler: str, now_ms: int) -> Amount:
        """The larger of what it holds and what it may hold."""
        return larger(self.holds(scheduler), self.granted(scheduler, now_ms))

    def counted(self, now_ms: int, *, without: Iterable[str] = ()) -> Amount:
        """The sum over all schedulers but those named."""
        names = [name for name in self.schedulers() if name not in set(without)]
        return total(self.counts(name, now_ms) for name in names)

    def lives(self, slot: Slot, now_ms: int) -> bool:
        """Whether the answer of this slot is in force: asked for still, and not run out."""
        grant = self.grants.get(slot)
        if grant is None:
            return False
        claim = self.claims.get(slot)
        asked = slot.claim == SHARE or (claim is not None and grant.answers >= claim.since)
        return asked and (grant.until_ms == 0 or now_ms < grant.until_ms + EXPIRY_SLACK_MS)

    def allocated(self) -> Amount:
        """What is held in all."""
        return total(held.amount for held in self.held.values())

    def remainder(self, lendable: Amount, now_ms: int) -> Amount:
        """What of ``lendable`` nobody holds or may hold."""
        return less(lendable, self.counted(now_ms))


class Book:
    """Every node's part of the ledger, and who reigns in each partition."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeBook] = {}
        self.reigns: dict[int, LedgerReign] = {}
        self.displaced: set[tuple[str, Slot]] = set()
        self.at: dict[int, int] = {}
        """The last offset that was read, by partition."""
        self._lent: dict[str, Amount] = {}

    @property
    def lent(self) -> Mapping[str, Amount]:
        """What is held on each node, by all."""
        return self._lent

    def of(self, node: str) -> NodeBook:
        """A node's part; an empty one, not kept, where the log says nothing of it."""
        return self.nodes.get(node) or NodeBook()

    def fold(
        self, key: bytes | None, raw: bytes | None, partition: int, offset: int, log_ms: int
    ) -> Folded:
        """Take the next record of a partition. Raises BadRecord, and then nothing else changed."""
        self.at[partition] = offset
        kind = ledger.kind_of(key)
        if kind is LedgerReign:
            return self._reign(raw, partition)
        whose = ledger.parse(key)
        record = None
        if raw is not None:
            record = codec.decode(kind, raw)
            ledger.check(whose, record)
            amount_of(record)
        node = self.nodes.get(whose.node)
        if node is None:
            node = NodeBook()
        node.revision += 1
        if kind is LedgerEntry:
            fate = _entry(node, whose.scheduler, record)
            self._lent[whose.node] = node.allocated()
            if not node.held:
                del self._lent[whose.node]
        elif kind is LedgerClaim:
            fate = _claim(node, Slot(whose.scheduler, whose.claim), record, offset, log_ms)
        else:
            fate = self._answer(
                whose.node, node, Slot(whose.scheduler, whose.claim), record, partition
            )
        if node.held or node.claims or node.grants:
            self.nodes[whose.node] = node
        else:
            self.nodes.pop(whose.node, None)
        return fate

    def _reign(self, raw: bytes | None, partition: int) -> Folded:
        """The first to say a higher epoch reigns; whoever says it later does not."""
        if raw is None:
            return "old"
        said = codec.decode(LedgerReign, raw)
        if said.epoch <= self.epoch(partition):
            return "old"
        self.reigns[partition] = said
        return "new"

    def epoch(self, partition: int) -> int:
        """The epoch that reigns in a partition; 0: none yet."""
        reign = self.reigns.get(partition)
        return reign.epoch if reign is not None else 0

    def _answer(
        self, name: str, node: NodeBook, slot: Slot, grant: LedgerGrant | None, partition: int
    ) -> Folded:
        if grant is None:
            standing = node.grants.get(slot)
            if standing is not None and amount_of(standing) != NOTHING and slot in node.claims:
                self.displaced.add((name, slot))
                return "old"
            node.grants.pop(slot, None)
            self.displaced.discard((name, slot))
            return "removed"
        if grant.epoch < self.epoch(partition):
            self.displaced.add((name, slot))
            return "old"
        node.grants[slot] = grant
        self.displaced.discard((name, slot))
        return "new"


def amount_of(record: LedgerEntry | LedgerClaim | LedgerGrant) -> Amount:
    """The four figures of a record, at most `MAX_AMOUNT`. Raises BadRecord: wrong_type, below 0."""
    found = Amount(
        record.cpu_milli, record.memory_bytes, record.mid_cpu_milli, record.mid_memory_bytes
    )
    if min(found.each()) < 0:
        raise BadRecord("wrong_type", f"{found}; no figure is below 0")
    return total([found])


def _entry(node: NodeBook, scheduler: str, entry: LedgerEntry | None) -> Folded:
    if entry is None:
        for name in [scheduler] if scheduler else list(node.held):
            node.held.pop(name, None)
        return "removed"
    releasing = Amount(max(0, entry.releasing_cpu_milli), max(0, entry.releasing_memory_bytes))
    node.held[entry.scheduler] = Held(amount_of(entry), releasing)
    return "new"


def _claim(
    node: NodeBook, slot: Slot, claim: LedgerClaim | None, offset: int, log_ms: int
) -> Folded:
    if claim is None:
        node.claims.pop(slot, None)
        node.grants.pop(slot, None)
        return "removed"
    until_ms = log_ms + max(0, claim.ttl_ms)
    before = node.claims.get(slot)
    since = before.since if before is not None else offset
    node.claims[slot] = Claim(amount_of(claim), claim.ttl_ms, offset, until_ms, since)
    return "new"


def figures(amount: Amount) -> dict[str, Any]:
    """The fields of a record that carry an amount."""
    names = ("cpu_milli", "memory_bytes", "mid_cpu_milli", "mid_memory_bytes")
    return dict(zip(names, amount.each(), strict=True))
