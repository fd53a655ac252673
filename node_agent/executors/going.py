"""Evictions that have begun: who is left, by which way, and until when; and how a restart knows.

Kept by `node_agent.evictions`; the journal's line of a begun eviction carries `line`, from which
the next start goes on with `recalled`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from node_agent.executors.way import Way
from node_agent.journal import BEGUN
from node_agent.journal_text import Line
from schemas.records import Cause, Command


@dataclass(slots=True)
class Order:
    """One eviction. ``left``: the pods that still run, with the identity of each one's group."""

    command: Command
    local: bool  # by memory's last gate
    way: Way
    since_us: int
    left: dict[str, int]
    gone: list[str] = field(default_factory=list)
    reason: str = ""  # why it went another way than was chosen
    killing_us: int | None = None  # since when kills are tried
    busy: bool = False  # a kill of it is under way in a thread: nobody else looks at it
    failed: str = ""  # of the kill, as it was said last
    stops: dict[str, asyncio.Task[str]] = field(default_factory=dict)  # by the runtime

    @property
    def until_us(self) -> int:
        """When its time is over."""
        return self.since_us + self.way.wait_ms * 1000

    def line(self) -> Line:
        """What the journal keeps of it."""
        return {
            "way": self.way.executor,
            "wait_ms": self.way.wait_ms,
            "kills": self.way.kills,
            "since_us": self.since_us,
            "left": dict(self.left),
        }


def recalled(line: Line, node: str) -> Order | None:
    """The order of a journal's line that has begun and was not answered; None: it is none."""
    if line["outcome"] not in BEGUN or "way" not in line:
        return None
    way = Way(line["way"], line["wait_ms"], line["kills"])
    return Order(command_of(line, node), False, way, line["since_us"], dict(line["left"]))


def command_of(line: Line, node: str) -> Command:
    """As much of a command as its answer needs."""
    cause = Cause(line["incarnation"], 0, line["offset"], 0, "", 0)
    return Command(
        id=line["id"],
        node=node,
        decider=line["decider"],
        cause=cause,
        expires_log_ms=0,
        reason="",
        pods=tuple(line["pods"]),
    )
