"""What every bench shares: goals, and the one line of JSON that a bench ends with.

A bench prints what it sees as it goes (to stderr), then calls `finish` and exits with its answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and its bound; a figure that is absent (None) has missed it."""

    name: str  # of the figure, its unit included
    value: float | None
    bound: float
    sense: Literal["at_most", "at_least"] = "at_most"

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        if self.sense == "at_most":
            return self.value <= self.bound
        return self.value >= self.bound


def report(name: str, figures: dict[str, Any], goals: Sequence[Goal]) -> dict[str, Any]:
    """The document of the last line. A bench without a goal has proved nothing: it is not met."""
    return {
        "name": name,
        **figures,
        "goals": {
            goal.name: {"value": goal.value, goal.sense: goal.bound, "met": goal.met}
            for goal in goals
        },
        "met": bool(goals) and all(goal.met for goal in goals),
    }


def finish(name: str, figures: dict[str, Any], goals: Sequence[Goal]) -> int:
    """Print the last line on stdout; returns the exit code: 1 when a goal was missed."""
    document = report(name, figures, goals)
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
    return 0 if document["met"] else 1


def say(text: str) -> None:
    """A line of progress, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def median(values: Sequence[float]) -> float | None:
    """The middle value, the mean of the two middle ones of an even count; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
