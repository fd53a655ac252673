"""Ticks: time as data. What a tick admits, and whether it decides.

`agents.step` calls `accept` for each tick of the log, in order, when all before it is folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.emit import cause_of
from agents.log import LAW_VERSION, Output, TickEntry
from agents.side import admit
from schemas.records import LEASE_KEY, DeadLetter, Lease

if TYPE_CHECKING:
    from agents.state import PartitionState


def accept(state: PartitionState, entry: TickEntry, out: list[Output]) -> bool:
    """Merge the tick's vector and admit its side records; says whether the tick decides.

    A tick of another partition or incarnation is refused whole. One of another law version, or
    one that comes less than half a period after the last that decided, only merges and admits.
    """
    tick = entry.tick
    if tick.partition != state.partition or tick.incarnation != state.incarnation:
        _refuse(state, entry, out)
        return False
    admit(state, entry, out)
    if tick.law_version != LAW_VERSION:
        state.counts["other_law_version"] += 1
        return False
    since_ms = state.log_ms - state.tick_ms
    if state.tick_ms >= 0 and since_ms * 2 < state.law.loop.tick_ms:
        state.counts["early_tick"] += 1
        return False
    state.tick_ms = state.log_ms
    return True


def renew(state: PartitionState, offset: int, out: list[Output]) -> None:
    """The lease that keeps every standing command of the partition alive."""
    cause = cause_of(state, offset, state.log_ms)
    lease = Lease(cause, state.log_ms + state.law.loop.command_ttl_ms)
    out.append(Output("commands", LEASE_KEY, lease, offset, "", "lease"))


def forget_silent(state: PartitionState) -> None:
    """Collect what is kept of nodes that have been silent for long."""
    limit_ms = state.log_ms - state.law.loop.forget_after_ms
    for key in [key for key, seat in state.seats.items() if seat.seen_ms < limit_ms]:
        state.forget(key)
        state.counts["forgotten"] += 1


def _refuse(state: PartitionState, entry: TickEntry, out: list[Output]) -> None:
    state.counts["foreign_tick"] += 1
    tick = entry.tick
    detail = (
        f"tick of partition {tick.partition}, incarnation {tick.incarnation}; this is "
        f"{state.partition}, {state.incarnation}"
    )
    letter = DeadLetter("samples", state.partition, entry.offset, "unknown_partition", detail)
    out.append(Output("dead-letters", b"samples", letter, entry.offset, "", "admission"))
