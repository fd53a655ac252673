"""One round of relief: nobody is pushed over his limit, nothing leaves that fits nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement import arbitration, balance, relief
from agents.placement.arbitration import Bounds, Flight, Workload
from agents.table import Bools, Ints

BOUNDS = balance.Bounds({"cpu": 30.0, "memory": 40.0}, {"cpu": 60.0, "memory": 80.0}, {}, {}, False)
NAMES = BOUNDS.names


@dataclass
class Open:
    """Everybody may leave and fits, but who is named."""

    stay: set[str] = field(default_factory=set)
    nowhere: set[str] = field(default_factory=set)
    taken: list[tuple[str, int]] = field(default_factory=list)

    def may_leave(self, uid: str) -> bool:
        return uid not in self.stay

    def fits(self, uid: str, row: int) -> bool:
        del row
        return uid not in self.nowhere

    def take(self, uid: str, row: int) -> None:
        self.taken.append((uid, row))


def classified(usage: Ints, closed: Sequence[bool] | None = None) -> balance.Classified:
    whole = np.full_like(usage, 1000)
    nothing = np.zeros_like(usage)
    taken = np.array(closed or [False] * len(usage))
    return balance.classify(BOUNDS, usage, nothing, whole, taken)


def listed(*uses: tuple[str, tuple[int, int]]) -> Callable[[int, Bools], list[relief.Movable]]:
    return lambda _row, _over: [relief.Movable(uid, use) for uid, use in uses]


def of(*rows: tuple[int, int]) -> Ints:
    return np.array(rows, dtype=np.int64)


def test_it_stops_when_the_node_is_within_its_limits_again() -> None:
    usage = of((900, 100), (100, 100))
    pods = listed(("a", (200, 10)), ("b", (200, 10)), ("c", (100, 10)))
    places = Open()
    found = relief.relieve(classified(usage), usage, NAMES, [0], pods, places)
    assert [(move.uid, move.target) for move in found.moves] == [("a", 1), ("b", 1)]
    assert found.stopped == {0: "relieved"}
    assert places.taken == [("a", 1), ("b", 1)]


def test_what_fits_nowhere_or_is_not_measured_stays_and_the_next_is_asked() -> None:
    usage = of((900, 100), (300, 100), (250, 100))
    pods = listed(
        ("large", (400, 10)), ("unknown", (-1, 10)), ("kept", (100, 10)), ("odd", (100, 10)),
        ("small", (100, 10)),
    )  # fmt: skip
    places = Open(stay={"kept"}, nowhere={"odd"})
    found = relief.relieve(classified(usage), usage, NAMES, [0], pods, places)
    assert [(move.uid, move.target) for move in found.moves] == [("small", 2)]
    assert found.stopped == {0: "no_pod_left"}


def test_room_that_was_taken_is_gone_for_the_next_node() -> None:
    usage = of((900, 100), (900, 100), (300, 100))
    pods = {0: "ab", 1: "cd"}

    def each(row: int, _over: Bools) -> list[relief.Movable]:
        return [relief.Movable(uid, (150, 10)) for uid in pods[row]]

    found = relief.relieve(classified(usage), usage, NAMES, [1, 0], each, Open())
    assert [move.uid for move in found.moves] == ["c", "d"]
    assert found.stopped == {1: "relieved", 0: "no_room"}


@pytest.mark.parametrize(
    ("rows", "acting", "above", "why"),
    [
        ([(500, 100), (100, 100)], [False, False], 0, "no_source"),
        ([(900, 100), (100, 100)], [False, False], 0, "not_long_enough"),
        ([(900, 100), (500, 100)], [True, False], 0, "no_target"),
        ([(900, 100), (100, 100)], [True, False], 1, "few_targets"),
        ([(900, 100), (100, 100)], [True, False], 0, ""),
    ],
)
def test_why_a_round_does_nothing(
    rows: list[tuple[int, int]], acting: list[bool], above: int, why: str
) -> None:
    kind = classified(of(*rows)).kind
    assert relief.why_not(kind, np.array(acting), above) == why


def test_the_hottest_node_comes_first_and_ties_by_row() -> None:
    usage = of((700, 100), (800, 100), (700, 100), (100, 900))
    whole, rows = np.full_like(usage, 1000), np.arange(4)
    first = relief.hottest_first(rows, usage, whole, np.array([1, 0]))
    assert first == [1, 0, 2, 3]
    assert relief.hottest_first(rows, usage, whole, np.array([0, 1]))[0] == 3


AMOUNT = st.integers(0, 1000)
NODES = st.lists(st.tuples(AMOUNT, AMOUNT), min_size=1, max_size=8)
USES = st.lists(st.tuples(st.integers(-1, 300), st.integers(-1, 300)), max_size=6)


@given(NODES, USES, st.sets(st.integers(0, 60)))
def test_nobody_is_ever_pushed_over_a_high_limit(
    rows: list[tuple[int, int]], uses: list[tuple[int, int]], nowhere: set[int]
) -> None:
    usage = of(*rows)
    limits = classified(usage)
    order = np.flatnonzero(limits.kind == balance.HIGH).tolist()
    use = {f"{row}-{i}": u for row in order for i, u in enumerate(uses)}

    def pods(row: int, _over: Bools) -> list[relief.Movable]:
        return [relief.Movable(f"{row}-{i}", u) for i, u in enumerate(uses)]

    places = Open(nowhere={f"{n // 6}-{n % 6}" for n in nowhere})
    found = relief.relieve(limits, usage, NAMES, order, pods, places)
    after = usage.copy()
    for move in found.moves:
        assert move.uid not in places.nowhere
        assert move.target not in order
        assert (after[move.source] > limits.high[move.source]).any(), "it was over until then"
        after[move.source] -= use[move.uid]
        after[move.target] += use[move.uid]
    moved = [move.uid for move in found.moves]
    assert len(moved) == len(set(moved))
    targets = np.flatnonzero(balance.targets(limits.kind))
    assert (after[targets] <= limits.high[targets]).all()
    assert set(found.stopped) == set(order)


@pytest.mark.parametrize(
    ("pods", "said", "most"),
    [(0, 0, 0), (1, 0, 1), (3, 0, 1), (4, 0, 2), (10, 0, 2), (11, 0, 1), (25, 0, 2), (100, 0, 10),
     (5, 9, 5), (5, 3, 3)],
)  # fmt: skip
def test_how_many_of_a_workload_may_be_away(pods: int, said: int, most: int) -> None:
    assert arbitration.most_of(pods, said) == most


def flight(uid: str, node: str = "n", space: str = "s", workload: str = "w") -> Flight:
    return Flight(uid, node, space, workload)


@pytest.mark.parametrize(
    ("flights", "workload", "bounds", "why"),
    [
        ([], Workload(1), Bounds(2, 0, 0, 10), "few_pods"),
        ([], Workload(3), Bounds(2, 0, 3, 10), "few_pods"),
        ([], Workload(2), Bounds(2, 0, 0, 10), ""),
        ([flight("a", workload="v"), flight("b", workload="v")], Workload(20),
         Bounds(2, 0, 0, 10), "node_limit"),
        ([flight("a", "m", workload="v")], Workload(20), Bounds(2, 1, 0, 10), "namespace_limit"),
        ([flight("a", "m", "t", "v")], Workload(20), Bounds(2, 1, 0, 1), "fleet_limit"),
        ([flight("a", "m"), flight("b", "m")], Workload(20), Bounds(2, 0, 0, 9), "workload_limit"),
        ([flight("a", "m")], Workload(20, {"b"}), Bounds(2, 0, 0, 9), "workload_unavailable"),
        ([flight("a", "m")], Workload(20, {"a"}), Bounds(2, 0, 0, 9), ""),
        ([], Workload(20, (), 2), Bounds(2, 0, 0, 9), "workload_pause"),
    ],
)  # fmt: skip
def test_what_stands_against_one_more_on_its_way(
    flights: list[Flight], workload: Workload, bounds: Bounds, why: str
) -> None:
    assert arbitration.refusal(flight("x"), flights, workload, bounds) == why
