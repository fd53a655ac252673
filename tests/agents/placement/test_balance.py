"""Which nodes are relieved, which take, and who is hot for long enough."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement import anomaly, balance, utilization
from agents.placement.balance import CLASSES, Bounds, Classified, classify
from agents.placement.rules import bounds_of
from agents.table import Bools, Ints
from schemas import policy
from schemas.errors import BadPolicy
from schemas.policy import LowNodeLoad
from tests.agents.placement.fleets import shuffled

BOUNDS = Bounds({"cpu": 30.0, "memory": 40.0}, {"cpu": 60.0, "memory": 80.0}, None, None, False)
PROD = Bounds(BOUNDS.low, BOUNDS.high, {"cpu": 10.0}, {"cpu": 20.0}, False)
WHOLE = np.array([[1000, 1000]])
PERCENT = st.integers(0, 100).map(float)


def kind_of(bounds: Bounds, usage: list[int], prod: list[int], closed: bool = False) -> str:
    answer = classify(bounds, np.array([usage]), np.array([prod]), WHOLE, np.array([closed]))
    return CLASSES[int(answer.kind[0])]


@pytest.mark.parametrize(
    ("bounds", "usage", "prod", "expected"),
    [
        (PROD, [300, 400], [150, 0], "low"),  # equal is still low
        (PROD, [300, 400], [100, 0], "both_low"),
        (PROD, [300, 400], [201, 0], "prod_high"),  # a source, never a target
        (PROD, [301, 400], [150, 0], "normal"),
        (PROD, [301, 400], [100, 0], "prod_low"),
        (PROD, [600, 800], [201, 0], "prod_high"),
        (PROD, [601, 0], [201, 0], "high"),  # relieved for all pods first
        (PROD, [0, 801], [0, 0], "high"),
        (BOUNDS, [300, 400], [300, 400], "both_low"),  # no prod bounds: nothing is beyond them
        (BOUNDS, [-1, 400], [0, 0], "both_low"),  # what is not known is not looked at
    ],
)
def test_classes(bounds: Bounds, usage: list[int], prod: list[int], expected: str) -> None:
    assert kind_of(bounds, usage, prod) == expected


def test_a_node_that_takes_no_pods_is_never_low() -> None:
    assert kind_of(PROD, [300, 400], [100, 0], closed=True) == "normal"
    assert kind_of(PROD, [601, 400], [100, 0], closed=True) == "high"


def test_memory_is_always_named_and_a_resource_without_a_low_bound_is_out_of_it() -> None:
    bounds = Bounds({"cpu": 30.0}, {"cpu": 60.0, "pods": 10.0}, None, None, False)
    assert bounds.names == ("cpu", "memory", "pods")
    low, high = utilization.complete(bounds.low, bounds.high, bounds.names, False)
    assert (low.tolist(), high.tolist()) == ([30.0, 100.0, 100.0], [60.0, 100.0, 100.0])


def test_by_deviation_the_bounds_lie_around_the_mean() -> None:
    bounds = Bounds({"cpu": 10.0}, {"cpu": 20.0}, None, None, True)
    usage = np.array([[100, 0], [500, 900]])
    whole = np.repeat(WHOLE, 2, axis=0)
    answer = classify(bounds, usage, usage * 0, whole, np.array([False, False]))
    assert answer.low.tolist() == [[200, 1000]] * 2
    assert answer.high.tolist() == [[500, 1000]] * 2
    assert [CLASSES[kind] for kind in answer.kind.tolist()] == ["both_low", "prod_low"]
    assert balance.targets(answer.kind).tolist() == [True, False]
    assert balance.room(answer.kind, usage, answer, bounds.names) == {"cpu": 400, "memory": 1000}


def test_an_eviction_names_what_is_over_and_by_how_much() -> None:
    over = utilization.overutilized(
        ("cpu", "memory"), np.array([2000, 500]), np.array([3000, 1000]), np.array([50.0, 50.0])
    )
    assert over == [utilization.Over("cpu", 66.67, 50.0)]


def test_whole_percent_rounds_down_and_leaves_out_what_is_not_allocatable() -> None:
    percent = utilization.whole_percent(np.array([999, 5, 0]), np.array([1000, 0, 10]))
    assert percent.tolist() == [99, -1, 0]


@st.composite
def usages(draw: st.DrawFn) -> tuple[Ints, Ints, Ints, Bools]:
    count = draw(st.integers(1, 6))
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = seed.integers(0, 1 << 40, (count, 2))
    usage = seed.integers(0, whole + 1)
    return usage, seed.integers(0, usage + 1), whole, seed.random(count) < 0.2


@st.composite
def some_bounds(draw: st.DrawFn) -> Bounds:
    each = st.none() | st.fixed_dictionaries({}, optional={"cpu": PERCENT, "memory": PERCENT})
    return Bounds(draw(each), draw(each), draw(each), draw(each), draw(st.booleans()))


@given(usages(), some_bounds(), st.randoms())
def test_nodes_in_any_order_get_the_same_class(
    given_: tuple[Ints, Ints, Ints, Bools], bounds: Bounds, random: Random
) -> None:
    assert bounds.names in (("memory",), ("cpu", "memory"))
    usage, prod, whole, closed = given_
    columns = slice(2 - len(bounds.names), 2)
    usage, prod, whole = usage[:, columns], prod[:, columns], whole[:, columns]
    order = shuffled(len(closed), random)
    before = classify(bounds, usage, prod, whole, closed)
    after = classify(bounds, usage[order], prod[order], whole[order], closed[order])
    for ours, theirs in zip(arrays(before), arrays(after), strict=True):
        assert ours[order].tobytes() == theirs.tobytes()
    for limit in arrays(before)[1:]:
        assert (limit >= 0).all()
        assert (limit <= whole).all()
    assert not (balance.sources(before.kind) & balance.targets(before.kind)).any()
    assert not (balance.targets(before.kind) & closed).any()


def arrays(answer: Classified) -> tuple[Ints, ...]:
    return answer.kind, answer.low, answer.high, answer.prod_low, answer.prod_high


def rounds(consecutive: int, hot: list[bool], cleared: list[bool] | None = None) -> list[bool]:
    """Whether one node is acted on, round by round, a second apart."""
    marks = anomaly.Marks(np.array([0]), np.array([0]))
    acted = []
    for i, is_hot in enumerate(hot):
        gone = np.array([cleared[i] if cleared else False])
        marks = anomaly.mark(marks, i * 1000, np.array([is_hot]), gone, 3000)
        acted.append(bool(anomaly.abnormal(marks, np.array([is_hot]), consecutive)[0]))
    return acted


@pytest.mark.parametrize(
    ("consecutive", "hot", "cleared", "acted"),
    [
        (1, "yn", "nn", "yn"),
        (2, "yyy", "nnn", "nny"),  # more often than twice
        (2, "ynyy", "nnnn", "nnny"),  # neither hot nor low: the marks stay
        (2, "yyyyy", "nnynn", "nnnny"),  # cleared: begins anew, with this mark
        (2, "yynnnyy", "nnnnnnn", "nnnnnnn"),  # three seconds without: forgotten
    ],
)
def test_only_who_is_hot_for_long_enough_is_acted_on(
    consecutive: int, hot: str, cleared: str, acted: str
) -> None:
    def bits(text: str) -> list[bool]:
        return [each == "y" for each in text]

    assert rounds(consecutive, bits(hot), bits(cleared)) == bits(acted)


def test_the_policys_bounds() -> None:
    rule = LowNodeLoad(low_cpu_percent=30, high_cpu_percent=60, prod_high_memory_percent=50)
    assert bounds_of(rule) == Bounds({"cpu": 30.0}, {"cpu": 60.0}, {}, {}, False)
    text = "low_node_load: {prod_low_cpu_percent: 60, prod_high_cpu_percent: 50}"
    with pytest.raises(BadPolicy, match=r"low_node_load\.prod_low_cpu_percent is 60"):
        policy.parse(text, "pilot.yaml")
    text = "low_node_load: {deviation: true, low_cpu_percent: 20, high_cpu_percent: 10}"
    assert policy.parse(text, "pilot.yaml").low_node_load.deviation
