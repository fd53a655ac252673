"""The figures of an answer as people read and sort them: name, unit, which end is better.

Called by `streams.replay.what_if.text` and for `--sort-by`; sums stay whole until they are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streams.replay.what_if.result import Figures, WhatIf

HOUR_MS = 3_600_000
SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Score:
    """One figure: an integer of a `Figures`, and how many of it make one of its unit."""

    of: Callable[[Figures], int]
    better: Literal["more", "less"]
    says: str
    unit: int = 1

    def shown(self, figures: Figures) -> str:
        """It in its unit."""
        return self.worded(self.of(figures))

    def worded(self, value: int) -> str:
        """A value, or a difference, in its unit."""
        return f"{value:,}" if self.unit == 1 else f"{value / self.unit:,.2f}"


SCORES: dict[str, Score] = {
    "lent_core_h": Score(
        lambda f: f.batch_cpu_core_ms + f.mid_cpu_core_ms, "more",
        "CPU offered to batch and mid work, core-hours", HOUR_MS,
    ),
    "batch_core_h": Score(
        lambda f: f.batch_cpu_core_ms, "more", "of it to batch work, core-hours", HOUR_MS
    ),
    "lent_gib_h": Score(
        lambda f: f.batch_memory_gib_ms + f.mid_memory_gib_ms, "more",
        "memory offered to batch and mid work, GiB-hours", HOUR_MS,
    ),
    "used_core_s": Score(
        lambda f: f.best_effort_core_ms, "more", "CPU that best-effort work used, core-seconds",
        SECOND_MS,
    ),
    "withheld_core_s": Score(
        lambda f: f.withheld_core_ms, "less",
        "CPU that it wanted and did not get, core-seconds", SECOND_MS,
    ),
    "evictions": Score(lambda f: f.evicted_pods, "less", "pods told to leave"),
    "commands": Score(lambda f: f.command_count, "less", "commands"),
    "above_recorded_s": Score(
        lambda f: f.above_recorded_ms, "less",
        "node use above the recorded policy's suppress threshold, node-seconds", SECOND_MS,
    ),
    "above_other_s": Score(
        lambda f: f.above_other_ms, "less",
        "node use above the other policy's suppress threshold, node-seconds", SECOND_MS,
    ),
    "ill_s": Score(
        lambda f: f.ill_ms, "less", "nodes with an online pod that the law calls ill, node-seconds",
        SECOND_MS,
    ),
    "slo_misses": Score(lambda f: f.slo_misses, "less", "reports beyond their objective"),
}  # fmt: skip


def best_first(answers: list[WhatIf], name: str) -> list[WhatIf]:
    """The answers by one figure of the whole; equal ones stay in their order."""
    score = SCORES[name]
    sign = -1 if score.better == "more" else 1
    return sorted(answers, key=lambda each: sign * score.of(each.whole.would))
