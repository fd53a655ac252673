"""Which columns are due in a sweep: those of each sample, of each second, and those in turn.

Called by `node_agent.sampler`; how often a column is due stands in `schemas.columns`.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.columns import RARE_MS, SECOND_MS, SLOW_MS

PERIOD_MIN_MS = 100


class Turns:
    """Things that take turns: as few a turn as their cadences allow, each always in time.

    A frame is as many turns as fit into `SLOW_MS`. Each slow thing has its place in it; the rare
    ones share the other places in their order, as many a frame as bring each round in `RARE_MS`.
    """

    def __init__(self, every_ms: Mapping[str, int], turn_ms: int) -> None:
        self._slow = tuple(name for name, each in every_ms.items() if each <= SLOW_MS)
        self._rare = tuple(name for name, each in every_ms.items() if each > SLOW_MS)
        self._turns = max(1, SLOW_MS // turn_ms)
        frames = max(1, RARE_MS // (self._turns * turn_ms))
        self._rare_a_frame = -(-len(self._rare) // frames)
        self._turn = self._rare_at = 0
        self._frame: list[list[str]] = []

    def next(self) -> frozenset[str]:
        """What is due in this turn."""
        if self._turn == 0:
            self._frame = self._deal()
        due = self._frame[self._turn]
        self._turn = (self._turn + 1) % self._turns
        return frozenset(due)

    def _deal(self) -> list[list[str]]:
        """A frame: its things spread over its turns, the slow ones always in the same place."""
        rare = [
            self._rare[(self._rare_at + place) % len(self._rare)]
            for place in range(self._rare_a_frame)
        ]
        self._rare_at = (self._rare_at + self._rare_a_frame) % max(1, len(self._rare))
        dealt: list[list[str]] = [[] for _ in range(self._turns)]
        things = (*self._slow, *rare)
        for place, name in enumerate(things):
            dealt[place * self._turns // len(things)].append(name)
        return dealt


class Cadence:
    """Which columns are due: counted in periods, so that a late sweep changes nothing."""

    def __init__(self, period_ms: int, pods: Mapping[str, int]) -> None:
        """``pods``: column -> longest time between two, of those that take turns.

        Raises ValueError below `PERIOD_MIN_MS`.
        """
        if period_ms < PERIOD_MIN_MS:
            raise ValueError(f"period {period_ms} ms is too short; the least is {PERIOD_MIN_MS} ms")
        self._periods = -(-SECOND_MS // period_ms)
        self._turn_ms = self._periods * period_ms
        self._sweep = 0
        self._pods = Turns(pods, self._turn_ms)
        self._machine = Turns({}, self._turn_ms)

    def machine_has(self, machine: Mapping[str, int]) -> None:
        """The machine's own things that take turns, at first and whenever one came or went."""
        self._machine = Turns(machine, self._turn_ms)

    def next(self) -> tuple[bool, frozenset[str], frozenset[str]]:
        """(whether once-a-second columns are due, pods' columns, the machine's things in turn)."""
        second = self._sweep % self._periods == 0
        self._sweep += 1
        if not second:
            return False, frozenset(), frozenset()
        return True, self._pods.next(), self._machine.next()
