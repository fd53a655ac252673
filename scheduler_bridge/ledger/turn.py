"""What is to be written and told of one node now: claims answered, shares dealt out. Pure.

`scheduler_bridge.ledger.keeper` calls `of_node` again and again with what it sees; nothing is
remembered between two calls, so a bridge that begins anew goes on where another ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler_bridge.ledger.amounts import NOTHING, larger
from scheduler_bridge.ledger.book import SHARE, Held, NodeBook, Slot, amount_of
from scheduler_bridge.ledger.bound_pods import entry
from scheduler_bridge.ledger.claims import Lendable, answers, grant, left_over
from scheduler_bridge.ledger.shares import Seen, System, moves
from scheduler_bridge.reconcile import Amount
from schemas import ledger

Records = list[tuple[bytes, Any]]
"""Keys and records in the order of writing; None: a tombstone."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its part of the book, what may be lent there, and our systems as they are.

    ``held``: by name in the ledger, of our systems and whom they speak for; a name that is not
    there is not known now. ``displaced``: slots whose valid answer a void record follows.
    """

    name: str
    book: NodeBook
    epoch: int
    lendable: Lendable | None
    systems: Sequence[System]
    seen: Mapping[str, Seen]
    held: Mapping[str, Held]
    displaced: Collection[Slot] = ()
    here: Collection[str] = ()
    """Which of our systems have this node."""


@dataclass(frozen=True, slots=True)
class Turn:
    """``tell``: what each system should show; empty where there is nobody to share with."""

    records: Records
    tell: Mapping[str, Amount] = field(default_factory=dict)


def of_node(node: Node, now_ms: int) -> Turn:
    """The next step; doing it and calling again, with nothing else changed, ends at none."""
    records = _entries(node) + _restated(node)
    shared = node.lendable is not None and is_shared(node)
    if not shared and not node.book.claims:
        return Turn(records)
    names = [system.name for system in node.systems]
    known = as_held(node.book, node.held)
    book = as_seen(known, node.seen)
    could = node.lendable
    if could is not None and not all(one.sure for one in node.seen.values()):
        could = replace(could, new_work=False)
    said = answers(book, node.name, could, now_ms, node.epoch, names)
    for one in said.said:
        records.append((ledger.grant_key(one.node, one.scheduler, one.claim), one))
    records += [(key, None) for key in left_over(node.book, node.name, now_ms)]
    if not shared or node.lendable is None:
        return Turn(records)
    book = NodeBook(known.held, known.claims, dict(known.grants))
    book.grants.update((Slot(one.scheduler, one.claim), one) for one in said.said)
    found = moves(book, node.lendable, node.systems, node.seen, now_ms, said.wanted)
    for name, move in found.items():
        if move.share is not None:
            slot = Slot(name, SHARE)
            answer = grant(node.name, slot, move.share, node.epoch, node.lendable)
            records.append((ledger.grant_key(node.name, *slot), answer))
    return Turn(records, {name: move.tell for name, move in found.items()})


def is_shared(node: Node) -> bool:
    """Whether there is anything to deal out here; once dealt out, a node stays so."""
    book = node.book
    names = {system.name for system in node.systems}
    others = {*book.schedulers(), *(slot.scheduler for slot in book.claims)} - names
    led = any(system.led and system.name in node.here for system in node.systems)
    return led or bool(others) or any(slot.claim == SHARE for slot in book.grants)


def as_held(book: NodeBook, held: Mapping[str, Held]) -> NodeBook:
    """The book, with what is held by now where that is more than the log says yet."""
    more = {name: Held(larger(one.amount, book.holds(name))) for name, one in held.items()}
    return NodeBook({**book.held, **more}, book.claims, book.grants)


def as_seen(book: NodeBook, seen: Mapping[str, Seen]) -> NodeBook:
    """The book, with what our systems show and hold in place of less that the log says yet."""
    held, grants = dict(book.held), dict(book.grants)
    for name, one in seen.items():
        held[name] = Held(larger(one.held, book.holds(name)))
        slot = Slot(name, SHARE)
        share = amount_of(grants[slot]) if slot in grants else NOTHING
        grants[slot] = grant("", slot, larger(share, one.shows), 0, None)
    return NodeBook(held, book.claims, grants)


def _entries(node: Node) -> Records:
    """What is held here, where the log says otherwise; nothing held is a tombstone."""
    records: Records = []
    for name, held in sorted(node.held.items()):
        key = ledger.entry_key(node.name, name)
        if held.amount == NOTHING:
            if name in node.book.held:
                records.append((key, None))
        elif node.book.held.get(name) != held:
            records.append((key, entry(node.name, name, held)))
    return records


def _restated(node: Node) -> Records:
    """Answers that a void record follows on the log: compaction would keep the void one."""
    records: Records = []
    for slot in sorted(node.displaced):
        standing = node.book.grants.get(slot)
        again = replace(standing, epoch=node.epoch) if standing is not None else None
        records.append((ledger.grant_key(node.name, *slot), again))
    return records
