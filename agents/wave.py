"""A wave: samples of consecutive log entries, each node at most once, folded side by side.

`agents.step` fills it, `agents.fold` reads it; the deciders take the answers from it.
"""

from __future__ import annotations

from agents.log import SampleEntry
from agents.state import Seat


class Wave:
    """Columns of equal length, one item a sample, in log order."""

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.entries: list[SampleEntry] = []
        self.log_ms: list[int] = []
        self.event_ms: list[int] = []
        self.fresh: list[int] = []  # places of first samples of a boot
        self.members: set[bytes] = set()

    def add(self, seat: Seat, entry: SampleEntry, log_ms: int, event_ms: int, fresh: bool) -> None:
        """One admitted sample; ``fresh``: the first of its boot."""
        key = entry.sample.node
        assert key not in self.members, "a node comes once a wave"
        self.members.add(key)
        if fresh:
            self.fresh.append(len(self.seats))
        self.seats.append(seat)
        self.entries.append(entry)
        self.log_ms.append(log_ms)
        self.event_ms.append(event_ms)
