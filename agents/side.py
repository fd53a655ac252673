"""Side records: inventory, policies, fleet facts, ledger, acks and SLIs, as ticks admit them.

`agents.ticks` calls `admit`. Records take effect in (topic, partition, offset) order, each once,
never beyond the largest vector so far; that vector is part of the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import claims, inventory, law, predict, slo_watch
from agents.emit import cause_of, decision
from agents.eviction import overdraft
from agents.eviction.node import note_ack
from agents.log import Output, SideRecord, TickEntry
from agents.state import Seat, lent_sum
from agents.table import ABSENT
from schemas import ledger
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import published
from schemas.records import (
    FLEET_KEY,
    Ack,
    Cause,
    FleetFacts,
    Inventory,
    LedgerEntry,
    PolicyRecord,
)

if TYPE_CHECKING:
    from agents.state import PartitionState

POLICY_NAME = "default"
Line = tuple[str, str, dict[str, int]]
"""Node ("": all), reason and figures of one line in the audit log."""
SCHEDULERS_KEPT = 16
"""Schedulers that may lend on one node."""


def admit(state: PartitionState, entry: TickEntry, out: list[Output]) -> None:
    """Apply what the vectors so far admit and what was not admitted before."""
    before = dict(state.side)
    for name, offset in entry.tick.side.items():
        if offset > state.side.get(name, -1):
            state.side[name] = offset
    lines: list[Line] = []
    refused: set[str] = set()
    noted: dict[str, Seat] = {}  # nodes whose pods may be others now
    for record in sorted(entry.side, key=lambda r: (r.topic, r.partition, r.offset)):
        name = f"{record.topic}/{record.partition}"
        if before.get(name, -1) < record.offset <= state.side.get(name, -1):
            before[name] = record.offset
            _apply(state, record, lines, refused, noted)
    lines += [(node, "node_policy_refused", {}) for node in sorted(refused)]
    seats = [seat for seat in noted.values() if state.seats.get(seat.name.encode()) is seat]
    lines += claims.changed(state, seats)
    overdraft.count(state, np.array([seat.row for seat in seats], dtype=np.int64))
    if lines:
        _tell(cause_of(state, entry.offset, state.log_ms), lines, out)


def _tell(cause: Cause, lines: list[Line], out: list[Output]) -> None:
    """All lines as one record, because a tick's outputs are told apart by their decider."""
    nodes, outcome, figures = zip(*lines, strict=True)
    names = dict.fromkeys(name for one in figures for name in one)
    columns = {name: [one.get(name, ABSENT) for one in figures] for name in names}
    decision(cause, "health", nodes, outcome, columns, out)


def _apply(
    state: PartitionState, side: SideRecord, lines: list[Line], refused: set[str],
    noted: dict[str, Seat],
) -> None:  # fmt: skip
    record = side.record
    if side.topic == "inventory":
        if _inventory(state, side.key, record):
            refused.add(record.node)
        seat = state.seats.get(side.key)
        if seat is not None:
            noted[seat.name] = seat
    elif side.topic == "policies":
        if isinstance(record, PolicyRecord) and side.key == POLICY_NAME.encode():
            said = _policy(state, record, refused)
            lines.append(("", said, {"version": record.version}))
            noted.update((seat.name, seat) for seat in state.seats.values())
    elif side.topic == "fleet":
        if isinstance(record, FleetFacts) and side.key == FLEET_KEY and _newer(state, record):
            state.facts, state.facts_ms = record, state.log_ms
    elif side.topic == "acks":
        if isinstance(record, Ack):
            note_ack(state, record)
    elif side.topic == "ledger":
        _ledger(state, side.key, record)
    elif side.topic == "slis":
        slo_watch.note(state, side)


def _newer(state: PartitionState, facts: FleetFacts) -> bool:
    """A processor that lost its partition may still speak: lower revisions are refused."""
    return state.facts is None or facts.revision >= state.facts.revision


def _inventory(state: PartitionState, key: bytes, record: Inventory | None) -> bool:
    """Take over a node's facts; whether something that it says of its policy was refused."""
    if record is None or record.removed:
        if key in state.seats:
            state.forget(key)
    elif record.node.encode() == key:
        return inventory.apply(state, record)
    else:
        state.counts["key_mismatch"] += 1
    return False


def _policy(state: PartitionState, record: PolicyRecord, refused: set[str]) -> str:
    """Put the policy in force, or keep the last good one; says which."""
    try:
        found = published(record)
    except BadPolicy:
        state.counts["bad_policy"] += 1
        return "policy_refused"
    if found.policy.name != POLICY_NAME:
        state.counts["bad_policy"] += 1
        return "policy_of_other_name"
    state.policy_digest = found.digest
    predict.forget_answers(state, slice(None))
    bad = law.enact(state, found)
    slo_watch.prune(state)
    if bad:
        state.counts["node_policy_refused"] += len(bad)
        refused.update(bad)
    return "policy_accepted"


def _ledger(state: PartitionState, key: bytes, record: LedgerEntry | None) -> None:
    """What one scheduler has lent on one node; the newest record holds."""
    try:
        whose = ledger.parse(key)
        if record is not None:
            ledger.check(whose, record)
    except BadRecord:
        state.counts["key_mismatch"] += 1
        return
    lent = state.ledger.setdefault(whose.node, {})
    if record is None:
        for name in [whose.scheduler] if whose.scheduler else list(lent):
            lent.pop(name, None)
    elif max(_lent(record)) <= 0:
        lent.pop(record.scheduler, None)
    elif record.scheduler in lent or len(lent) < SCHEDULERS_KEPT:
        lent[record.scheduler] = _lent(record)
    else:
        state.counts["schedulers_beyond"] += 1
    if not lent:
        del state.ledger[whose.node]
    seat = state.seats.get(whose.node.encode())
    if seat is not None:
        state.nodes["lent"][seat.row] = lent_sum(lent.values())


def _lent(record: LedgerEntry) -> tuple[int, ...]:
    """Batch milli and bytes, mid milli and bytes."""
    said = (
        record.cpu_milli, record.memory_bytes, record.mid_cpu_milli, record.mid_memory_bytes,
    )  # fmt: skip
    return tuple(min(max(amount, 0), inventory.LARGEST) for amount in said)
