"""Reserve, publication, named margins and the calendar."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.lending.amounts import quotient
from agents.lending.margins import WEEK_MINUTES, expected_peak, minute_of_week
from agents.lending.publish import differs, left_over, normalised
from agents.lending.reserved import cpus_of, reserved, said_cpu_milli


@pytest.mark.parametrize(
    ("capacity", "allocatable", "said", "kept"),
    [(100, 90, 0, 10), (100, 90, 20, 20), (100, 120, 0, 0), (100, 100, 5, 5)],
)
def test_the_larger_reserve_holds(capacity: int, allocatable: int, said: int, kept: int) -> None:
    assert reserved(capacity, allocatable, said) == kept


@pytest.mark.parametrize(
    ("text", "count"), [("0-1,5", 3), ("7", 1), ("0-3,2-5", 6), ("1,1", 1), (" 0 , 2", 2)]
)
def test_a_list_of_cpus_stands_for_the_amount(text: str, count: int) -> None:
    assert len(cpus_of(text)) == count
    assert said_cpu_milli(300, text) == count * 1000
    assert said_cpu_milli(300, "") == 300


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "1-", "0,,1", "0-99999999999"])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        cpus_of(text)


@pytest.mark.parametrize(
    ("milli", "ratio", "fine"),
    [(50_000, 1.2, 60_000_000), (33_333, 1.07, 35_666_310), (1001, 1.0, 1_001_000),
     (1001, 0.5, 1_001_000), (7, 1.0001, 7000), (-5, 1.5, -5000)],
)  # fmt: skip
def test_cpu_is_normalised_by_ratios_above_one(milli: int, ratio: float, fine: int) -> None:
    assert normalised(np.array([milli]), np.array([ratio])).tolist() == [fine]


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_what_others_gave_away_is_not_shown(origin: int, third_party: int) -> None:
    (shown,) = left_over(np.array([origin]), np.array([third_party])).tolist()
    assert shown == max(origin - third_party, 0)


@pytest.mark.parametrize(
    ("old", "new", "permille", "differ"),
    [(1000, 1100, 100, False), (1000, 1101, 100, True), (0, 1, 100, True), (0, 0, 2000, False),
     (1000, 899, 100, True), (1000, 900, 100, False)],
)  # fmt: skip
def test_changes_beyond_a_share_differ(old: int, new: int, permille: int, differ: bool) -> None:
    assert differs(np.array([old]), np.array([new]), permille).tolist() == [differ]


@given(st.integers(0, 2**53 - 1), st.integers(1, 2**53), st.integers(-1, 1))
def test_quotients_are_those_of_integers(amount: int, parts: int, near: int) -> None:
    close = min(max(amount // parts * parts + near, 0), 2**53 - 1)  # by a whole quotient
    for one in (amount, close):
        assert quotient(np.array([one]), np.array([parts])).tolist() == [one // parts]


@given(st.integers(0, 2**42))
def test_the_minute_of_the_week_is_the_calendars(log_ms: int) -> None:
    at = dt.datetime.fromtimestamp(log_ms // 1000, dt.UTC)
    assert minute_of_week(log_ms) == at.weekday() * 1440 + at.hour * 60 + at.minute


def at(minute: int) -> int:
    """A log time at this minute of a week."""
    return (minute - minute_of_week(0) + WEEK_MINUTES) % WEEK_MINUTES * 60_000


def test_the_largest_open_window_of_the_calendar_counts() -> None:
    peaks = [(600, 660, 100), (630, 700, 250), (10_000, 60, 50)]
    expected = {599: 0, 600: 100, 629: 100, 630: 250, 699: 250, 700: 0, 10_000: 50, 0: 50, 60: 0}
    assert {minute: expected_peak(at(minute), peaks) for minute in expected} == expected
    assert expected_peak(at(600), []) == 0
