"""Where sums are kept: one cell for each pool, stage, policy and workload that was seen.

Any grouping is a sum of cells. What is the machine's and nobody's workload has the workload "".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.accounts.jobs import Jobs
from streams.accounts.lending import Lending
from streams.accounts.machines import Machines
from streams.accounts.online import Online
from streams.accounts.satisfaction import Satisfaction
from streams.accounts.sums import Sums
from streams.accounts.suppression import Evictions, Suppression


class Place(NamedTuple):
    """``stage`` is `stages.CONTROL` in the control group, "" where no policy or node is known."""

    pool: str = ""
    stage: str = ""
    policy: str = ""  # digest
    workload: str = ""


UNPLACED = Place(stage="unplaced")
"""Of jobs that no node had yet."""


@dataclass(slots=True)
class Cell(Sums):
    """The sums of one place."""

    machines: Machines = field(default_factory=Machines)
    lending: Lending = field(default_factory=Lending)
    suppression: Suppression = field(default_factory=Suppression)
    evictions: Evictions = field(default_factory=Evictions)
    satisfaction: Satisfaction = field(default_factory=Satisfaction)
    jobs: Jobs = field(default_factory=Jobs)
    online: Online = field(default_factory=Online)


@dataclass(slots=True)
class Span:
    """The account's time, log ms; what lies outside is folded and not counted."""

    from_ms: int
    to_ms: int

    @property
    def ms(self) -> int:
        """How long it is."""
        return max(self.to_ms - self.from_ms, 0)

    def overlap(self, begin_ms: int, end_ms: int) -> int:
        """How much of a time lies inside."""
        return max(min(end_ms, self.to_ms) - max(begin_ms, self.from_ms), 0)

    def holds(self, at_ms: int) -> bool:
        """Whether a moment does; both ends do."""
        return self.from_ms <= at_ms <= self.to_ms


class Cells:
    """Cells by place; ``stages``: from when to when each stage was seen on some node."""

    def __init__(self) -> None:
        self.by_place: dict[Place, Cell] = {}
        self.stages: dict[str, Span] = {}

    def at(self, place: Place, workload: str = "") -> Cell:
        """The cell of a place, or of a workload there."""
        key = place._replace(workload=workload)
        cell = self.by_place.get(key)
        if cell is None:
            cell = self.by_place[key] = Cell()
        return cell

    def seen(self, stage: str, begin_ms: int, end_ms: int) -> None:
        """A node in a stage was measured from when to when."""
        span = self.stages.get(stage)
        if span is None:
            self.stages[stage] = Span(begin_ms, end_ms)
        else:
            span.from_ms = min(span.from_ms, begin_ms)
            span.to_ms = max(span.to_ms, end_ms)

    def total(self, chosen: Callable[[Place], bool]) -> Cell:
        """The sum of some cells."""
        whole = Cell()
        for place in sorted(self.by_place):
            if chosen(place):
                whole.add(self.by_place[place])
        return whole
