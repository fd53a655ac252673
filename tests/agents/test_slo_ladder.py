"""The ladder: which class gives how much at which rung, and how it is walked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import slo_ladder
from schemas.policy import SloGuard

ORDERS = st.permutations(["free", "batch", "mid"]).flatmap(
    lambda names: st.integers(0, 3).map(lambda count: tuple(names[:count]))
)
RULES = st.builds(
    SloGuard, order=ORDERS, step_permille=st.integers(1, 1000),
    return_permille=st.integers(1, 1000), most_permille=st.integers(0, 1000),
)  # fmt: skip


def test_free_goes_first_then_batch_then_mid() -> None:
    rule, seen, called = SloGuard(), [], 0
    while called < slo_ladder.bottom(rule):
        called = slo_ladder.down(rule, called)
        seen.append(tuple(slo_ladder.kept(rule, called).values()))
    assert seen == [
        (500, 1000, 1000), (0, 1000, 1000), (0, 500, 1000), (0, 0, 1000), (0, 0, 500), (0, 0, 0),
    ]  # fmt: skip


def test_a_class_that_is_not_named_keeps_all_and_never_more_goes_than_may() -> None:
    rule = SloGuard(order=("batch",), most_permille=300)
    assert slo_ladder.bottom(rule) == 300
    assert slo_ladder.kept(rule, 300) == {"free": 1000, "batch": 700, "mid": 1000}


@given(RULES, st.integers(0, 3000))
def test_steps_lead_to_both_ends_one_class_at_a_time(rule: SloGuard, start: int) -> None:
    bottom = slo_ladder.bottom(rule)
    called, steps = min(start, bottom), 0
    while called < bottom:
        lower = slo_ladder.down(rule, called)
        before, after = slo_ladder.kept(rule, called), slo_ladder.kept(rule, lower)
        assert called < lower <= called + rule.step_permille
        assert sum(before[name] != after[name] for name in before) == 1
        called, steps = lower, steps + 1
    assert slo_ladder.down(rule, bottom) == bottom
    while called > 0:
        higher = slo_ladder.up(rule, called)
        before, after = slo_ladder.kept(rule, called), slo_ladder.kept(rule, higher)
        assert called - rule.return_permille <= higher < called
        assert sum(before[name] != after[name] for name in before) == 1
        called = higher
    assert slo_ladder.up(rule, 0) == 0
    assert set(slo_ladder.kept(rule, 0).values()) == {1000}
    assert steps <= 3 * 1000


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), RULES,
       st.integers(0, 3000), st.integers(0, 3000))  # fmt: skip
def test_the_bound_falls_with_the_rung_and_is_whole_at_the_top(
    whole: int, batch: int, mid: int, rule: SloGuard, one: int, other: int
) -> None:
    def at(called: int) -> int:
        return slo_ladder.bound_milli(whole, batch, mid, slo_ladder.kept(rule, called))

    assert at(0) == whole
    assert 0 <= at(max(one, other)) <= at(min(one, other)) <= whole


@pytest.mark.parametrize(
    ("called", "left"),
    [(0, 4000), (500, 3250), (1000, 2500), (1500, 1750), (2000, 1000), (2500, 500), (3000, 0)],
)
def test_best_effort_work_of_a_class_keeps_what_it_asked_for_until_its_turn(
    called: int, left: int
) -> None:
    """Of 4 cores batch pods ask for 1.5 and mid's for 1; the other 1.5 are free's."""
    shares = slo_ladder.kept(SloGuard(), called)
    assert slo_ladder.bound_milli(4000, 1500, 1000, shares) == left
