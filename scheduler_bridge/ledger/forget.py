"""Ends what the log says for a scheduler that is no more: `slackwater ledger forget`.

A share is the bridge's own word for a system that cannot ask; once no bridge speaks for that system
nobody takes it back, for the system itself may still show and use it. So an operator says that it
is over. Tombstones of the same keys as the bridge's: a bridge that does speak for it says it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.book import Book
from schemas import ledger


def keys(book: Book, scheduler: str, only: str | None) -> Iterator[bytes]:
    """Of what is held, asked for and granted under that name, on all nodes or on ``only``."""
    for name, node in sorted(book.nodes.items()):
        if only not in (None, name):
            continue
        if scheduler in node.held:
            yield ledger.entry_key(name, scheduler)
        for slot in sorted(node.claims.keys() | node.grants.keys()):
            if slot.scheduler != scheduler:
                continue
            if slot in node.claims:
                yield ledger.claim_key(name, *slot)
            if slot in node.grants:
                yield ledger.grant_key(name, *slot)


def still_held(book: Book, scheduler: str, only: str | None) -> list[str]:
    """The nodes on which the log says that it holds something: work may run there."""
    return [
        name
        for name, node in sorted(book.nodes.items())
        if only in (None, name) and node.holds(scheduler) != NOTHING
    ]
