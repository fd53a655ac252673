"""How good nodes are for one more pod."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement.load import Reports, stale
from agents.placement.load_score import MOST, REASONS, Scored, score
from tests.agents.placement.fleets import NOW_MS, TIB, Fleet, fleets, shuffled

FRESH = Reports(np.array([True]), np.array([NOW_MS]), np.array([60_000]), np.array([[0, 0]]))
PERMILLE = st.integers(0, 1000)
WEIGHT = st.integers(0, 100)


def one(
    used: tuple[int, int], weights: tuple[int, int] = (1, 1), dominant: int = 0, *,
    reports: Reports = FRESH, old: bool = False, ill: bool = False, stale_keep: int = 0,
) -> Scored:  # fmt: skip
    return score(
        reports, np.array([used]), np.array([100, 0]), np.array([[1000, 1000]]), weights, dominant,
        np.array([old]), np.array([ill]), stale_keep, 500,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("used", "weights", "dominant", "expected"),
    [
        ((0, 0), (1, 1), 0, 95),
        ((400, 0), (1, 1), 0, 75),
        ((400, 0), (1, 0), 0, 50),
        ((400, 0), (1, 1), 2, 62),  # (50 + 100 + 2 x 50) / 4
        ((400, 0), (0, 0), 1, 50),
        ((400, 0), (0, 0), 0, 0),
        ((900, 0), (1, 0), 0, 0),
        ((901, 0), (1, 0), 0, 0),  # exceeded
        ((899, 996), (1, 1), 0, 0),  # fractions are dropped, each and in all
    ],
)
def test_the_formula(
    used: tuple[int, int], weights: tuple[int, int], dominant: int, expected: int
) -> None:
    assert one(used, weights, dominant).score.tolist() == [expected]


@pytest.mark.parametrize(
    ("old", "ill", "stale_keep", "expected", "reason"),
    [
        (False, False, 0, 75, "scored"),
        (False, True, 0, 37, "ill"),
        (True, False, 0, 0, "stale"),  # as the peer
        (True, False, 800, 60, "stale"),
        (True, False, 1000, 75, "stale"),
        (True, True, 800, 30, "stale_and_ill"),
    ],
)
def test_ill_and_stale_nodes_are_weighed_down_by_name(
    old: bool, ill: bool, stale_keep: int, expected: int, reason: str
) -> None:
    answer = one((400, 0), old=old, ill=ill, stale_keep=stale_keep)
    assert answer.score.tolist() == [expected]
    assert REASONS[int(answer.reason[0])] == reason
    assert answer.terms["plain"].tolist() == [75]
    assert answer.terms["cpu"].tolist() == [50]
    assert answer.terms["memory"].tolist() == [100]


def test_a_node_without_a_report_scores_nothing() -> None:
    for reports in (
        replace(FRESH, known=np.array([False])),
        replace(FRESH, usage=np.array([[-1, -1]])),
    ):
        answer = one((0, 0), reports=reports)
        assert (answer.score.tolist(), REASONS[int(answer.reason[0])]) == ([0], "no_report")


def scored(fleet: Fleet, weights: tuple[int, int], dominant: int, keep: int) -> Scored:
    ill = fleet.allocatable[:, 0] % 2 == 0
    return score(
        fleet.reports, fleet.view, np.array([1000, TIB // 100]), fleet.allocatable, weights,
        dominant, stale(fleet.reports, NOW_MS, 180_000), ill, keep, 500,
    )  # fmt: skip


@given(fleets(), WEIGHT, WEIGHT, WEIGHT, PERMILLE, st.integers(0, 50_000), st.integers(0, TIB))
def test_scores_lie_within_0_and_100_and_fall_with_usage(
    fleet: Fleet, cpu: int, memory: int, dominant: int, keep: int, milli: int, size: int
) -> None:
    before = scored(fleet, (cpu, memory), dominant, keep)
    after = scored(fleet.busier(np.array([milli, size])), (cpu, memory), dominant, keep)
    assert (before.score >= 0).all()
    assert (before.score <= MOST).all()
    assert (after.score <= before.score).all()


@given(fleets(), st.randoms(), PERMILLE)
def test_nodes_in_any_order_score_the_same(fleet: Fleet, random: Random, keep: int) -> None:
    order = shuffled(len(fleet.allocatable), random)
    before, after = scored(fleet, (2, 1), 1, keep), scored(fleet.permuted(order), (2, 1), 1, keep)
    assert before.score[order].tobytes() == after.score.tobytes()
    assert before.reason[order].tobytes() == after.reason.tobytes()
    for name, column in before.terms.items():
        assert column[order].tobytes() == after.terms[name].tobytes()
