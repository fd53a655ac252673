"""Reports of online services against their objectives: as they were, and as they are expected.

Under the other policy a report is expected to miss as often as reports of the same service did, in
the recording, at such a use of the node (bins of 5 % of its capacity, the mean over the report's
window). A bin without reports takes the next one below, then above. Less use never makes a miss of
what was none, more use never mends one; the same bin: as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agents.slo_watch import within
from schemas.policy import Objective
from schemas.records import Sli

BIN_PERCENT = 5
KEPT_MS = 300_000
PERMILLE = 1000
WHOLE_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Heard:
    """One report as it was heard: ``use``, the bin of its node's use; -1: not known."""

    node: str
    said: Sli
    use: int
    objective: Objective | None  # of the policy in force


@dataclass(slots=True)
class Use:
    """What a node used of late."""

    points: deque[tuple[int, int, int]] = field(default_factory=deque)  # log ms, milli us, us

    def note(self, log_ms: int, node_milli: int, elapsed_us: int) -> None:
        """One interval that ended at a moment."""
        self.points.append((log_ms, node_milli * elapsed_us, elapsed_us))
        while self.points[0][0] < log_ms - KEPT_MS:
            self.points.popleft()

    def bin(self, end_ms: int, window_ms: int, capacity_milli: int) -> int:
        """Where the mean over a window lies; -1: nothing is known of it."""
        used = us = 0
        for log_ms, amount, elapsed_us in reversed(self.points):
            if log_ms <= end_ms - max(window_ms, elapsed_us // PERMILLE):
                break
            if log_ms <= end_ms:
                used += amount
                us += elapsed_us
        if not us or capacity_milli <= 0:
            return -1
        return used * WHOLE_PERCENT // (us * capacity_milli) // BIN_PERCENT


def missed(said: Sli, objective: Objective) -> bool:
    """Whether a report says that its service has left its objective; few requests say nothing."""
    judged = said.requests >= objective.least_requests and said.window_ms <= objective.window_ms
    return judged and not within(said, objective, WHOLE_PERCENT)


@dataclass(frozen=True, slots=True)
class Misses:
    """Of one node: reports that were judged, and misses in permille of a report."""

    reports: int = 0
    was: int = 0
    would: int = 0

    def plus(self, was: int, would: int) -> Misses:
        """One report more."""
        return Misses(self.reports + 1, self.was + was, self.would + would)


def misses(heard: Iterable[Heard], others: Iterable[Heard]) -> dict[str, Misses]:
    """By node. ``others``: the same reports beside what their nodes would have used.

    Judged by the objective that the recorded policy had, where it had none by the other one's.
    """
    judged = [
        (one.node, one.said.workload, one.use, other.use, missed(one.said, objective))
        for one, other in zip(heard, others, strict=False)
        if (objective := one.objective or other.objective) is not None
    ]
    table: dict[str, dict[int, tuple[int, int]]] = {}
    for _, workload, use, _, miss in judged:
        row = table.setdefault(workload, {})
        count, bad = row.get(use, (0, 0))
        row[use] = (count + 1, bad + miss)
    found: dict[str, Misses] = {}
    for node, workload, use, other_use, miss in judged:
        was = PERMILLE * miss
        would = _expected(table[workload], use, other_use, was)
        found[node] = found.get(node, Misses()).plus(was, would)
    return found


def _expected(row: dict[int, tuple[int, int]], use: int, other_use: int, was: int) -> int:
    """Permille of a miss at another use of the node."""
    if use < 0 or other_use < 0 or use == other_use:
        return was
    below = [known for known in row if 0 <= known <= other_use]
    nearest = max(below) if below else min(known for known in row if known >= 0)
    count, bad = row[nearest]
    rate = bad * PERMILLE // count
    return min(was, rate) if other_use < use else max(was, rate)
