"""The reflex's arithmetic: what is normal, what is a jump, and what best-effort work keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.reflex import PPM, Pulse, Usual, cut, is_held_up, is_own_limit, runs_more, wakes_us
from schemas.policy import Reflex

RULE = Reflex()
SECOND_US = 1_000_000
POLL_US = RULE.poll_ms * 1000
STALL_US = POLL_US * RULE.stall_permille // 1000


def learnt(share_permille: int = 0, seconds: int = 10) -> tuple[Pulse, int, int]:
    """A pulse of which so much is known; the counter and the time now."""
    pulse, total_us, now_us = Pulse(), 0, 0
    for _ in range(seconds + 1):
        pulse.learn(total_us, now_us, RULE)
        total_us += share_permille * 1000
        now_us += SECOND_US
    total_us, now_us = total_us - share_permille * 1000, now_us - SECOND_US
    pulse.feel(total_us, now_us, RULE)
    return pulse, total_us, now_us


def looks(pulse: Pulse, total_us: int, now_us: int, *stalls_us: int) -> list[int]:
    """Strikes after each look, one poll apart."""
    found = []
    for stall_us in stalls_us:
        total_us, now_us = total_us + stall_us, now_us + POLL_US
        found.append(pulse.feel(total_us, now_us, RULE))
    return found


def test_so_many_looks_in_a_row_beyond_normal_are_strikes_and_a_calm_one_ends_them() -> None:
    pulse, total_us, now_us = learnt()
    stalls_us = (STALL_US, STALL_US, STALL_US - 1, STALL_US)
    assert looks(pulse, total_us, now_us, *stalls_us) == [1, 2, 0, 1]


def test_strikes_say_how_far_beyond_and_for_how_long() -> None:
    pulse, total_us, now_us = learnt()
    looks(pulse, total_us, now_us, 2 * STALL_US, 3 * STALL_US)
    assert (pulse.beyond_us, pulse.span_us) == (5 * STALL_US, 2 * POLL_US)
    pulse.calm()
    assert (pulse.strikes, pulse.beyond_us, pulse.span_us) == (0, 0, 0)


def test_a_pod_that_always_queues_needs_as_much_more() -> None:
    pulse, total_us, now_us = learnt(share_permille=600)
    assert pulse.normal.ppm == 600_000
    usual_us = POLL_US * 600 // 1000
    beyond_us = usual_us + STALL_US
    assert looks(pulse, total_us, now_us, usual_us, beyond_us, beyond_us) == [0, 1, 2]


def test_of_a_young_pod_nothing_is_known_yet() -> None:
    pulse, total_us, now_us = learnt(seconds=2)
    assert looks(pulse, total_us, now_us, POLL_US, POLL_US) == [0, 0]
    pulse, total_us, now_us = learnt(seconds=3)
    assert looks(pulse, total_us, now_us, POLL_US, POLL_US) == [1, 2]


def test_normal_follows_a_lasting_change_slowly() -> None:
    pulse, total_us, now_us = learnt(seconds=60)
    for _ in range(10):
        total_us, now_us = total_us + SECOND_US, now_us + SECOND_US
        pulse.learn(total_us, now_us, RULE)
    assert 250_000 < pulse.normal.ppm < 350_000  # 1 - (29/30)^10


def test_a_counter_that_fell_begins_anew() -> None:
    pulse, _, now_us = learnt(share_permille=300)
    assert pulse.learn(0, now_us + SECOND_US, RULE) == 0
    assert (pulse.normal.ppm, pulse.normal.known_us) == (0, 0)
    assert looks(pulse, 0, now_us + SECOND_US, POLL_US, POLL_US) == [0, 0]


def test_looks_far_apart_say_nothing_of_this_moment() -> None:
    pulse, total_us, now_us = learnt()
    assert pulse.feel(total_us + SECOND_US, now_us + SECOND_US, RULE) == 0
    assert looks(pulse, total_us + SECOND_US, now_us + SECOND_US, POLL_US, POLL_US) == [1, 2]


def test_a_suspect_is_judged_since_the_last_sample_and_counts_from_there() -> None:
    pulse, total_us, now_us = learnt()
    later_us = now_us + 400_000
    assert pulse.suspect(total_us + STALL_US - 1, later_us, RULE) == 0
    assert pulse.suspect(total_us + STALL_US, later_us, RULE) == 1
    assert pulse.feel(total_us + STALL_US, later_us, RULE) == 1  # the same moment, told twice
    assert looks(pulse, total_us + STALL_US, later_us, STALL_US) == [2]


def test_a_first_look_that_comes_late_may_see_one_polls_worth_the_next_must_see_all() -> None:
    pulse, total_us, now_us = learnt()
    now_us += 4 * POLL_US
    assert pulse.feel(total_us + STALL_US, now_us, RULE) == 1
    now_us += 4 * POLL_US
    assert pulse.feel(total_us + 2 * STALL_US, now_us, RULE) == 0


def test_a_trigger_wakes_for_one_polls_worth_beyond_normal_in_steps() -> None:
    assert wakes_us(0, 500_000, RULE) == 25_000
    assert wakes_us(100_000, 500_000, RULE) == 75_000
    assert wakes_us(101_000, 500_000, RULE) == 75_000


def test_a_pod_that_its_own_quota_stopped_was_not_held_up_by_others() -> None:
    assert is_own_limit(throttled_us=10_000, beyond_us=20_000)
    assert not is_own_limit(throttled_us=9_999, beyond_us=20_000)


def test_a_busier_pod_is_believed_after_two_looks_however_near_the_share() -> None:
    pulse, total_us, now_us = learnt()
    looks(pulse, total_us, now_us, 2 * STALL_US)
    assert not is_held_up(pulse, busier=True, rule=RULE)
    looks(pulse, total_us + 2 * STALL_US, now_us + POLL_US, STALL_US - 1)
    assert not is_held_up(pulse, busier=True, rule=RULE)
    pulse, total_us, now_us = learnt()
    looks(pulse, total_us, now_us, STALL_US, STALL_US)
    assert is_held_up(pulse, busier=True, rule=RULE)


def test_one_that_only_waits_must_be_beyond_by_half_as_much_again_over_all_looks() -> None:
    pulse, total_us, now_us = learnt()
    looks(pulse, total_us, now_us, STALL_US, 2 * STALL_US - 1)
    assert not is_held_up(pulse, busier=False, rule=RULE)
    pulse, total_us, now_us = learnt()
    looks(pulse, total_us, now_us, STALL_US, 2 * STALL_US)
    assert is_held_up(pulse, busier=False, rule=RULE)


def test_a_first_look_that_came_late_counts_with_all_its_time() -> None:
    pulse, total_us, now_us = learnt()
    now_us += 2 * POLL_US
    assert pulse.feel(total_us + STALL_US, now_us, RULE) == 1
    looks(pulse, total_us + STALL_US, now_us, 2 * STALL_US)
    assert not is_held_up(pulse, busier=False, rule=RULE)  # three looks' worth in three polls
    looks(pulse, total_us + 3 * STALL_US, now_us + POLL_US, 3 * STALL_US)
    assert is_held_up(pulse, busier=False, rule=RULE)


def test_busier_is_half_as_much_again_and_twice_the_share_that_stalls_need() -> None:
    least_us = 2 * STALL_US
    assert runs_more(least_us, POLL_US, 0, RULE)
    assert not runs_more(least_us - 1, POLL_US, 0, RULE)
    many_us = 4 * POLL_US  # four CPUs
    assert runs_more(many_us * 3 // 2, POLL_US, 4 * PPM, RULE)
    assert not runs_more(many_us * 3 // 2 - 1, POLL_US, 4 * PPM, RULE)
    assert not runs_more(0, 0, 0, RULE)


def test_cpu_time_may_pass_faster_than_time() -> None:
    use = Usual(1 << 40)
    for second in range(4):
        use.learn(3 * second * SECOND_US, second * SECOND_US, RULE)
    assert use.ppm == 3 * PPM


def test_best_effort_work_keeps_a_share_and_never_less_than_its_floor() -> None:
    assert cut(1200, 10, RULE) == 300
    assert cut(1200, 500, RULE) == 500
    assert cut(1200, 10, Reflex(keep_percent=0)) == 10


@given(
    in_force=st.integers(1, 4_096_000),
    floor=st.integers(0, 4_096_000),
    keep=st.integers(0, 100),
)
def test_a_cut_never_raises_and_never_goes_below_a_floor_that_was_kept(
    in_force: int, floor: int, keep: int
) -> None:
    left = cut(in_force, floor, Reflex(keep_percent=keep))
    assert left <= in_force
    assert left >= min(floor, in_force)


@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)), max_size=30))
def test_whatever_the_counters_do_shares_stay_shares(readings: list[tuple[int, int]]) -> None:
    pulse = Pulse()
    for total_us, mono_us in readings:
        assert 0 <= pulse.learn(total_us, mono_us, RULE) <= PPM
        assert 0 <= pulse.normal.ppm <= PPM
        assert pulse.feel(total_us, mono_us, RULE) == pulse.strikes >= 0
