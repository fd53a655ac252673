"""The end of a demo: what the loop did, as a record for machines and as text for people.

Built by `run` from `judge`'s verdict and the board; pure. `Summary.failures` decides the exit code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from streams.demo.board import Board, cores
from streams.demo.judge import (
    JUDGED_AT_LEAST,
    RULE_ERROR_MILLI,
    Bounds,
    Excess,
    Reaction,
    Verdict,
    percentile_us,
)
from streams.demo.stage import Latency


@dataclass(slots=True)
class Outage:
    """A stop of the broker in the middle of it all."""

    asked_s: float
    seconds_measured: int | None  # None: there was no real node to measure
    beyond_law: list[Excess]
    whole_again_s: float | None  # from the broker's return; None: never
    whole_within_s: float
    missing: str = ""  # what was not whole in time


@dataclass(slots=True)
class Summary:
    """Everything that is said at the end. ``verdict`` None: there was no real node to judge."""

    nodes: int
    seconds: float
    why_not_real: str = ""
    bounds: Bounds | None = None
    verdict: Verdict | None = None
    latencies: dict[str, Latency] = field(default_factory=dict)
    real_best_effort_core_s: float = 0.0
    simulated_best_effort_core_s: float = 0.0
    own_milli: int = 0  # what the demo's own processes and the broker used while under the agent
    batch_milli: int = 0
    lent_milli: int = 0
    peak_lent_milli: int = 0
    capacity_nodes: int = 0
    commands: dict[str, int] = field(default_factory=dict)
    acks: dict[str, int] = field(default_factory=dict)
    jobs_done: int = 0
    jobs_moved: int = 0  # jobs with progress
    evictions: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)  # by reason
    bridge_patches: int = 0
    outage: Outage | None = None
    left_processes: list[str] = field(default_factory=list)
    left_cgroups: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    interrupted: bool = False
    error: str = ""

    def read_board(self, board: Board, real_node: str) -> None:
        """Take over what the topics said."""
        simulated = set(board.rows) - {real_node}
        self.simulated_best_effort_core_s = board.best_effort_us(simulated) / 1e6
        self.batch_milli, self.lent_milli = board.batch_milli, board.lent_milli
        self.peak_lent_milli = board.peak_lent_milli
        self.capacity_nodes = sum((row.batch_milli or 0) > 0 for row in board.rows.values())
        self.commands = dict(board.commands)
        self.acks = {}
        for row in board.rows.values():
            for outcome, count in row.acks.items():
                self.acks[outcome] = self.acks.get(outcome, 0) + count
        self.jobs_done = board.jobs_in("done")
        self.jobs_moved = sum(job.progress_permille > 0 for job in board.jobs.values())
        self.evictions = board.evictions
        self.dead_letters = {}
        for letter in board.dead_letters:
            self.dead_letters[letter.reason] = self.dead_letters.get(letter.reason, 0) + 1

    @property
    def failures(self) -> list[str]:
        """Why this run is not good; empty: it is. An interrupted one is judged for leftovers."""
        found = [f"left behind: process {one}" for one in self.left_processes]
        found += [f"left behind: cgroup {one}" for one in self.left_cgroups]
        if self.error:
            return [self.error, *found]
        if self.interrupted:
            return found
        found += self._loop_failures()
        if self.verdict is not None and self.bounds is not None:
            found += self._real_failures(self.verdict, self.bounds)
        if self.outage is not None:
            found += self._outage_failures(self.outage)
        return found

    @property
    def unjudged(self) -> bool:
        """Nothing is known to be wrong: foreign load left too few steps to judge."""
        few = self.verdict is not None and len(self.verdict.judged) < JUDGED_AT_LEAST
        return few and len(self.failures) == 1

    def _loop_failures(self) -> list[str]:
        """What must hold for the fleet, with or without a real node."""
        found = []
        if not self.acks.get("applied"):
            found.append("no command was applied by any node")
        if not self.capacity_nodes:
            found.append("no node was given batch capacity")
        if not self.peak_lent_milli:
            found.append("no capacity was lent by the simulated scheduler")
        if not self.jobs_moved:
            found.append("no simulated job made progress")
        return found

    def _real_failures(self, verdict: Verdict, bounds: Bounds) -> list[str]:
        found = []
        if len(verdict.judged) < JUDGED_AT_LEAST:
            found.append(
                f"only {len(verdict.judged)} up-steps could be judged, not {JUDGED_AT_LEAST} "
                f"({verdict.disturbed_steps} steps disturbed): run it again on a quieter machine"
            )
        for one in verdict.too_late:
            seen = "never" if one.first_us is None else f"after {one.first_us / 1000:.0f} ms"
            found.append(f"quota fell {seen}, bound {bounds.first_us / 1000:.0f} ms")
        found += [
            f"use {cores(one.used_milli)} where the rule says {cores(one.rule_milli)} cores: "
            f"off by more than {cores(RULE_ERROR_MILLI)}"
            for one in verdict.astray
        ]
        if self.real_best_effort_core_s <= 0:
            found.append("best-effort work on the real node got no core-seconds")
        return found

    @staticmethod
    def _outage_failures(outage: Outage) -> list[str]:
        found = [
            f"in the outage best-effort work used {cores(one.used_milli)} of "
            f"{cores(one.allowed_milli)} cores"
            for one in outage.beyond_law
        ]
        if outage.seconds_measured == 0:
            found.append("no second of the outage was measured")
        if outage.whole_again_s is None:
            found.append(
                f"the loop was not whole {outage.whole_within_s:.0f} s after the broker's return: "
                f"{outage.missing}"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values with units in their names."""
        document = asdict(self)
        verdict, bounds = self.verdict, self.bounds
        document["verdict"] = document["bounds"] = None
        if verdict is not None and bounds is not None:
            document["bounds"] = {
                "first_write_ms": bounds.first_us / 1000,
                "settled_ms": bounds.settled_us / 1000,
                "rule_error_milli": RULE_ERROR_MILLI,
            }
            document["verdict"] = {
                "steps": [_step_json(one) for one in verdict.reactions],
                "up_steps_judged": len(verdict.judged),
                "steps_disturbed": verdict.disturbed_steps,
                "late": len(verdict.late),
                "astray": len(verdict.astray),
                "rule_error_milli": verdict.rule_error_milli,
                "first_write_ms_p95": _ms(percentile_us(firsts(verdict.judged), 950)),
            }
        document["failures"] = self.failures
        document["ok"] = not self.failures
        return document


def firsts(reactions: tuple[Reaction, ...]) -> list[int]:
    """Times to the first lowering write, of those that had one."""
    return [one.first_us for one in reactions if one.first_us is not None]


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else round(value_us / 1000, 1)


def _step_json(one: Reaction) -> dict[str, Any]:
    return {
        "up": one.step.up,
        "load_milli": one.step.milli,
        "disturbed": one.disturbed,
        "low_before": one.low_before,
        "others_milli": one.others_milli,
        "first_write_ms": _ms(one.first_us),
        "first_write_by": one.by,
        "first_command_ms": _ms(one.command_us),
        "settled_ms": _ms(one.settled_us),
        "used_milli": one.used_milli,
        "rule_milli": one.rule_milli,
        "rule_error_milli": one.error_milli,
    }
