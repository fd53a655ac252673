"""Records of the log into the fleet: reports, signals, capacity, what others hold, the policy.

`service` folds here every record that it reads; tests and the bench fold the same way. No I/O.
Older or equal records never win, so what is read twice changes nothing.
"""

from __future__ import annotations

from typing import TypeVar

from agents.placement.reported import report_of
from agents.side import POLICY_NAME
from agents.table import ABSENT
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.ledger.book import Folded
from scheduler_bridge.view import View
from schemas import codec, ledger
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import published
from schemas.records import PolicyRecord, Reservation, Signal

EVERYTHING = ("policies", "capacity", "ledger")
RECENT = ("reservations", "signals")
"""Topics that are read from the beginning, and those of which only what may still hold is."""
R = TypeVar("R", Reservation, Signal)


class Records:
    """What was read, in ``fleet``; ``scheduler`` is our own name in the ledger."""

    def __init__(self, fleet: Fleet, scheduler: str) -> None:
        self._fleet = fleet
        self._scheduler = scheduler
        self._view = View()
        self._passing: set[str] = set()

    def fold(
        self,
        topic: str,
        key: bytes | None,
        raw: bytes | None,
        log_ms: int,
        partition: int = 0,
        offset: int = 0,
    ) -> Folded:
        """Take one record of a topic that came at log time ``log_ms``. Raises BadRecord."""
        if topic == "capacity":
            return self._capacity(key, raw, log_ms)
        if topic == "ledger":
            fate = self._view.fold_ledger(key, raw, partition, offset, log_ms)
            if fate != "old" and key != ledger.REIGN_KEY:
                self._others(ledger.parse(key).node, log_ms)
            return fate
        if raw is None or (topic == "policies" and key != POLICY_NAME.encode()):
            return "old"
        if topic == "policies":
            return self._policy(raw)
        if topic == "reservations":
            record = _of_node(codec.decode(Reservation, raw), key)
            return "new" if self._fleet.set_report(record.node, report_of(record)) else "old"
        signal = _of_node(codec.decode(Signal, raw), key)
        self._fleet.set_ill(signal.node, signal.cause.log_ms if signal.ill else ABSENT)
        return "new"

    def _capacity(self, key: bytes | None, raw: bytes | None, log_ms: int) -> Folded:
        fate = self._view.fold_capacity(key, raw, log_ms)
        if fate != "old":
            node = (key or b"").decode()
            offer = self._view.desired[node]
            seen_ms = ABSENT if offer.removed else offer.seen_ms
            self._fleet.set_offer(node, offer.amount, offer.new_work, offer.workloads, seen_ms)
        return fate

    def let_pass(self, now_ms: int) -> None:
        """What others were granted for a time runs out without a word."""
        for node in list(self._passing):
            self._others(node, now_ms)

    def _others(self, node: str, now_ms: int) -> None:
        """What all schedulers but ours hold or may hold: the larger of both, of each."""
        book = self._view.book.of(node)
        self._fleet.set_others(node, book.counted(now_ms, without=[self._scheduler]))
        if any(grant.until_ms for grant in book.grants.values()):
            self._passing.add(node)
        else:
            self._passing.discard(node)

    def _policy(self, raw: bytes) -> Folded:
        """Placement compares nodes with each other: a canary's section waits for its promotion."""
        try:
            policy = published(codec.decode(PolicyRecord, raw)).policy
        except BadPolicy as error:
            raise BadRecord("wrong_type", str(error)) from None
        if policy == self._fleet.policy:
            return "old"
        self._fleet.set_policy(policy)
        return "new"


def _of_node(record: R, key: bytes | None) -> R:
    if key != record.node.encode():
        raise BadRecord("key_mismatch", f"key {(key or b'')[:64]!r}, node {record.node[:64]!r}")
    return record
