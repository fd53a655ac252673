"""The arithmetic of the verdict: reactions to steps of the online load, and the rule recomputed.

Pure; called by `run`, by the closed-loop bench and by their tests. The rule is the suppress rule of
the law, written out once more on purpose: a judge that called the judged would prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from schemas.policy import Suppress
from streams.demo.trace import Step, Trace

SLACK_US = 150_000  # beyond whole sampling intervals: reading, deciding, writing
SETTLE_INTERVALS = 3
RULE_ERROR_MILLI = 100  # a tenth of a core
OTHERS_MILLI = 100  # foreign load beyond this disturbs a measurement
JUDGED_AT_LEAST = 3
LATE_AT_MOST = 1  # the bound is a 95th percentile, and a run has few steps
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is allowed, from the sampling interval and the policy in force."""

    interval_us: int
    suppress: Suppress
    reserved_milli: int = 0

    @property
    def first_us(self) -> int:
        """First lowering write after an up-step: one interval and the slack."""
        return self.interval_us + SLACK_US

    @property
    def settled_us(self) -> int:
        """Settled: three intervals and the slack."""
        return SETTLE_INTERVALS * self.interval_us + SLACK_US

    def ignored_milli(self, capacity_milli: int) -> int:
        """Changes that the rule does not write."""
        return capacity_milli * self.suppress.ignore_permille // 1000

    def floor_milli(self, capacity_milli: int) -> int:
        """Best-effort work may always have so much."""
        share = capacity_milli * self.suppress.floor_percent // 100
        return max(self.suppress.floor_milli, share)


@dataclass(frozen=True, slots=True)
class Reaction:
    """One step of the online load and what followed. ``None``: did not happen in its time.

    Times count from the step. ``by``: who wrote first, ``local`` or ``command``.
    """

    step: Step
    others_milli: int
    before_milli: int  # quota in force at the step; -1: none
    rule_milli: int  # recomputed over the settled part
    used_milli: int  # best-effort use over the settled part
    first_us: int | None = None
    settled_us: int | None = None
    command_us: int | None = None  # arrival of the first lowering command from the centre
    by: str = ""

    @property
    def disturbed(self) -> bool:
        """Foreign load makes any reading of this step worthless."""
        return self.others_milli > OTHERS_MILLI

    low_before: bool = False  # the step found the quota where the rule wants it, or below

    @property
    def error_milli(self) -> int:
        """How far best-effort use was from the rule."""
        return abs(self.used_milli - self.rule_milli)


