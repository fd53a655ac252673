"""Budgets hold over every window, whatever is asked for and read twice."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_bridge.evictions.budget import Budget, Limits

LIMITS = Limits(per_node=2, per_namespace=3, fleet=4, window_ms=1_000, node_rest_ms=100)
ASKS = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from(["n1", "n2", "n3"]), st.sampled_from("st")),
    max_size=60,
)


@given(ASKS)
def test_no_window_sees_more_than_its_limits(asks: list[tuple[int, str, str]]) -> None:
    budget, now_ms = Budget(LIMITS), 0
    done: list[tuple[int, str, str]] = []
    for number, (step_ms, node, namespace) in enumerate(asks):
        now_ms += step_ms
        if not budget.refusal(now_ms, node, namespace):
            for _ in range(2):  # by ourselves, and as we read it again
                budget.learn(now_ms, node, namespace, str(number))
            done.append((now_ms, node, namespace))
    for start_ms, _, _ in done:
        within = [each for each in done if start_ms <= each[0] < start_ms + 1_000]
        assert len(within) <= 4
        assert max(Counter(node for _, node, _ in within).values()) <= 2
        assert max(Counter(space for _, _, space in within).values()) <= 3
    for node in ("n1", "n2", "n3"):
        times = [at for at, where, _ in done if where == node]
        assert all(b - a >= 100 for a, b in pairwise(times))


def test_what_stands_against_it_is_named() -> None:
    budget = Budget(LIMITS)
    assert not budget.refusal(0, "n1", "s")
    budget.learn(0, "n1", "s", "a")
    assert budget.refusal(50, "n1", "s") == "node_rests"
    budget.learn(100, "n1", "s", "b")
    assert budget.refusal(500, "n1", "t") == "node_budget"
    budget.learn(500, "n2", "s", "c")
    assert budget.refusal(700, "n3", "s") == "namespace_budget"
    budget.learn(700, "n3", "t", "d")
    assert budget.refusal(900, "n4", "t") == "fleet_budget"
    assert not budget.refusal(1_000, "n4", "t")


@pytest.mark.parametrize(
    ("name", "value"),
    [("per_node", 0), ("per_namespace", 100_001), ("fleet", 0), ("window_ms", 999),
     ("node_rest_ms", 60_001)],
)  # fmt: skip
def test_limits_out_of_range_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {value}; allowed: "):
        Limits(**{name: value})
