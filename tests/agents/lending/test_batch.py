"""Batch: the peer's sum, within its bounds, whoever stands beside whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.classes import DEFAULT_PRIORITY
from agents.lending import batch, needs
from agents.lending.amounts import sums
from agents.lending.needs import LARGEST, REQUEST, USAGE, by_policy, host_use
from agents.table import ABSENT, Ints
from tests.agents.lending.strategies import PERCENT, Fleet, codes, fleets


def amounts(fleet: Fleet, policy: Ints, reclaim: int = 65, cap: int = -1) -> Ints:
    need = by_policy(policy, fleet.usage, fleet.request, fleet.lse)
    total = sums(need, fleet.owner, len(fleet.capacity))
    margin = batch.margin_of(fleet.capacity, reclaim)
    system = batch.system_of(policy, fleet.system)
    amount = batch.lendable(fleet.capacity, margin, system, fleet.reserved, total)
    return np.maximum(batch.capped(amount, fleet.capacity, cap), 0)


@given(fleets(), codes, PERCENT, st.integers(-1, 100))
def test_never_negative_never_above_capacity_or_cap(
    fleet: Fleet, policy: Ints, reclaim: int, cap: int
) -> None:
    amount = amounts(fleet, policy, reclaim, cap)
    assert (amount >= 0).all()
    assert (amount <= fleet.capacity).all()
    if cap >= 0:
        assert (amount * 100 <= fleet.capacity * cap).all()


@given(fleets(), codes, st.integers(0, 10**12))
def test_more_use_never_lends_more(fleet: Fleet, policy: Ints, more: int) -> None:
    before = amounts(fleet, policy)
    busier = replace(fleet, usage=np.where(fleet.usage >= 0, fleet.usage + more, ABSENT))
    assert (amounts(busier, policy) <= before).all()
    assert (amounts(replace(fleet, system=fleet.system + more), policy) <= before).all()
    assert (amounts(replace(fleet, reserved=fleet.reserved + more), policy) <= before).all()


@given(fleets(), codes, st.randoms(use_true_random=False))
def test_permuting_nodes_permutes_amounts(fleet: Fleet, policy: Ints, random: object) -> None:
    order = np.arange(len(fleet.capacity))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = replace(
        fleet, capacity=fleet.capacity[order], system=fleet.system[order],
        reserved=fleet.reserved[order], owner=np.argsort(order)[fleet.owner],
    )  # fmt: skip
    assert amounts(moved, policy).tolist() == amounts(fleet, policy)[order].tolist()


@given(fleets(), codes)
def test_same_input_same_bytes(fleet: Fleet, policy: Ints) -> None:
    assert amounts(fleet, policy).tobytes() == amounts(fleet, policy).tobytes()


@given(
    st.integers(0, 2**50), st.integers(0, 130), st.integers(0, 2**49), st.integers(0, 2**49),
    st.integers(0, 2**49),
)  # fmt: skip
def test_lendable_is_the_peers_formula(
    capacity: int, percent: int, system: int, reserved: int, need: int
) -> None:
    (margin,) = batch.margin_of(np.array([capacity]), percent).tolist()
    assert margin == int(float(capacity) * (float(100 - percent) / 100))
    one = (np.array([v]) for v in (capacity, margin, system, reserved, need))
    assert batch.lendable(*one).tolist() == [capacity - margin - max(system, reserved) - need]


@pytest.mark.parametrize(
    ("usage", "request_", "lse", "expected"),
    [
        ([700, 900], [1000, 800], False, {USAGE: [700, 900], REQUEST: [1000, 800],
         LARGEST: [1000, 900]}),
        ([700, 900], [1000, 800], True, {USAGE: [1000, 900], REQUEST: [1000, 800],
         LARGEST: [1000, 900]}),
        # Nobody reported it: its request stands under every policy, the largest one too.
        ([-1, -1], [1000, 800], False, {USAGE: [1000, 800], REQUEST: [1000, 800],
         LARGEST: [1000, 800]}),
        # Dangling: only the report knows it.
        ([700, 900], [0, 0], False, {USAGE: [700, 900], REQUEST: [0, 0], LARGEST: [700, 900]}),
    ],
)  # fmt: skip
def test_needs_of_one_pod(
    usage: list[int], request_: list[int], lse: bool, expected: dict[int, list[int]]
) -> None:
    for code, need in expected.items():
        policy = np.array([code, code])
        found = by_policy(policy, np.array([usage]), np.array([request_]), np.array([lse]))
        assert found.tolist() == [need]


def test_each_resource_has_its_own_policy() -> None:
    policy = np.array([needs.POLICIES["max_usage_request"], needs.POLICIES["request"]])
    usage, request = np.array([[1500, 900]]), np.array([[1000, 800]])
    assert by_policy(policy, usage, request, np.array([False])).tolist() == [[1500, 800]]
    assert batch.system_of(policy, np.array([[50, 60]])).tolist() == [[50, 0]]


def test_host_applications_count_by_class() -> None:
    numbers = np.array([DEFAULT_PRIORITY[name] for name in ("prod", "mid", "batch", "free", "")])
    usage = np.full((5, 2), 10)
    assert host_use(usage, numbers, DEFAULT_PRIORITY["batch"])[:, 0].tolist() == [10, 10, 0, 0, 0]
    assert host_use(usage, numbers, DEFAULT_PRIORITY["mid"])[:, 0].tolist() == [10, 0, 0, 0, 0]


@pytest.mark.parametrize(("age", "old"), [(-1, True), (0, False), (900, False), (901, True)])
def test_figures_grow_too_old_beyond_the_limit(age: int, old: bool) -> None:
    assert batch.degraded(np.array([age]), 900).tolist() == [old]