def rule_milli(trace: Trace, bounds: Bounds, from_us: int, to_us: int) -> int:
    """What the suppress rule allows for the usage measured in a window, in millicores.

    The mean over its sampling intervals: at the floor the rule is not linear, so the rule of the
    mean usage would be another one.
    """
    parts = max(1, round((to_us - from_us) / bounds.interval_us))
    edges = [from_us + (to_us - from_us) * part // parts for part in range(parts + 1)]
    allowed = [_allowed(trace, bounds, *edge) for edge in pairwise(edges)]
    return round(sum(allowed) / len(allowed))


def _allowed(trace: Trace, bounds: Bounds, from_us: int, to_us: int) -> int:
    """The rule for one interval."""
    capacity = trace.capacity_milli
    taken = trace.online.rate_milli(from_us, to_us)
    taken += max(trace.system_milli(from_us, to_us), bounds.reserved_milli)
    allowed = capacity * bounds.suppress.threshold_percent // 100 - taken
    return max(allowed, bounds.floor_milli(capacity))


def reaction(trace: Trace, bounds: Bounds, step: Step) -> Reaction | None:
    """What followed one step; None when the window was not measured or is too short to settle."""
    settled_from = step.mono_us + bounds.settled_us
    if settled_from + bounds.interval_us > step.until_us:
        return None
    if not trace.covers(step.mono_us - bounds.interval_us, step.until_us):
        return None
    rule = rule_milli(trace, bounds, settled_from, step.until_us)
    before = trace.quota_at(step.mono_us)
    first, by = _first_lowering(trace, bounds, step, before) if step.up else (None, "")
    return Reaction(
        step=step,
        others_milli=trace.others_milli(step.mono_us - bounds.interval_us, step.until_us),
        before_milli=before,
        rule_milli=rule,
        used_milli=trace.best_effort.rate_milli(settled_from, step.until_us),
        first_us=first,
        settled_us=_settled(trace, step, rule) if step.up else None,
        command_us=_command(trace, bounds, step, before) if step.up else None,
        by=by,
        low_before=step.up and 0 <= before <= rule + bounds.ignored_milli(trace.capacity_milli),
    )


def _lower(milli: int, before: int, ignored: int) -> bool:
    """Whether a quota is lower than the one before by more than what the rule ignores."""
    return milli >= 0 and (before < 0 or milli < before - ignored)


def _first_lowering(
    trace: Trace, bounds: Bounds, step: Step, before: int
) -> tuple[int | None, str]:
    ignored = bounds.ignored_milli(trace.capacity_milli)
    for quota in trace.quotas:
        if step.mono_us < quota.mono_us < step.until_us and _lower(quota.milli, before, ignored):
            return quota.mono_us - step.mono_us, _writer(trace, quota.mono_us)
    return None, ""


def _writer(trace: Trace, mono_us: int) -> str:
    """Who told of the write nearest to a change of the kernel file."""
    near = min(trace.writes, key=lambda write: abs(write.mono_us - mono_us), default=None)
    return near.by if near is not None and abs(near.mono_us - mono_us) <= SLACK_US else "unknown"


def _settled(trace: Trace, step: Step, rule: int) -> int | None:
    """When the quota first came within a tenth of a core of where it belonged."""
    for quota in trace.quotas:
        within = step.mono_us < quota.mono_us < step.until_us
        if within and 0 <= quota.milli <= rule + RULE_ERROR_MILLI:
            return quota.mono_us - step.mono_us
    return None


def _command(trace: Trace, bounds: Bounds, step: Step, before: int) -> int | None:
    ignored = bounds.ignored_milli(trace.capacity_milli)
    for arrival in trace.arrivals:
        within = step.mono_us < arrival.mono_us < step.until_us
        if within and _lower(arrival.milli, before, ignored):
            return arrival.mono_us - step.mono_us
    return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the steps of one run amount to; times in microseconds, amounts in millicores."""

    reactions: tuple[Reaction, ...]
    judged: tuple[Reaction, ...]  # up-steps undisturbed, with something to take back
    late: tuple[Reaction, ...]  # judged, first lowering write missing or beyond its bound
    unsettled: tuple[Reaction, ...]
    astray: tuple[Reaction, ...]  # undisturbed, up or down, use off the rule once settled
    rule_error_milli: int  # the largest of the undisturbed

    @property
    def too_late(self) -> tuple[Reaction, ...]:
        """The late ones, but for a single one that fell before use had to be settled."""
        stray = len(self.late) <= LATE_AT_MOST and not set(self.late) & set(self.unsettled)
        return () if stray else self.late

    @property
    def disturbed_steps(self) -> int:
        return sum(one.disturbed for one in self.reactions)


def verdict(trace: Trace, bounds: Bounds, apart_us: tuple[int, int] | None = None) -> Verdict:
    """Judge every step of a run; disturbed ones count for nothing, either way.

    Steps that touch ``apart_us`` are left out: an outage of the broker is judged by its seconds
    (`seconds_beyond_law`), for without a live command best-effort work lawfully stays below.
    """
    begin, end = apart_us or (0, 0)
    steps = [one for one in trace.steps if one.until_us <= begin or one.mono_us >= end]
    every = [reaction(trace, bounds, step) for step in steps]
    reactions = tuple(one for one in every if one is not None)
    calm = [one for one in reactions if not one.disturbed]
    judged = tuple(one for one in calm if one.step.up and not one.low_before)
    return Verdict(
        reactions=reactions,
        judged=judged,
        late=tuple(one for one in judged if _beyond(one.first_us, bounds.first_us)),
        unsettled=tuple(one for one in judged if _beyond(one.settled_us, bounds.settled_us)),
        astray=tuple(one for one in calm if one.error_milli > RULE_ERROR_MILLI),
        rule_error_milli=max((one.error_milli for one in calm), default=0),
    )


def _beyond(value: int | None, bound: int) -> bool:
    return value is None or value > bound


@dataclass(frozen=True, slots=True)
class Excess:
    """A second in which best-effort work used more than the law allowed."""

    from_us: int
    used_milli: int
    allowed_milli: int


def seconds_beyond_law(
    trace: Trace, bounds: Bounds, from_us: int, to_us: int
) -> tuple[int, list[Excess]]:
    """How many whole seconds were measured, and those with use beyond the law by a tenth of a core.

    The law of a second is the larger of the rule recomputed over it and over the second before:
    within the second of a step the quota of the old load is lawfully in force for one interval.
    """
    seconds, beyond = 0, []
    start = from_us
    while start + SECOND_US <= to_us:
        end = start + SECOND_US
        if trace.covers(start - SECOND_US, end):
            seconds += 1
            allowed = max(
                rule_milli(trace, bounds, start, end),
                rule_milli(trace, bounds, start - SECOND_US, start),
            )
            used = trace.best_effort.rate_milli(start, end)
            if used > allowed + RULE_ERROR_MILLI:
                beyond.append(Excess(start, used, allowed))
        start = end
    return seconds, beyond


def percentile_us(values: list[int], permille: int) -> int | None:
    """Nearest-rank percentile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * permille // 1000)
    return ordered[max(rank, 1) - 1]
