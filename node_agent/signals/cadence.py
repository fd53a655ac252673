"""Which columns are due in a sweep; the table is in `node_agent.sampler`, which calls this."""

from __future__ import annotations

from schemas.columns import SLOW_CADENCE_MS, SLOW_POD_COLUMNS

PERIOD_MIN_MS = 100
SECOND_MS = 1000


class Cadence:
    """Which columns are due: counted in periods, so that a late sweep changes nothing."""

    def __init__(self, period_ms: int) -> None:
        """Raises ValueError below `PERIOD_MIN_MS`."""
        if period_ms < PERIOD_MIN_MS:
            raise ValueError(f"period {period_ms} ms is too short; the least is {PERIOD_MIN_MS} ms")
        self._periods = -(-SECOND_MS // period_ms)
        turn_ms = self._periods * period_ms
        turns = -(-turn_ms * len(SLOW_POD_COLUMNS) // SLOW_CADENCE_MS)
        self._slow_a_turn = min(len(SLOW_POD_COLUMNS), turns)
        self._sweep = 0
        self._slow = 0

    def next(self) -> tuple[bool, frozenset[str]]:
        """(whether this is a sweep for once-a-second files, slow columns due in it)."""
        second = self._sweep % self._periods == 0
        self._sweep += 1
        if not second:
            return False, frozenset()
        first = self._slow
        self._slow = (first + self._slow_a_turn) % len(SLOW_POD_COLUMNS)
        twice = SLOW_POD_COLUMNS + SLOW_POD_COLUMNS
        return True, frozenset(twice[first : first + self._slow_a_turn])
