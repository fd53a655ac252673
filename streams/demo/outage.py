"""The broker goes away in the middle of it all and comes back on its data. Called by `run`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from streams.demo.board import Board
from streams.demo.summary import Outage
from streams.demo.supervisor import Supervisor

WHOLE_WITHIN_S = 15.0
POLL_S = 0.2


@dataclass(slots=True)
class Whole:
    """Whether the loop turns again, for everything after a moment of broker time."""

    board: Board
    since_ms: int
    since_mono_us: int
    partitions: int
    applied_before: int
    lag: Callable[[], int | None]
    lag_allowed: int

    def missing(self) -> str:
        """What does not turn yet; empty: all does."""
        lacking = []
        fresh = sum(at > self.since_ms for at in self.board.leases.values())
        if fresh < self.partitions:
            lacking.append(f"leases of {self.partitions - fresh} partitions")
        if not self._applied():
            lacking.append("a command applied")
        if self.board.capacity_log_ms <= self.since_ms:
            lacking.append("fresh capacity")
        lag = self.lag()
        if lag is None or lag > self.lag_allowed:
            lacking.append(f"lag {lag}")
        return ", ".join(lacking)

    def _applied(self) -> bool:
        """A command on the real node, where there is one, else on any."""
        if self.board.watched:
            return any(
                ack.mono_us > self.since_mono_us and ack.outcome == "applied"
                for ack in self.board.watched_acks
            )
        return applied(self.board) > self.applied_before


def applied(board: Board) -> int:
    """Commands applied so far, everywhere."""
    return sum(row.acks.get("applied", 0) for row in board.rows.values())


async def await_whole(
    whole: Whole, supervisor: Supervisor, hold: Callable[[float], Awaitable[None]], outage: Outage
) -> None:
    """Wait for the loop, and note how long it took or what was missing; does not raise for that."""
    begun = time.monotonic()
    while True:
        outage.missing = whole.missing()
        took = time.monotonic() - begun
        if not outage.missing:
            outage.whole_again_s = took
            return
        if took > outage.whole_within_s:
            return
        supervisor.check()
        await hold(POLL_S)
