"""The demo's verdict on made-up recordings whose right answer is known by construction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.policy import Suppress
from streams.demo.judge import Bounds, percentile_us, reaction, seconds_beyond_law, verdict
from streams.demo.trace import Arrival, Quota, Series, Step, Trace, Write

CAPACITY = 2000
BOUNDS = Bounds(interval_us=200_000, suppress=Suppress())
STEP_AT, END = 10_000_000, 14_000_000
LOW, HIGH, SYSTEM = 300, 700, 200


def recording(*, write_after_us: int = 180_000, others_milli: int = 0, off_milli: int = 0) -> Trace:
    """Online load goes from LOW to HIGH at STEP_AT; best effort follows after the write."""
    trace = Trace(CAPACITY)
    online = best = machine = ours = 0.0
    rule_low = 1300 - LOW - SYSTEM - others_milli
    rule_high = 1300 - HIGH - SYSTEM - others_milli
    for at in range(5_000_000, 15_000_000, 20_000):
        for series, value in zip(
            (trace.online, trace.best_effort, trace.machine, trace.ours),
            (online, best, machine, ours),
            strict=True,
        ):
            series.add(at, round(value))
        up = STEP_AT <= at < END
        online_milli = HIGH if up else LOW
        best_milli = (rule_high + off_milli) if at >= STEP_AT + write_after_us else rule_low
        online += online_milli * 20
        best += best_milli * 20
        ours += SYSTEM * 20
        machine += (online_milli + best_milli + SYSTEM + others_milli) * 20
    trace.quotas = [Quota(5_000_000, rule_low), Quota(STEP_AT + write_after_us, rule_high)]
    trace.steps = [Step(STEP_AT, END, HIGH, up=True)]
    trace.writes = [Write(STEP_AT + write_after_us + 300, "local", rule_high)]
    trace.arrivals = [Arrival(STEP_AT + write_after_us + 90_000, rule_high)]
    return trace


def test_a_prompt_reaction_is_judged_good() -> None:
    found = verdict(recording(), BOUNDS)
    (one,) = found.judged
    assert (one.first_us, one.by, one.settled_us) == (180_000, "local", 180_000)
    assert one.command_us == 270_000
    assert one.rule_milli == 400
    assert one.error_milli <= 1
    assert not (found.late or found.astray or found.unsettled or found.disturbed_steps)


def test_a_late_write_is_late() -> None:
    assert BOUNDS.first_us == 350_000
    assert not verdict(recording(write_after_us=350_000), BOUNDS).late
    (late,) = verdict(recording(write_after_us=360_000), BOUNDS).late
    assert late.first_us == 360_000


def test_a_missing_write_is_late_not_absent() -> None:
    trace = recording()
    trace.quotas = trace.quotas[:1]
    (late,) = verdict(trace, BOUNDS).late
    assert late.first_us is None
    assert late.settled_us is None


def test_a_write_within_the_ignored_change_is_no_reaction() -> None:
    trace = recording()
    small = Quota(STEP_AT + 50_000, trace.quotas[0].milli - 20)
    trace.quotas.insert(1, small)
    found = reaction(trace, BOUNDS, trace.steps[0])
    assert found is not None
    assert found.first_us == 180_000


def test_foreign_load_disturbs_and_is_not_judged() -> None:
    found = verdict(recording(others_milli=150, write_after_us=900_000), BOUNDS)
    assert found.disturbed_steps == 1
    assert not (found.judged or found.late or found.astray)
    assert found.reactions[0].others_milli == 150


def test_use_off_the_rule_is_astray() -> None:
    found = verdict(recording(off_milli=110), BOUNDS)
    # More use raises nothing else: the rule is recomputed from online and system use alone.
    (astray,) = found.astray
    assert astray.error_milli == pytest.approx(110, abs=1)


def test_a_step_too_short_to_settle_is_left_out() -> None:
    trace = recording()
    trace.steps = [Step(STEP_AT, STEP_AT + 800_000, HIGH, up=True)]
    assert verdict(trace, BOUNDS).reactions == ()


def test_a_step_outside_the_recording_is_left_out() -> None:
    trace = recording()
    trace.steps = [Step(STEP_AT, 99_000_000, HIGH, up=True)]
    assert verdict(trace, BOUNDS).reactions == ()


def test_the_second_of_a_step_may_use_the_old_quota_once() -> None:
    seconds, beyond = seconds_beyond_law(recording(), BOUNDS, 7_000_000, 14_000_000)
    assert (seconds, beyond) == (7, [])


def test_a_law_not_followed_in_an_outage_is_seen_each_second() -> None:
    trace = recording(write_after_us=4_000_000)  # nobody lowers anything
    _seconds, beyond = seconds_beyond_law(trace, BOUNDS, 7_000_000, 14_000_000)
    assert [one.from_us for one in beyond] == [11_000_000, 12_000_000, 13_000_000]
    assert beyond[0].used_milli == pytest.approx(800, abs=2)
    assert beyond[0].allowed_milli == pytest.approx(400, abs=2)


def test_the_floor_is_always_allowed() -> None:
    trace = recording(others_milli=300)
    found = reaction(trace, Bounds(200_000, Suppress(threshold_percent=40)), trace.steps[0])
    assert found is not None
    assert found.rule_milli == Suppress().floor_milli


def test_a_series_is_read_between_its_sights() -> None:
    series = Series()
    for at, value in ((0, 0), (100, 50), (100, 60), (200, 150)):
        series.add(at, value)
    assert series.read(150) == 100
    assert series.rate_milli(0, 200) == 750
    assert series.covers(0, 200)
    assert not series.covers(0, 201)


def test_percentiles_are_nearest_rank() -> None:
    assert percentile_us(list(range(1, 21)), 950) == 19
    assert percentile_us([7], 500) == 7
    assert percentile_us([], 500) is None


def test_a_step_that_finds_best_effort_at_its_floor_proves_nothing() -> None:
    trace = recording()
    trace.quotas = [Quota(5_000_000, 25)]
    found = verdict(trace, BOUNDS)
    assert found.reactions[0].low_before
    assert found.judged == ()
    assert found.late == ()


@pytest.mark.parametrize(("before", "judged"), [(415, 0), (430, 1)])
def test_a_quota_within_what_the_rule_ignores_needs_no_write(before: int, judged: int) -> None:
    """The rule says 400, and of two cores it ignores one per cent."""
    trace = recording()
    trace.quotas = [Quota(5_000_000, before)]
    found = verdict(trace, BOUNDS)
    assert found.reactions[0].rule_milli == pytest.approx(400, abs=2)
    assert len(found.judged) == len(found.late) == judged


@pytest.mark.parametrize(
    ("after_us", "late", "too_late"),
    [(340_000, 0, 0), (360_000, 1, 0), (740_000, 1, 0), (760_000, 1, 1)],
)
def test_one_step_may_be_late_but_not_unsettled(after_us: int, late: int, too_late: int) -> None:
    found = verdict(recording(write_after_us=after_us), BOUNDS)
    assert (len(found.late), len(found.too_late)) == (late, too_late)
    twice = replace(found, late=found.late * 2)
    assert len(twice.too_late) == 2 * late


def test_steps_of_an_outage_are_left_to_its_own_judgement() -> None:
    trace = recording(write_after_us=360_000)
    assert verdict(trace, BOUNDS, (STEP_AT, END)).reactions == ()
    assert verdict(trace, BOUNDS, (END, END + 1)) == verdict(trace, BOUNDS)
