"""Who asks is answered: granted while it fits, refused with a reason, in the order of the log.

`scheduler_bridge.ledger.keeper` calls `answers` for each node where it reigns. Pure. A claim is
absolute: said again with less it gives back, with the same it is renewed, with more it is asked
for the whole; until it is answered the last answer stands. What it cannot have now but could, once
the shares of systems that cannot ask have shrunk, is waited for, and nobody behind it goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_bridge.ledger.amounts import NOTHING, each, larger, less, total, within
from scheduler_bridge.ledger.book import SHARE, Claim, NodeBook, Slot, amount_of, figures
from scheduler_bridge.reconcile import Amount
from schemas import ledger
from schemas.ledger_records import LedgerGrant

SHORTEST_TTL_MS = 1_000
LONGEST_TTL_MS = 3_600_000
LEFT_OVER_MS = 600_000
"""So long after it ran out a claim and its answer are taken off the topic."""


@dataclass(frozen=True, slots=True)
class Lendable:
    """What may be lent on a node in all, and whether anything new may be."""

    amount: Amount
    new_work: bool


@dataclass(frozen=True, slots=True)
class Answers:
    """What to say now, and what must be kept free of shares for the claim that waits."""

    said: tuple[LedgerGrant, ...]
    wanted: Amount


def answers(
    book: NodeBook,
    node: str,
    lendable: Lendable | None,
    now_ms: int,
    epoch: int,
    shares: Iterable[str] = (),
) -> Answers:
    """To every claim that was not answered yet; ``shares``: systems whose share can shrink."""
    said: list[LedgerGrant] = []
    new: dict[Slot, Amount] = {}
    names = frozenset(shares)
    for slot, claim in sorted(book.claims.items(), key=lambda one: one[1].offset):
        standing = book.grants.get(slot)
        if slot.claim == SHARE or (standing is not None and standing.answers >= claim.offset):
            continue
        has = amount_of(standing) if standing and book.lives(slot, now_ms) else NOTHING
        reason, wanted = _judge(book, slot, claim, has, lendable, now_ms, new, names)
        if wanted != NOTHING:
            return Answers(tuple(said), wanted)
        amount = claim.amount if not reason else NOTHING if reason == "expired" else has
        new[slot] = amount
        until_ms = claim.until_ms if not reason or standing is None else standing.until_ms
        said.append(
            grant(
                node, slot, amount, epoch, lendable,
                reason=reason, answers=claim.offset, until_ms=until_ms,
            )
        )  # fmt: skip
    return Answers(tuple(said), NOTHING)


def grant(
    node: str,
    slot: Slot,
    amount: Amount,
    epoch: int,
    lendable: Lendable | None,
    *,
    reason: str = "",
    answers: int = -1,
    until_ms: int = 0,
) -> LedgerGrant:
    """The record; a reason makes it a refusal."""
    could = lendable.amount if lendable is not None else NOTHING
    return LedgerGrant(
        node, slot.scheduler, slot.claim, not reason, reason, epoch, answers, until_ms,
        **figures(amount), **{f"lendable_{name}": of for name, of in figures(could).items()},
    )  # fmt: skip


def left_over(book: NodeBook, node: str, now_ms: int) -> list[bytes]:
    """Keys of claims that ran out long ago, and of answers that nobody asks for any more."""
    found = [
        ledger.grant_key(node, *slot)
        for slot in book.grants
        if slot.claim != SHARE and slot not in book.claims
    ]
    for slot, claim in book.claims.items():
        if now_ms >= claim.until_ms + LEFT_OVER_MS and not book.lives(slot, now_ms):
            found += [ledger.claim_key(node, *slot), ledger.grant_key(node, *slot)]
    return found


def _judge(
    book: NodeBook,
    slot: Slot,
    claim: Claim,
    has: Amount,
    lendable: Lendable | None,
    now_ms: int,
    new: dict[Slot, Amount],
    shares: frozenset[str],
) -> tuple[str, Amount]:
    """The reason to refuse ("": granted), and what has to be kept free until it fits."""
    if now_ms >= claim.until_ms:
        return "expired", NOTHING
    if not SHORTEST_TTL_MS <= claim.ttl_ms <= LONGEST_TTL_MS:
        return "bad_ttl", NOTHING
    if within(claim.amount, has):
        return "", NOTHING
    if lendable is None:
        return "no_capacity", NOTHING
    if not lendable.new_work:
        return "no_new_work", NOTHING
    room = _room(book, slot, lendable.amount, now_ms, new)
    short = each(
        lambda over, grows: over if grows else 0,
        less(claim.amount, room),
        less(claim.amount, has),
    )
    if short == NOTHING:
        return "", NOTHING
    idle = total(less(book.granted(name, now_ms), book.holds(name)) for name in sorted(shares))
    if slot.scheduler not in shares and within(short, idle):
        return "", less(claim.amount, has)
    return "no_room", NOTHING


def _room(
    book: NodeBook, slot: Slot, lendable: Amount, now_ms: int, new: dict[Slot, Amount]
) -> Amount:
    """The most that this slot may have beside all that counts; nothing where its own scheduler
    holds more than that already, as after a fall of capacity.
    """
    free, own = lendable, NOTHING
    for name in sorted({*book.schedulers(), *(one.scheduler for one in new)}):
        may = total(
            new[one] if one in new else amount_of(book.grants[one])
            for one in {*book.grants, *new}
            if one.scheduler == name and one != slot and (one in new or book.lives(one, now_ms))
        )
        if name == slot.scheduler:
            own = may
        else:
            free = less(free, larger(may, book.holds(name)))
    held = book.holds(slot.scheduler)
    return each(lambda left, over: 0 if over else left, less(free, own), less(held, free))
