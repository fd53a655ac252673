"""Which nodes are too loaded for one more pod."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement.load import Reports, stale
from agents.placement.load_filter import (
    ADMIT_STALE,
    AGGREGATED,
    IGNORE_STALE,
    PROD,
    REASONS,
    REJECT_STALE,
    USAGE,
    Filtered,
    Thresholds,
    choose,
    judge,
    percent_used,
    view_of,
)
from agents.placement.rules import aggregation_of, stale_rule_of, thresholds_of
from schemas.policy import LoadAware
from tests.agents.placement.fleets import NOW_MS, TIB, Fleet, fleets, shuffled

NONE = [-1, -1]
POD = np.array([1000, TIB // 100])


def fresh(count: int = 1) -> Reports:
    return Reports(
        np.ones(count, bool),
        np.full(count, NOW_MS),
        np.full(count, 60_000),
        np.zeros((count, 2), dtype=np.int64),
    )


def verdict(
    used: tuple[int, int] = (0, 0), bounds: tuple[int, int] = (65, 95), *,
    reports: Reports | None = None, daemonset: bool = False, old: bool = False,
    rule: int = REJECT_STALE,
) -> str:  # fmt: skip
    answer = judge(
        reports or fresh(), np.array([used]), np.array([0, 0]), np.array([[1000, 1000]]),
        np.array([bounds]), daemonset, np.array([old]), rule,
    )  # fmt: skip
    return REASONS[int(answer.reason[0])]


@pytest.mark.parametrize(
    ("used", "bounds", "reason"),
    [
        ((654, 954), (65, 95), "fits"),
        ((655, 954), (65, 95), "cpu_over"),  # 65.5 rounds up
        ((654, 955), (65, 95), "memory_over"),
        ((900, 990), (65, 95), "cpu_over"),  # cpu is named first
        ((900, 990), (0, 95), "memory_over"),
        ((900, 990), (0, 0), "no_thresholds"),
    ],
)
def test_within_the_bound_in_whole_percent(
    used: tuple[int, int], bounds: tuple[int, int], reason: str
) -> None:
    assert verdict(used, bounds) == reason


def test_the_first_rule_that_applies_names_the_reason() -> None:
    unknown = replace(fresh(), known=np.array([False]))
    empty = replace(fresh(), usage=np.array([NONE]))
    over = (900, 0)
    assert verdict(over, daemonset=True, old=True) == "daemonset"
    assert verdict(over, (0, 0), old=True) == "no_thresholds"
    assert verdict(over, reports=unknown, old=True) == "no_report"
    assert verdict(over, old=True) == "stale"
    assert verdict(over, old=True, rule=ADMIT_STALE) == "stale_admitted"
    assert verdict(over, old=True, rule=IGNORE_STALE) == "cpu_over"
    assert verdict(over, reports=empty, old=True) == "stale"
    assert verdict(over, reports=empty) == "no_report"


@pytest.mark.parametrize(
    ("prod_pod", "prod", "aggregated", "bounds", "group"),
    [
        (True, [50, 0], [60, -1], [50, 0], PROD),
        (False, [50, 0], [60, -1], [60, 0], AGGREGATED),
        (True, NONE, [60, -1], [60, 0], AGGREGATED),
        (True, NONE, NONE, [65, 95], USAGE),
        (False, [50, 0], NONE, [65, 95], USAGE),
    ],
)
def test_groups_of_thresholds(
    prod_pod: bool, prod: list[int], aggregated: list[int], bounds: list[int], group: int
) -> None:
    given_ = Thresholds(np.array([[65, 95]]), np.array([prod]), np.array([aggregated]))
    chosen, groups = choose(given_, prod_pod)
    assert (chosen.tolist(), groups.tolist()) == ([bounds], [group])
    views = [np.full((1, 2), each) for each in (USAGE, PROD, AGGREGATED)]
    assert view_of(groups, *views).tolist() == [[group, group]]


def test_a_node_may_set_a_group_of_its_own_as_a_whole() -> None:
    base = thresholds_of(LoadAware(prod_cpu_percent=50), 2)
    said = Thresholds(
        np.array([NONE, [40, -1]]), np.array([[0, 70], NONE]), np.array([NONE, [60, 60]])
    )
    merged = base.overlaid(said)
    assert merged.usage.tolist() == [[65, 95], [40, -1]]
    assert merged.prod.tolist() == [[0, 70], [50, 0]]
    assert merged.aggregated.tolist() == [NONE, [60, 60]]


def test_halves_go_up_but_not_what_lies_just_below() -> None:
    used = np.array([1, 5, 2**52 - 1])
    assert percent_used(used, np.array([200, 1000, 2**53 * 100])).tolist() == [1, 1, 0]
    assert percent_used(np.array([5]), np.array([0])).tolist() == [0]


def test_the_policys_thresholds_and_what_it_does_with_stale_nodes() -> None:
    found = thresholds_of(LoadAware(prod_cpu_percent=50), 2)
    assert found.usage.tolist() == [[65, 95]] * 2
    assert found.prod.tolist() == [[50, 0]] * 2
    assert found.aggregated.tolist() == [NONE] * 2
    assert aggregation_of(LoadAware()) == "p95"
    assert aggregation_of(LoadAware(aggregation_percentile=0)) == "avg"
    assert stale_rule_of(LoadAware()) == REJECT_STALE
    assert stale_rule_of(LoadAware(reject_stale=False)) == ADMIT_STALE
    assert stale_rule_of(LoadAware(reject_stale=False, stale_keep_permille=1000)) == IGNORE_STALE


def filtered(fleet: Fleet, rule: int) -> Filtered:
    bounds = np.tile(np.array([65, 95]), (len(fleet.allocatable), 1))
    return judge(
        fleet.reports, fleet.view, POD, fleet.allocatable, bounds, False,
        stale(fleet.reports, NOW_MS, 180_000), rule,
    )  # fmt: skip


@given(fleets(), st.integers(0, 90_000), st.integers(0, TIB), st.integers(0, 2))
def test_more_usage_admits_no_other_node(fleet: Fleet, milli: int, size: int, rule: int) -> None:
    before = filtered(fleet, rule)
    after = filtered(fleet.busier(np.array([milli, size])), rule)
    assert not (after.admitted & ~before.admitted).any()
    assert (after.percent >= before.percent).all()


@given(fleets(), st.randoms(), st.integers(0, 2))
def test_nodes_in_any_order_get_the_same_answer(fleet: Fleet, random: Random, rule: int) -> None:
    order = shuffled(len(fleet.allocatable), random)
    before, after = filtered(fleet, rule), filtered(fleet.permuted(order), rule)
    assert before.reason[order].tolist() == after.reason.tolist()
    assert before.percent[order].tolist() == after.percent.tolist()


@given(fleets())
def test_the_stale_rules_are_ordered(fleet: Fleet) -> None:
    reject, admit = filtered(fleet, REJECT_STALE), filtered(fleet, ADMIT_STALE)
    ignore = filtered(fleet, IGNORE_STALE)
    assert not (reject.admitted & ~ignore.admitted).any()
    assert not (ignore.admitted & ~admit.admitted).any()
