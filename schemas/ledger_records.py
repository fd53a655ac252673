"""What schedulers ask for and are answered on topic ``ledger``; what they hold is `LedgerEntry`.

Keys and refusals are in `schemas.ledger`; `scheduler_bridge.ledger` answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import Int64


@dataclass(frozen=True, slots=True)
class LedgerClaim:
    """What a scheduler asks for on a node, in all under this id; absolute, the newest holds.

    Said again it is renewed: it lasts ``ttl_ms`` from the broker's time of the newest record. A
    tombstone gives it back.
    """

    node: str
    scheduler: str
    claim: str
    ttl_ms: Int64
    cpu_milli: Int64 = 0
    memory_bytes: Int64 = 0
    mid_cpu_milli: Int64 = 0
    mid_memory_bytes: Int64 = 0


@dataclass(frozen=True, slots=True)
class LedgerGrant:
    """What a scheduler may hold under a claim, and why no more; the amounts hold, old ones do not.

    ``answers`` is the offset of the claim's record (-1: the bridge's own share for a system that
    cannot ask). ``until_ms`` is log time, 0: until said otherwise. ``epoch`` is the reign of the
    bridge that answered; the ``lendable_*`` are what could be lent on the node then.
    """

    node: str
    scheduler: str
    claim: str
    granted: bool
    reason: str
    epoch: Int64
    answers: Int64 = -1
    until_ms: Int64 = 0
    cpu_milli: Int64 = 0
    memory_bytes: Int64 = 0
    mid_cpu_milli: Int64 = 0
    mid_memory_bytes: Int64 = 0
    lendable_cpu_milli: Int64 = 0
    lendable_memory_bytes: Int64 = 0
    lendable_mid_cpu_milli: Int64 = 0
    lendable_mid_memory_bytes: Int64 = 0


@dataclass(frozen=True, slots=True)
class LedgerReign:
    """From here on this bridge answers in this partition; answers of lower epochs are void."""

    epoch: Int64
    bridge: str
