"""What a run found: violations of named invariants, and the story that led there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MOST_VIOLATIONS = 20
INVARIANTS = (
    "online_untouched", "within_law", "not_below_floor", "raise_needs_live_command",
    "twice_is_once", "order_never_back", "equal_key_equal_bytes", "refold_equals_live",
    "doubt_keeps_what_is_lent", "capacity_not_negative", "zero_evicts_nobody", "blast_radius",
    "cool_down", "bounded", "whole_again", "converges", "bad_record_alone", "no_bug",
    "bridge_in_order",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise; ``at_ms`` counts from the start of the run."""

    invariant: str
    at_ms: int
    detail: str


@dataclass(slots=True)
class Report:
    """The outcome of one run."""

    seed: int
    violations: list[Violation] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    digest: str = ""  # of all output bytes by key

    def broken(self, invariant: str, at_ms: int, detail: str) -> None:
        assert invariant in INVARIANTS, f"{invariant} is no invariant"
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(invariant, at_ms, detail))
        self.tell(at_ms, f"BROKEN {invariant}: {detail}")

    def tell(self, at_ms: int, line: str) -> None:
        self.story.append(f"{at_ms / 1000:8.2f} s  {line}")

    @property
    def names(self) -> set[str]:
        """The invariants that were broken."""
        return {violation.invariant for violation in self.violations}
