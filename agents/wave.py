"""A wave: samples of consecutive log entries, each node at most once, folded side by side.

`agents.step` fills it, `agents.fold` reads it; the deciders take the answers from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.log import SampleEntry
from agents.state import Seat

if TYPE_CHECKING:
    from schemas.packed import PackedSample


class Wave:
    """Columns of equal length, one item a sample, in log order."""

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.rows: list[int] = []
        self.offsets: list[int] = []
        self.log_ms: list[int] = []
        self.event_ms: list[int] = []
        self.fresh: list[bool] = []
        self.samples: list[PackedSample] = []
        self.members: set[bytes] = set()

    def add(self, seat: Seat, entry: SampleEntry, log_ms: int, event_ms: int, fresh: bool) -> None:
        """One admitted sample; ``fresh``: the first of its boot."""
        assert entry.sample.node not in self.members, "a node comes once a wave"
        self.members.add(entry.sample.node)
        self.seats.append(seat)
        self.rows.append(seat.row)
        self.offsets.append(entry.offset)
        self.log_ms.append(log_ms)
        self.event_ms.append(event_ms)
        self.fresh.append(fresh)
        self.samples.append(entry.sample)
