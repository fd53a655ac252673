"""Fair shares between quotas, trees of them, and who still fits."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement.quota import Group, redistribute, scaled_minimums, split
from agents.placement.quota_admission import admit
from agents.placement.quota_tree import ROOT, Quota, refresh

HUGE = st.integers(0, 2**70)
SMALL = st.integers(0, 60)


@st.composite
def groups(draw: st.DrawFn, amounts: st.SearchStrategy[int] = SMALL) -> list[Group]:
    count = draw(st.integers(1, 6))
    return [
        Group(
            f"g{i}", draw(amounts), draw(amounts), draw(amounts), draw(amounts),
            draw(st.booleans()),
        )
        for i in range(count)
    ]  # fmt: skip


def test_by_weight_and_the_excess_goes_round_again() -> None:
    asked = [Group("a", 1, 10, 0), Group("b", 1, 100, 0), Group("c", 2, 100, 20)]
    # 80 by weight: 20, 20, 40; a is cut to 10, its 10 go 3.3 : 6.7 to b and c.
    assert redistribute(100, asked) == {"a": 10, "b": 23, "c": 67}


def test_whoever_asks_for_less_lends_the_rest_if_it_does() -> None:
    borrower = Group("b", 1, 100, 10)
    assert redistribute(100, [Group("a", 1, 5, 40), borrower]) == {"a": 5, "b": 95}
    assert redistribute(100, [Group("a", 1, 5, 40, lends=False), borrower]) == {"a": 40, "b": 60}
    assert redistribute(100, [Group("a", 1, 50, 0, 40), Group("b", 0, 99, 0)]) == {"a": 50, "b": 0}


def test_equal_remainders_go_by_name() -> None:
    assert split(2, [Group("c", 1, 0, 0), Group("a", 1, 0, 0), Group("b", 1, 0, 0)]) == {
        "a": 1, "b": 1, "c": 0,
    }  # fmt: skip


@given(HUGE, groups(HUGE))
def test_a_split_is_exact_and_within_a_unit_of_the_weights(amount: int, asked: list[Group]) -> None:
    shares = split(amount, asked)
    whole = sum(group.weight for group in asked)
    assert sum(shares.values()) == (amount if whole else 0)
    for group in asked:
        if group.weight:
            assert abs(shares[group.name] - Fraction(amount * group.weight, whole)) < 1


@given(st.integers(0, 300), groups())
def test_nobody_is_below_its_start_and_the_sum_is_the_total_unless_floors_exceed_it(
    total: int, asked: list[Group]
) -> None:
    runtime = redistribute(total, asked)
    floors = 0
    for group in asked:
        start = min(group.floor, group.request) if group.lends else group.floor
        floors += start
        assert start <= runtime[group.name] <= max(group.request, group.floor)
    assert sum(runtime.values()) <= max(total, floors)
    hungry = any(runtime[g.name] < g.request and g.weight for g in asked)
    assert not hungry or sum(runtime.values()) >= total


@given(st.integers(0, 300), st.integers(0, 50), groups())
def test_the_sum_grows_with_the_total_and_one_group_falls_by_roundings_only(
    total: int, more: int, asked: list[Group]
) -> None:
    before, after = redistribute(total, asked), redistribute(total + more, asked)
    assert sum(after.values()) >= sum(before.values())
    for group in asked:
        assert after[group.name] >= before[group.name] - len(asked)


@given(st.integers(0, 2**70), groups(HUGE), st.randoms())
def test_groups_in_any_order_get_the_same(total: int, asked: list[Group], random: Random) -> None:
    before = redistribute(total, asked)
    random.shuffle(asked)
    assert redistribute(total, asked) == before


@given(st.integers(0, 300), st.lists(st.tuples(SMALL, st.booleans()), min_size=1, max_size=6))
def test_minimums_shrink_only_when_they_must_and_only_those_that_may(
    total: int, children: list[tuple[int, bool]]
) -> None:
    minimums, scales = [least for least, _ in children], [does for _, does in children]
    scaled = scaled_minimums(total, minimums, scales)
    assert all(0 <= now <= least for now, least in zip(scaled, minimums, strict=True))
    assert all(
        now == least for now, least, does in zip(scaled, minimums, scales, strict=True) if not does
    )
    fixed = sum(least for least, does in children if not does)
    assert sum(scaled) <= max(total, fixed)
    assert scaled == minimums or sum(minimums) > total


def leaf(name: str, parent: str, request: int, minimum: int = 0, **more: object) -> Quota:
    return Quota(name, parent, {"cpu": 100}, {"cpu": minimum}, {"cpu": request}, **more)  # type: ignore[arg-type]


TREE = (
    leaf("team", ROOT, 0, 40),
    leaf("web", "team", 70, 10),
    leaf("jobs", "team", 90, 30),
    leaf("idle", ROOT, 5, 20),
    leaf("kept", ROOT, 0, 10, lends=False),
)


def test_requests_go_up_and_amounts_come_down_with_their_reason() -> None:
    shares = refresh({"cpu": 100}, TREE, scale_minimums=False)
    assert {name: share.limited_request["cpu"] for name, share in shares.items()} == {
        "team": 100, "web": 70, "jobs": 90, "idle": 5, "kept": 10,
    }  # fmt: skip
    assert {name: share.runtime["cpu"] for name, share in shares.items()} == {
        "team": 85, "web": 32, "jobs": 53, "idle": 5, "kept": 10,
    }  # fmt: skip
    assert {name: share.reason["cpu"] for name, share in shares.items()} == {
        "team": "short", "web": "short", "jobs": "short", "idle": "lends", "kept": "satisfied",
    }  # fmt: skip


def test_minimums_scale_level_by_level() -> None:
    shares = refresh({"cpu": 35}, TREE, scale_minimums=True)
    assert {name: share.effective_min["cpu"] for name, share in shares.items()} == {
        "team": 20, "web": 5, "jobs": 16, "idle": 10, "kept": 5,
    }  # fmt: skip
    assert sum(shares[name].runtime["cpu"] for name in ("team", "idle", "kept")) == 35


def test_a_quota_that_does_not_lend_keeps_its_minimum() -> None:
    own = Quota("a", ROOT, {"cpu": 5}, {"cpu": 10}, {"cpu": 0}, lends=False)
    (share,) = refresh({"cpu": 100}, (own,), scale_minimums=False).values()
    assert (share.runtime, share.reason) == ({"cpu": 10}, {"cpu": "keeps_minimum"})


@given(st.permutations(TREE), st.integers(0, 200), st.booleans())
def test_quotas_in_any_order_get_the_same(order: list[Quota], total: int, scale: bool) -> None:
    shares = refresh({"cpu": total}, order, scale)
    assert shares == refresh({"cpu": total}, TREE, scale)
    assert sum(shares[name].runtime["cpu"] for name in ("web", "jobs")) <= max(
        shares["team"].runtime["cpu"], 40
    )


@pytest.mark.parametrize(
    ("quotas", "says"),
    [
        ([leaf("a", ROOT, 1), leaf("a", ROOT, 2)], "quota a: a second one"),
        ([leaf("root", ROOT, 1)], "quota root: a second one"),
        ([leaf("a", "b", 1)], "quota a: its parents do not lead to root"),
        ([leaf("b", "c", 1), leaf("c", "b", 1), leaf("a", ROOT, 1)], "quota b: its parents"),
    ],
)
def test_trees_that_are_none_are_refused(quotas: list[Quota], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        refresh({"cpu": 1}, quotas, scale_minimums=True)


@pytest.mark.parametrize(
    ("pod", "preemptible", "verdict"),
    [
        ({"cpu": 40}, True, ("fits", "")),
        ({"cpu": 41}, True, ("over_runtime", "cpu")),
        ({"cpu": 20}, False, ("fits", "")),
        ({"cpu": 21}, False, ("over_minimum", "cpu")),
        ({"gpu": 9}, False, ("fits", "")),  # the quota does not name it
        ({"cpu": 99, "memory": 99}, True, ("over_runtime", "cpu")),
        ({"memory": 1}, True, ("over_runtime", "memory")),
    ],
)
def test_who_still_fits(pod: dict[str, int], preemptible: bool, verdict: tuple[str, str]) -> None:
    answer = admit(
        pod, {"cpu": 60, "memory": 50}, {"cpu": 10}, preemptible, {"cpu": 100, "memory": 50},
        {"cpu": 30}, {"memory": 100, "cpu": 100},
    )  # fmt: skip
    assert answer == verdict
    assert answer.admitted == (verdict[0] == "fits")
