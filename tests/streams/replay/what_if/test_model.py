"""The model of suppressed work keeps its promises, whatever the figures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.replay.what_if.model import (
    LATELY_US,
    NO_BOUND,
    Interval,
    Wish,
    held,
    left_of,
    split,
    use,
)
from streams.replay.what_if.tally import bin_of

MILLI = st.integers(0, 256_000)
BOUND = st.one_of(st.just(NO_BOUND), MILLI)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    capacity = draw(st.integers(1_000, 256_000))
    used = draw(st.integers(0, capacity))
    return Interval(
        draw(st.integers(1_000, 60_000_000)), used, draw(st.integers(0, capacity - used)),
        draw(st.integers(0, 10**9)), draw(BOUND), capacity,
    )  # fmt: skip


@given(intervals(), MILLI, st.integers(0, 2 * LATELY_US))
def test_wants_no_less_than_it_used_and_no_more_than_the_machine(
    seen: Interval, free: int, ago_us: int
) -> None:
    wish = Wish(free, 0)
    wants = wish.of(seen, ago_us)
    assert seen.used_milli <= wants <= max(seen.capacity_milli, seen.used_milli)
    if not held(seen):
        assert (wants, wish.free_milli, wish.free_us) == (seen.used_milli, seen.used_milli, ago_us)


def test_held_work_wants_what_it_used_when_it_was_free() -> None:
    wish = Wish()
    free = Interval(1_000_000, 6_000, 0, 0, 8_000, 16_000)
    assert wish.of(free, 1) == 6_000
    cut = Interval(1_000_000, 2_000, 0, 0, 2_000, 16_000)
    assert wish.of(cut, 2) == 6_000
    assert wish.of(cut, 2 + LATELY_US) == 2_000, "ten minutes later nobody knows"


def test_held_work_wants_a_core_for_the_time_a_queue_of_it_waited() -> None:
    cut = Interval(1_000_000, 2_000, 0, 3_500_000, 2_000, 16_000)
    assert Wish().of(cut, 1) == 5_500


@given(intervals(), MILLI, BOUND, MILLI, MILLI)
def test_uses_no_more_than_the_bound_the_machine_and_what_is_wanted(
    seen: Interval, beyond: int, bound: int, more: int, less: int
) -> None:
    wants = seen.used_milli + beyond
    less = min(less, seen.used_milli)
    used = use(seen, wants, bound, more, less)
    assert 0 <= used <= left_of(seen, wants, less) + more or used == seen.used_milli
    assert used <= max(seen.capacity_milli - seen.others_milli, seen.used_milli)
    if bound != seen.bound_milli or more or less:
        assert bound < 0 or used <= bound


@given(intervals(), MILLI, BOUND)
def test_the_same_bound_changes_nothing_and_a_narrower_one_gives_no_more(
    seen: Interval, beyond: int, bound: int
) -> None:
    wants = seen.used_milli + beyond
    assert use(seen, wants, seen.bound_milli) == seen.used_milli
    narrower = bound >= 0 and (seen.bound_milli < 0 or bound <= seen.bound_milli)
    used = use(seen, wants, bound)
    if narrower:
        assert used <= seen.used_milli
    elif seen.bound_milli >= 0 and bound != NO_BOUND:
        assert used >= min(seen.used_milli, bound)


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), min_size=1, max_size=40))
def test_parts_add_up_and_follow_their_weights(total: int, weights: list[int]) -> None:
    parts = split(total, weights)
    assert sum(parts) == total
    assert all(part >= 0 for part in parts)
    if sum(weights):
        assert all(part <= 1 for part, weight in zip(parts, weights, strict=True) if not weight)


@given(MILLI, st.integers(1, 256_000), st.integers(0, 100))
def test_time_above_a_threshold_is_what_the_law_calls_above(
    used: int, capacity: int, percent: int
) -> None:
    above = used > capacity * percent // 100
    assert (bin_of(used, capacity) > percent) == above
