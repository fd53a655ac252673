"""Replays the ledger record by record and names every offset at which too much was granted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import Book, Slot, amount_of
from schemas import codec, ledger
from schemas.errors import BadRecord
from schemas.ledger_records import LedgerGrant


@dataclass(frozen=True, slots=True)
class Said:
    """One record of the topic."""

    partition: int
    offset: int
    log_ms: int
    key: bytes
    raw: bytes | None


@dataclass(slots=True)
class Verdict:
    """``grants``: answers that gave more than before; ``over``: those for which there was no room.

    ``most``: the largest sum that counted on a node at any offset, by node.
    """

    records: int = 0
    grants: int = 0
    refused: int = 0
    void: int = 0
    over: list[str] = field(default_factory=list)
    most_cpu_milli: dict[str, int] = field(default_factory=dict)
    held_cpu_milli: dict[str, int] = field(default_factory=dict)


def check(log: Iterable[Said]) -> Verdict:
    """A grant is over-lent if a figure that it raised leaves the sum above what could be lent."""
    book, verdict = Book(), Verdict()
    for said in log:
        verdict.records += 1
        if said.key == ledger.REIGN_KEY:
            book.fold(said.key, said.raw, said.partition, said.offset, said.log_ms)
            continue
        whose = ledger.parse(said.key)
        slot = Slot(whose.scheduler, whose.claim)
        node = book.of(whose.node)
        before = amount_of(node.grants[slot]) if node.lives(slot, said.log_ms) else NOTHING
        try:
            fate = book.fold(said.key, said.raw, said.partition, said.offset, said.log_ms)
        except BadRecord as error:
            verdict.over.append(f"{said.offset}: {error}")
            continue
        node = book.of(whose.node)
        counted = node.counted(said.log_ms)
        verdict.most_cpu_milli[whose.node] = max(
            counted.cpu_milli, verdict.most_cpu_milli.get(whose.node, 0)
        )
        held = node.allocated().cpu_milli
        verdict.held_cpu_milli[whose.node] = max(held, verdict.held_cpu_milli.get(whose.node, 0))
        if not whose.answer or said.raw is None:
            continue
        if fate != "new":
            verdict.void += 1
            continue
        grant = codec.decode(LedgerGrant, said.raw)
        verdict.refused += not grant.granted
        could = (
            grant.lendable_cpu_milli, grant.lendable_memory_bytes,
            grant.lendable_mid_cpu_milli, grant.lendable_mid_memory_bytes,
        )  # fmt: skip
        rose = False
        for old, new, sum_, bound in zip(
            before.each(), amount_of(grant).each(), counted.each(), could, strict=True
        ):
            rose |= new > old
            if new > old and sum_ > bound:
                verdict.over.append(f"{said.partition}/{said.offset} {grant}: {sum_} > {bound}")
        verdict.grants += rose
    return verdict
