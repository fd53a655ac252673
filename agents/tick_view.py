"""All nodes of the partition as a tick sees them; made once a tick, read by its deciders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.emit import cause_of
from agents.table import Bools, Ints
from schemas.records import Cause

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat


@dataclass(frozen=True, slots=True)
class TickView:
    """``rows`` [r] in the order of ``seats``; ``silent``: no sample for longer than forgiven."""

    cause: Cause
    log_ms: int
    seats: list[Seat]
    rows: Ints
    silent: Bools


def look(state: PartitionState, offset: int) -> TickView:
    """The view at the tick of ``offset``."""
    rows = state.rows()
    sample_ms = state.nodes["sample_ms"].take(rows)
    silent = (sample_ms < 0) | (state.log_ms - sample_ms > state.law.loop.silent_after_ms)
    cause = cause_of(state, offset, state.log_ms)
    return TickView(cause, state.log_ms, list(state.seats.values()), rows, silent)
