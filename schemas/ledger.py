"""Keys of the ``ledger`` topic, and what each carries. Called by whoever writes or folds it.

    NODE/SCHEDULER               LedgerEntry   what a scheduler holds; a tombstone gives it back
    NODE/SCHEDULER/CLAIM         LedgerClaim   what it asks for
    NODE/SCHEDULER/CLAIM/answer  LedgerGrant   what the bridge answered
    ~reign                       LedgerReign   which bridge answers in this partition

The topic is compacted, so each writer has keys of its own. The partition is that of the node alone
(`home`), so that a worker finds all that is lent on its nodes beside their samples. A bare ``NODE``
is the key of before: an entry under it still counts for the scheduler that it names, and its
tombstone gives back all that is held on the node.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from schemas.errors import BadRecord
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.names import NODE_NAME
from schemas.records import LedgerEntry

REIGN_KEY = b"~reign"
ANSWER = "answer"
NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:-]{0,126}", re.ASCII)


class LedgerKey(NamedTuple):
    """A key in parts; ``scheduler`` and ``claim`` are empty where the key has none."""

    node: str
    scheduler: str = ""
    claim: str = ""
    answer: bool = False


def entry_key(node: str, scheduler: str) -> bytes:
    """Of what a scheduler holds on a node."""
    return f"{node}/{scheduler}".encode()


def claim_key(node: str, scheduler: str, claim: str) -> bytes:
    """Of one claim."""
    return f"{node}/{scheduler}/{claim}".encode()


def grant_key(node: str, scheduler: str, claim: str) -> bytes:
    """Of the answer to one claim."""
    return f"{node}/{scheduler}/{claim}/{ANSWER}".encode()


def home(key: bytes) -> bytes:
    """What a key is hashed by: the node's name. Other topics' keys of nodes have no slash."""
    return key.partition(b"/")[0]


def parse(key: bytes | None) -> LedgerKey:
    """The parts of a key. Raises BadRecord: key_mismatch."""
    try:
        parts = (key or b"").decode().split("/")
    except UnicodeDecodeError:
        parts = [""]
    answer = len(parts) == 4 and parts[3] == ANSWER
    if answer:
        parts.pop()
    names = all(NAME.fullmatch(part) for part in parts[1:])
    if not 1 <= len(parts) <= 3 or not NODE_NAME.fullmatch(parts[0]) or not names:
        raise BadRecord("key_mismatch", f"key {(key or b'')[:64]!r}: want NODE/SCHEDULER")
    node, scheduler, claim = (*parts, "", "")[:3]
    return LedgerKey(node, scheduler, claim, answer)


def kind_of(key: bytes | None) -> type[Any]:
    """Which record a key carries; by the slashes alone, for a key that says nothing is an entry."""
    if key == REIGN_KEY:
        return LedgerReign
    kinds = {2: LedgerClaim, 3: LedgerGrant}
    return kinds.get((key or b"").count(b"/"), LedgerEntry)


def check(key: LedgerKey, record: Any) -> None:
    """The record speaks for its key. Raises BadRecord: key_mismatch."""
    said = (record.node, record.scheduler, getattr(record, "claim", ""))
    bare = not key.scheduler and isinstance(record, LedgerEntry)
    if said != (key.node, record.scheduler if bare else key.scheduler, key.claim):
        raise BadRecord("key_mismatch", f"key {'/'.join(key[:3])!r}, record of {said!r}"[:200])


def check_scheduler(name: str) -> str:
    """The name, if keys may carry it. Raises ValueError saying what is allowed."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"scheduler {name!r:.80}: want 1 to 127 letters, digits and _ . : -, the first one a "
            "letter, a digit or _"
        )
    return name
