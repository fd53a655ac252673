"""What is told, when and in which order: field cases and properties of the pure reconcile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.capacity_record import REASONS
from scheduler_bridge.reconcile import (
    UNSURE_REASONS,
    Amount,
    Desired,
    Observed,
    Patch,
    Rules,
    changed,
    fall_permille,
    reconcile,
)

GIB = 1 << 30
RULES = Rules()
NOW = 10_000_000


def want(
    cpu: int, memory: int = GIB, *, new_work: bool = True, reason: str = "usage", age_ms: int = 0
) -> Desired:
    return Desired(Amount(cpu, memory), new_work, reason, (1, 100), NOW - age_ms, "abc")


def shown(
    cpu: int, memory: int = GIB, *, new_work: bool = True, offset: int = 90, told_ms: int = 0
) -> Observed:
    return Observed(Amount(cpu, memory), new_work, (1, offset), NOW - told_ms, NOW - told_ms)


def one(
    desired: Desired | None, observed: Observed | None, lent: Amount | None = None
) -> Patch | None:
    patches = reconcile(
        {} if desired is None else {"n": desired},
        {} if observed is None else {"n": observed},
        {} if lent is None else {"n": lent},
        NOW,
        RULES,
    )
    assert len(patches) <= 1
    return patches[0] if patches else None


def test_case_27_zero_to_some_once_then_nothing_for_equal_and_small() -> None:
    state = shown(0)
    first = one(want(3000), state)
    assert first is not None
    assert (first.amount.cpu_milli, first.why) == (3000, "rise")
    state = first.applied()
    assert one(want(3000), state) is None
    assert one(want(3050), state) is None


def test_case_29_a_reset_node_is_told_again_at_once() -> None:
    patch = one(want(4000), shown(0, 0), Amount(4000, GIB))
    assert patch is not None
    assert patch.amount.cpu_milli >= 4000


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1000, 1100, False),  # exactly 10 %: not beyond
        (1000, 1101, True),
        (1000, 900, False),
        (1000, 899, True),
        (500, 560, False),  # 12 %, but under the absolute mark of 100
        (500, 600, True),
        (0, 1, True),
        (50, 0, True),
        (0, 0, False),
        (700, 700, False),
    ],
)
def test_threshold_is_strict_and_absolute(old: int, new: int, expected: bool) -> None:
    assert changed(old, new, RULES.change_permille, RULES.least_cpu_milli) is expected


def test_first_value_always_even_zero() -> None:
    patch = one(want(0, 0), None)
    assert patch is not None
    assert (patch.why, patch.previous) == ("first", None)


def test_memory_alone_is_enough() -> None:
    patch = one(want(4000, 3 * GIB), shown(4000, 2 * GIB))
    assert patch is not None
    assert patch.why == "rise"


def test_forced_refresh_after_300_s_and_not_before() -> None:
    assert one(want(4000), shown(4000, told_ms=299_999)) is None
    patch = one(want(4000), shown(4000, told_ms=300_000))
    assert patch is not None
    assert patch.why == "refresh"


def test_new_work_flips_at_once() -> None:
    patch = one(want(4000, new_work=False), shown(4000))
    assert patch is not None
    assert (patch.why, patch.new_work) == ("new_work", False)


def test_stale_capacity_is_withdrawn_to_what_is_lent() -> None:
    patch = one(want(8000, age_ms=900_000), shown(8000), Amount(2000, GIB // 2))
    assert patch is not None
    assert (patch.why, patch.amount, patch.new_work) == ("stale", Amount(2000, GIB // 2), False)
    assert one(want(8000, age_ms=899_999), shown(8000)) is None


def test_stale_capacity_without_a_ledger_is_kept_without_new_work() -> None:
    patch = one(want(8000, age_ms=900_000), shown(8000))
    assert patch is not None
    assert (patch.amount, patch.new_work) == (Amount(8000, GIB), False)


def test_a_low_number_of_stale_data_is_refused() -> None:
    patch = one(want(500, reason="stale"), shown(8000), Amount(4000, GIB))
    assert patch is not None
    assert (patch.amount, patch.new_work, patch.why) == (Amount(4000, GIB), False, "held")
    kept = one(want(500, reason="stale"), shown(8000))
    assert kept is not None
    assert (kept.amount.cpu_milli, kept.new_work) == (8000, False)


def test_a_real_fall_below_what_is_lent_is_told_as_it_is() -> None:
    patch = one(want(500), shown(8000), Amount(4000, GIB))
    assert patch is not None
    assert (patch.amount.cpu_milli, patch.why) == (500, "fall")


def test_an_older_cause_never_wins() -> None:
    assert one(want(9000), shown(4000, offset=101)) is None
    newer = replace(want(9000), order=(2, 0))
    assert one(newer, shown(4000, offset=101)) is not None


def test_a_node_whose_record_is_gone_ages_and_is_withdrawn_across_refreshes() -> None:
    told = Observed(Amount(8000, GIB), True, (1, 5), seen_ms=NOW - 800_000, at_ms=NOW - 400_000)
    refresh = one(None, told)
    assert refresh is not None
    assert (refresh.why, refresh.seen_ms) == ("refresh", NOW - 800_000)
    late = reconcile({}, {"n": refresh.applied()}, {"n": Amount(0, 0)}, NOW + 100_000, RULES)
    assert [(p.why, p.amount) for p in late] == [("stale", Amount(0, 0))]


def test_removed_capacity_is_withdrawn_at_once() -> None:
    patch = one(replace(want(8000), removed=True), shown(8000), Amount(0, 0))
    assert patch is not None
    assert (patch.why, patch.amount.cpu_milli) == ("removed", 0)


def test_every_doubt_of_the_law_is_known_here() -> None:
    assert set(REASONS) - {"", "disabled"} <= UNSURE_REASONS


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed"):
        Rules(refresh_ms=900_000)
    with pytest.raises(ValueError, match="allowed"):
        Rules(change_permille=-1)


amounts = st.builds(Amount, st.integers(0, 64_000), st.integers(0, 256 * GIB))
orders = st.tuples(st.integers(1, 2), st.integers(0, 50))
reasons = st.sampled_from(["usage", "stale", "cold", "no_change"])
wanted = st.builds(
    Desired,
    amounts,
    st.booleans(),
    reasons,
    orders,
    st.integers(NOW - 1_800_000, NOW),
    st.just("abc"),
    st.booleans(),
)
observeds = st.builds(
    Observed,
    amounts,
    st.booleans(),
    orders,
    st.integers(NOW - 1_800_000, NOW),
    st.integers(NOW - 600_000, NOW),
)
nodes = st.sampled_from([f"node-{i}" for i in range(8)])
worlds = st.tuples(
    st.dictionaries(nodes, wanted),
    st.dictionaries(nodes, observeds),
    st.dictionaries(nodes, amounts),
)


@given(worlds)
def test_falls_first_and_the_largest_first(
    world: tuple[dict[str, Desired], dict[str, Observed], dict[str, Amount]],
) -> None:
    depths = [
        0 if p.previous is None else fall_permille(p.previous, p.amount)
        for p in reconcile(*world, NOW, RULES)
    ]
    assert depths == sorted(depths, reverse=True)


@given(worlds)
def test_applied_patches_leave_nothing_to_do(
    world: tuple[dict[str, Desired], dict[str, Observed], dict[str, Amount]],
) -> None:
    desired, observed, lent = world
    patches = reconcile(desired, observed, lent, NOW, RULES)
    after = observed | {p.node: p.applied() for p in patches}
    assert reconcile(desired, after, lent, NOW, RULES) == []


@given(worlds)
def test_numbers_are_whole_and_never_negative_and_orders_never_fall(
    world: tuple[dict[str, Desired], dict[str, Observed], dict[str, Amount]],
) -> None:
    desired, observed, lent = world
    for patch in reconcile(desired, observed, lent, NOW, RULES):
        for number in (patch.amount.cpu_milli, patch.amount.memory_bytes):
            assert type(number) is int
            assert number >= 0
        if patch.node in observed:
            assert patch.order >= observed[patch.node].order


@given(worlds)
def test_the_answer_does_not_depend_on_the_order_of_the_maps(
    world: tuple[dict[str, Desired], dict[str, Observed], dict[str, Amount]],
) -> None:
    turned = [dict(reversed(part.items())) for part in world]
    assert reconcile(*world, NOW, RULES) == reconcile(turned[0], turned[1], turned[2], NOW, RULES)  # type: ignore[arg-type]


@given(worlds)
def test_unsure_or_silent_numbers_never_go_below_what_is_lent(
    world: tuple[dict[str, Desired], dict[str, Observed], dict[str, Amount]],
) -> None:
    desired, observed, lent = world
    for patch in reconcile(desired, observed, lent, NOW, RULES):
        floor = lent.get(patch.node)
        if floor is not None and patch.why in {"stale", "held", "removed"}:
            assert patch.amount.cpu_milli >= floor.cpu_milli
            assert patch.amount.memory_bytes >= floor.memory_bytes
            assert not patch.new_work


def test_mid_falls_first_is_held_in_doubt_and_told_by_itself() -> None:
    both = replace(want(8000), amount=Amount(8000, GIB, 2000, GIB))
    lower = replace(both, amount=Amount(8000, GIB, 500, GIB))
    told = replace(shown(8000), amount=both.amount)
    assert one(both, told) is None
    patch = one(lower, told)
    assert patch is not None
    assert (patch.why, patch.amount.mid_cpu_milli) == ("fall", 500)
    held = one(replace(lower, reason="silent"), told, Amount(0, 0, 1500, 0))
    assert held is not None
    assert (held.why, held.amount) == ("held", Amount(8000, GIB, 1500, GIB))


def offering(cpu: int, offered: int, *, new_work: bool) -> Observed:
    return replace(shown(cpu, new_work=new_work), offered=Amount(offered, GIB))


def test_without_new_work_no_more_is_offered_than_is_lent() -> None:
    patch = one(want(4000, new_work=False), offering(4000, 4000, new_work=True), Amount(1500, GIB))
    assert patch is not None
    assert patch.amount.cpu_milli == 4000
    assert patch.offered == Amount(1500, GIB)
    assert one(want(4000, new_work=False), patch.applied(), Amount(1500, GIB)) is None


def test_what_is_given_back_is_not_offered_again_without_new_work() -> None:
    closed = offering(4000, 1500, new_work=False)
    patch = one(want(4000, new_work=False), closed, Amount(1400, GIB))
    assert patch is not None, "7 % less is less"
    assert patch.offered.cpu_milli == 1400


def test_where_nobody_knows_what_is_lent_all_is_offered() -> None:
    patch = one(want(4000, new_work=False), offering(4000, 4000, new_work=True))
    assert patch is not None
    assert patch.offered == patch.amount


def test_new_work_offers_all_again() -> None:
    patch = one(want(4000), offering(4000, 1500, new_work=False), Amount(1500, GIB))
    assert patch is not None
    assert (patch.offered.cpu_milli, patch.new_work, patch.why) == (4000, True, "new_work")


def test_a_wipe_of_what_is_offered_alone_is_seen() -> None:
    patch = one(want(4000), offering(4000, 0, new_work=True))
    assert patch is not None
    assert patch.offered.cpu_milli == 4000


def test_what_was_wiped_comes_before_rises_and_after_falls() -> None:
    desired = {name: want(4000) for name in "abc"}
    observed = {"a": shown(1000), "b": shown(0, 0), "c": shown(8000)}
    patches = reconcile(desired, observed, {"b": Amount(500, GIB)}, NOW, RULES)
    assert [(patch.node, patch.why) for patch in patches] == [
        ("c", "fall"), ("b", "restored"), ("a", "rise"),
    ]  # fmt: skip


def test_zones_offer_nothing_without_new_work() -> None:
    desired = replace(want(4000), zones=((3000, GIB), (1000, GIB)))
    patch = one(desired, None)
    assert patch is not None
    assert patch.zones == ((3000, GIB), (1000, GIB))
    patch = one(replace(desired, new_work=False), None)
    assert patch is not None
    assert patch.zones == ((0, 0), (0, 0))


def test_what_only_grew_old_waits_for_what_changed() -> None:
    desired = {name: want(4000) for name in "ab"}
    observed = {"a": shown(4000, told_ms=400_000), "b": shown(1000)}
    patches = reconcile(desired, observed, {}, NOW, RULES)
    assert [(patch.node, patch.why) for patch in patches] == [("b", "rise"), ("a", "refresh")]


def test_of_what_only_grew_old_the_oldest_goes_first() -> None:
    desired = {name: want(4000) for name in "abc"}
    ages_ms = {"a": 310_000, "b": 330_000, "c": 320_000}
    observed = {name: shown(4000, told_ms=age_ms) for name, age_ms in ages_ms.items()}
    patches = reconcile(desired, observed, {}, NOW, RULES)
    assert [patch.node for patch in patches] == ["b", "c", "a"]
