"""The peak predictor: both models, its safety, and its order of questions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.prediction import peak
from agents.table import ABSENT

DAY_S = 86_400
MARGIN = 10
GIB = 1 << 30


@st.composite
def worlds(draw: st.DrawFn) -> tuple[np.ndarray, peak.Pods]:
    nodes, pods = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    amount = st.tuples(st.integers(0, 4000), st.integers(0, 8 * GIB))
    some = st.one_of(amount, st.just((ABSENT, ABSENT)))

    def many(what: st.SearchStrategy[object], shape: tuple[int, ...]) -> np.ndarray:
        values = draw(st.lists(what, min_size=shape[0], max_size=shape[0]))
        return np.array(values, dtype=np.int64).reshape(shape)

    return many(amount, (nodes, 2)) * 5, peak.Pods(
        owner=many(st.integers(0, nodes - 1), (pods,)),
        request=many(amount, (pods, 2)),
        percentile=many(some, (pods, 2)),
        age_s=many(st.sampled_from([60, DAY_S, DAY_S + 1]), (pods,)),
        ending=many(st.booleans(), (pods,)).astype(np.bool_),
    )


def one_pod(age_s: int, *, ending: bool = False, percentile: tuple[int, int]) -> peak.Pods:
    return peak.Pods(
        owner=np.array([0]),
        request=np.array([[2000, 4 * GIB]]),
        percentile=np.array([percentile]),
        age_s=np.array([age_s]),
        ending=np.array([ending]),
    )


NODE = np.array([[8000, 16 * GIB]])


def test_a_warm_pod_gives_what_lies_above_its_peak() -> None:
    answer = peak.by_pod(NODE, one_pod(DAY_S + 1, percentile=(1000, GIB)), MARGIN, DAY_S)
    assert answer.peak.tolist() == [[1100, int(GIB * 1.1)]]
    assert answer.reclaimable.tolist() == [[900, 4 * GIB - int(GIB * 1.1)]]


def test_a_cold_pod_gives_nothing_even_while_it_ends() -> None:
    for ending in (False, True):
        answer = peak.by_pod(NODE, one_pod(DAY_S, ending=ending, percentile=(1, 1)), MARGIN, DAY_S)
        assert answer.peak.tolist() == [[2000, 4 * GIB]]
        assert answer.reclaimable.tolist() == [[0, 0]]


def test_an_ending_pod_is_gone_and_one_without_a_model_keeps_its_request() -> None:
    gone = peak.by_pod(NODE, one_pod(DAY_S + 1, ending=True, percentile=(1, 1)), MARGIN, DAY_S)
    assert gone.peak.tolist() == [[0, 0]]
    unknown = one_pod(DAY_S + 1, percentile=(ABSENT, ABSENT))
    assert peak.by_pod(NODE, unknown, MARGIN, DAY_S).peak.tolist() == [[2000, 4 * GIB]]


def test_the_lesser_of_both_models_counts() -> None:
    pods = one_pod(DAY_S + 1, percentile=(1000, GIB))
    whole = peak.by_class(NODE, pods, np.array([[500, 2 * GIB]]), MARGIN, DAY_S)
    assert whole.reclaimable.tolist() == [[1450, 4 * GIB - int(2 * GIB * 1.1)]]
    both = peak.lesser(peak.by_pod(NODE, pods, MARGIN, DAY_S), whole)
    assert both.reclaimable.tolist() == [[900, whole.reclaimable[0, 1]]]
    assert both.peak.tolist() == [[1100, int(2 * GIB * 1.1)]]


def test_without_a_model_of_a_class_nothing_is_given() -> None:
    pods = one_pod(DAY_S + 1, percentile=(1000, GIB))
    nothing = peak.by_class(NODE, pods, np.array([[ABSENT, ABSENT]]), MARGIN, DAY_S)
    assert (nothing.reclaimable.tolist(), nothing.peak.tolist()) == ([[0, 0]], [[0, 0]])


def test_a_request_counts_for_its_class_unless_the_pod_lost_its_model() -> None:
    models = np.array([[500, GIB]])
    for age_s, percentile, left in (
        (DAY_S, ABSENT, 1450), (DAY_S + 1, 1000, 1450), (DAY_S + 1, ABSENT, 0),
    ):  # fmt: skip
        pods = one_pod(age_s, percentile=(percentile, percentile))
        assert peak.by_class(NODE, pods, models, MARGIN, DAY_S).reclaimable[0, 0] == left


@given(worlds())
def test_never_negative_and_never_above_the_node_or_the_requests(
    world: tuple[np.ndarray, peak.Pods],
) -> None:
    allocatable, pods = world
    models = np.zeros_like(allocatable)
    for answer in (
        peak.by_pod(allocatable, pods, MARGIN, DAY_S),
        peak.by_class(allocatable, pods, models, MARGIN, DAY_S),
    ):
        assert (answer.reclaimable >= 0).all()
        assert (answer.reclaimable <= allocatable).all()
        for unit in range(2):
            most = np.bincount(pods.owner, pods.request[:, unit], len(allocatable))
            assert (answer.reclaimable[:, unit] <= most).all()


@given(worlds(), st.integers(0, 3000))
def test_a_higher_peak_never_gives_more(world: tuple[np.ndarray, peak.Pods], more: int) -> None:
    allocatable, pods = world
    raised = np.where(pods.percentile == ABSENT, ABSENT, pods.percentile + more)
    higher = peak.Pods(pods.owner, pods.request, raised, pods.age_s, pods.ending)
    before = peak.by_pod(allocatable, pods, MARGIN, DAY_S)
    after = peak.by_pod(allocatable, higher, MARGIN, DAY_S)
    assert (after.reclaimable <= before.reclaimable).all()
    assert (after.peak >= before.peak).all()


@given(worlds())
def test_the_order_of_pods_does_not_matter(world: tuple[np.ndarray, peak.Pods]) -> None:
    allocatable, pods = world
    order = np.arange(len(pods.owner))[::-1]
    shuffled = peak.Pods(
        pods.owner[order], pods.request[order], pods.percentile[order],
        pods.age_s[order], pods.ending[order],
    )  # fmt: skip
    one = peak.by_pod(allocatable, pods, MARGIN, DAY_S)
    other = peak.by_pod(allocatable, shuffled, MARGIN, DAY_S)
    assert (one.reclaimable == other.reclaimable).all()
    assert (one.peak == other.peak).all()
