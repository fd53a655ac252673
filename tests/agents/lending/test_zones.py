"""NUMA zones: parts add up to no less than the whole, and each zone stays within itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.lending import batch
from agents.lending.zones import FINE, Zones, fine, lendable, split
from agents.table import Ints
from tests.agents.lending.strategies import Fleet, fleets, pairs

COUNTS = st.lists(st.integers(1, 5), min_size=4, max_size=4)


def zones_of(fleet: Fleet, counts: list[int]) -> Zones:
    return Zones.of(np.array(counts[: len(fleet.capacity)], dtype=np.int64))


@given(fleets(), COUNTS)
def test_parts_are_rounded_up_and_add_up(fleet: Fleet, counts: list[int]) -> None:
    zones = zones_of(fleet, counts)
    parts = split(fine(fleet.request), fleet.masks, fleet.owner, zones)
    for node in range(len(fleet.capacity)):
        mine = fine(fleet.request)[fleet.owner == node]
        total, whole = parts[zones.node == node].sum(axis=0), mine.sum(axis=0)
        assert (total >= whole).all()
        assert (total <= whole + len(mine) * counts[node]).all()


@given(fleets(), COUNTS, st.data())
def test_a_zone_lends_nothing_it_has_not(
    fleet: Fleet, counts: list[int], data: st.DataObject
) -> None:
    zones = zones_of(fleet, counts)
    capacity: Ints = data.draw(pairs(len(zones.node)))
    margin = batch.margin_of(capacity, 65)

    def amounts(usage: Ints, cap: int) -> Ints:
        need = split(fine(usage), fleet.masks, fleet.owner, zones)
        found = lendable(capacity, margin, fleet.system, fleet.reserved, need, zones, cap)
        return np.maximum(found, 0)

    before = amounts(fleet.request, -1)
    assert (before <= fine(capacity)).all()
    assert (amounts(fleet.request + 10**9, -1) <= before).all()
    assert (amounts(fleet.request, 20) * 100 <= fine(capacity) * 20).all()
    assert amounts(fleet.request, -1).tobytes() == before.tobytes()


@given(fleets(), COUNTS)
def test_permuting_pods_changes_nothing(fleet: Fleet, counts: list[int]) -> None:
    zones = zones_of(fleet, counts)
    turned = replace(
        fleet, request=fleet.request[::-1], masks=fleet.masks[::-1], owner=fleet.owner[::-1]
    )
    one, two = (split(fine(f.request), f.masks, f.owner, zones) for f in (fleet, turned))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize(
    ("mask", "count", "parts"),
    [(0, 3, [334, 334, 334]), (0b10, 3, [0, 1000, 0]), (0b101, 3, [500, 0, 500]),
     (0b1000, 3, [334, 334, 334]), (0b1001, 3, [1000, 0, 0]), (0, 1, [1000])],
)  # fmt: skip
def test_a_pod_is_divided_over_the_zones_that_exist(
    mask: int, count: int, parts: list[int]
) -> None:
    zones = Zones.of(np.array([count]))
    found = split(np.array([[1000, 1]]), np.array([mask]), np.array([0]), zones)
    assert found[:, 0].tolist() == parts


def test_bytes_are_divided_in_thousandths() -> None:
    zones = Zones.of(np.array([3]))
    found = split(fine(np.array([[0, 10]])), np.array([0]), np.array([0]), zones)
    assert found[:, 1].tolist() == [3334, 3334, 3334]
    assert FINE.tolist() == [1, 1000]


def test_shares_of_a_zone_are_cut_to_whole_bytes_as_the_nodes_are() -> None:
    zones, capacity = Zones.of(np.array([1])), np.array([[0, 1001]])
    nothing = np.zeros((1, 2), dtype=np.int64)
    margin = batch.margin_of(capacity, 63)
    found = lendable(capacity, margin, nothing, nothing, nothing, zones, -1)
    assert found[0, 1] == (1001 - 370) * 1000
    found = lendable(capacity, nothing, nothing, nothing, nothing, zones, 37)
    assert found[0, 1] == 370 * 1000
