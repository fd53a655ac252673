"""Who goes first: the peer's keys, the cost of lost work, opt-outs, rungs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agents.eviction import labels, ladder, order
from agents.eviction.candidate import Candidate, Work
from agents.table import ABSENT

WORKS = st.builds(
    Work, st.sampled_from([None, True, False]), st.none() | st.integers(-1, 5),
    st.none() | st.integers(0, 2),
)  # fmt: skip
PODS = st.lists(
    st.builds(
        Candidate, st.uuids().map(str), st.sampled_from([0, 3500, 5500, 7500, 9500]),
        st.none() | st.integers(0, 4), st.integers(0, 3), st.just("batch-cpu"), st.booleans(),
        st.booleans(), st.booleans(), st.booleans(),
        st.sampled_from([None, frozenset(), frozenset({"memory"})]), st.integers(-1, 1),
        st.none() | st.integers(0, 2), st.booleans(), st.integers(0, 2), WORKS,
    ),
    max_size=12,
)  # fmt: skip
ORDERS: list[Any] = [
    order.by_size, order.by_share, lambda pods: order.by_size(pods, 1),
    lambda pods: order.by_share(pods, 2),
    lambda pods: order.by_priority(pods, "memory", 7999, by_request=False),
    lambda pods: order.by_priority(pods, "memory", 5999, by_request=True),
]  # fmt: skip


def be(uid: str, priority: int = 5500, used: int | None = None, **more: Any) -> Candidate:
    return Candidate(uid, priority, used, best_effort=True, **more)


def named(pods: list[Candidate]) -> str:
    return "".join(pod.uid for pod in pods)


@pytest.mark.parametrize("by", ORDERS)
@settings(deadline=None)
@given(PODS, st.randoms(use_true_random=False))
def test_every_order_is_total_and_keeps_opt_outs(
    by: Any, pods: list[Candidate], random: Any
) -> None:
    found = by(pods)
    shuffled = list(pods)
    random.shuffle(shuffled)
    assert by(shuffled) == found
    assert not any(pod.opted_out for pod in found)
    assert len({pod.uid for pod in found}) == len(found)


@given(PODS)
def test_by_priority_takes_only_who_offers_itself(pods: list[Candidate]) -> None:
    found = order.by_priority(pods, "memory", 5999, by_request=False)
    for pod in found:
        assert pod.active
        assert pod.opted_in
        assert pod.used is not None
        assert pod.priority <= 5999
        assert pod.policies is None or "memory" in pod.policies
    keys = [(pod.eviction_priority, pod.priority) for pod in found]
    assert keys == sorted(keys)


@given(PODS)
def test_only_best_effort_pods_go_by_size_and_share(pods: list[Candidate]) -> None:
    for found in (order.by_size(pods), order.by_share(pods)):
        assert {pod.uid for pod in found} == {
            pod.uid for pod in pods if pod.best_effort and not pod.opted_out
        }
        assert [pod.priority for pod in found] == sorted(pod.priority for pod in found)


def test_by_size_unknown_sizes_come_last_and_descend() -> None:
    pods = [be("a"), be("b", used=1), be("c", used=9), be("d"), be("e", 3500)]
    assert named(order.by_size(pods)) == "ecbda"


def test_by_share_is_use_per_request() -> None:
    pods = [be("a", used=10, request=100), be("b", used=9, request=10), be("c", used=99)]
    assert named(order.by_share(pods)) == "bac"


def test_by_priority_sub_priority_stands_for_priority() -> None:
    offered: dict[str, Any] = {"opted_in": True, "used": 1}
    pods = [
        Candidate("a", 100, sub_priority=2000, **offered), Candidate("b", 100, **offered),
        Candidate("c", 100, eviction_priority=-1, **offered),
        Candidate("d", 99, eviction_priority=1, **offered),
        Candidate("e", 100, request=5, **offered),
    ]  # fmt: skip
    assert named(order.by_priority(pods, "cpu", 100, by_request=False)) == "cbead"
    assert named(order.by_priority(pods, "cpu", 100, by_request=True)) == "cebad"


def test_cheap_work_goes_before_large_work_of_one_priority() -> None:
    pods = [
        be("a", used=9, work=Work(recoverable=False)), be("b", used=8),
        be("c", used=1, work=Work(recoverable=True, unsaved_ms=500)),
        be("d", used=2, work=Work(unsaved_ms=100)),
        be("e", used=3, work=Work(recoverable=True, retries_left=0)),
    ]  # fmt: skip
    assert named(order.by_size(pods)) == "dcbae"
    assert named(order.by_share(pods)) == "dcbae"
    unsaid = [replace(pod, work=Work()) for pod in pods]
    assert named(order.by_size(unsaid)) == "abedc"


def test_from_a_higher_rung_the_least_tried_go_first() -> None:
    pods = [be("a", 3500, tries=3), be("b", 5500, tries=1), be("c", 7500), be("d", 9500)]
    assert named(order.by_size(pods)) == "abcd"
    assert named(order.by_size(pods, 1)) == "cbad"
    assert named(order.by_size(pods, 2)) == "cdba"


@pytest.mark.parametrize(
    ("fruitless", "patience", "rung"),
    [(0, 3, 0), (2, 3, 0), (3, 3, 1), (6, 3, 2), (99, 3, 2), (9, 0, 0)],
)
def test_rungs_follow_fruitless_orders(fruitless: int, patience: int, rung: int) -> None:
    assert ladder.start_of(fruitless, patience) == rung


@given(st.integers(0, 9), st.integers(ABSENT, 9), st.integers(0, 9))
def test_an_order_is_fruitless_when_the_need_did_not_fall(
    fruitless: int, at_order: int, need: int
) -> None:
    found = ladder.fruitless_after(fruitless, at_order, need)
    assert 0 <= found <= fruitless + 1
    assert (found == fruitless + 1) == (need > 0 and ABSENT != at_order <= need)


@pytest.mark.parametrize(
    ("text", "decimal", "any_base"),
    [
        (None, 0, None), ("7", 7, 7), ("-5", -5, -5), ("+3", 3, 3), ("0x10", 0, 16), ("010", 10, 8),
        ("0b11", 0, 3), ("", 0, None), ("1_0", 0, None), (" 1", 0, None), ("2147483648", 0, None),
        ("-2147483648", -(1 << 31), -(1 << 31)), ("٣", 0, None), ("1\n", 0, None),
        ("9" * 99, 0, None),
    ],
)  # fmt: skip
def test_numbers_on_labels(text: str | None, decimal: int, any_base: int | None) -> None:
    assert labels.eviction_priority(text) == decimal
    assert labels.sub_priority(text) == any_base


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (None, True), ("", False), ('["memory"]', True), ('["Memory"]', False), ("[]", False),
        ('"memory"', False), ('["memory", 1]', False), ("[" * 9999, False), ("null", False),
    ],
)  # fmt: skip
def test_policies_on_annotations(text: str | None, allowed: bool) -> None:
    assert labels.allows(labels.policies(text), "memory") is allowed
    assert labels.opted_in("true")
    assert not labels.opted_in("True")


@given(st.text(max_size=50))
def test_no_text_on_a_label_raises(text: str) -> None:
    assert abs(labels.eviction_priority(text)) <= 1 << 31
    labels.sub_priority(text)
    labels.policies(text)


@given(st.lists(st.tuples(st.integers(0, 1 << 32), st.integers(1, (1 << 32) - 1)), max_size=6))
def test_shares_are_compared_exactly(shares: list[tuple[int, int]]) -> None:
    pods = [be(f"{i}", used=used, request=request) for i, (used, request) in enumerate(shares)]
    exact = sorted(pods, key=lambda pod: (-Fraction(pod.used or 0, pod.request), pod.uid))
    assert order.by_share(pods) == exact
