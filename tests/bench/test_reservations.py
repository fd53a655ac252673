"""The reservation bench: no policy sees the future, and scores are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from agents.table import Ints
from tests.bench import reservation_policies as policies
from tests.bench.reservations import RECENT, WORTH, score

STEPS = policies.DAY + 40


@pytest.fixture
def usage() -> Ints:
    draw = np.random.default_rng(5)
    values = draw.integers(0, policies.WHOLE, (4, STEPS))
    values[1, 30:50] = policies.MISSING
    return values


def every(usage: Ints) -> list[Ints]:
    largest, ranked = policies.of_window(usage)
    ours = policies.of_price(usage, "cpu", WORTH, (10.0, 40.0), RECENT)
    return [
        largest,
        ranked,
        policies.of_peer(usage, "cpu"),
        policies.of_peer(usage, "memory"),
        *ours,
    ]


def test_no_policy_sees_the_future(usage: Ints) -> None:
    other = usage.copy()
    now = policies.DAY + 10
    other[:, now:] = 1
    for one, two in zip(every(usage), every(other), strict=True):
        assert (one[:, : now + 1] == two[:, : now + 1]).all()


def test_the_window_is_the_last_day_and_gaps_are_left_out(usage: Ints) -> None:
    largest, _ = policies.of_window(usage)
    t = policies.DAY + 20
    assert largest[0, t] == usage[0, t - policies.DAY : t].max()
    assert largest[1, t] == usage[1, t - policies.DAY : t].max()
    assert (largest[:, : policies.LEAST] == policies.WHOLE).all()
    assert largest[1, policies.LEAST + 5] == policies.WHOLE  # twenty values are missing


def test_a_score_counts_from_the_25th_hour() -> None:
    usage = np.full((2, STEPS), 5_000)
    reserved = np.full((2, STEPS), 6_000)
    usage[:, : policies.DAY] = 9_000
    usage[0, -4:] = 7_000
    found = score(usage, reserved)
    assert (found.reserved, found.violations, found.node) == (60.0, 5.0, None)
