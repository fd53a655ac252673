"""CPU sets of best-effort work: how many, which ones, and whose are never given."""

from __future__ import annotations

import random
from itertools import count as forever
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cpuset import Pins, Processors, choose, lendable, select, wanted_cpus
from agents.table import Ints

Row = tuple[int, int, int, int]  # cpu, core, socket, node


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def of(rows: list[Row]) -> Processors:
    return Processors(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def machine(sockets: int, cores: int, threads: int) -> list[Row]:
    """Siblings far apart, as most machines number them; one NUMA node a socket."""
    every = sockets * cores
    return [
        (core + thread * every, core, core // cores, core // cores)
        for thread in range(threads)
        for core in range(every)
    ]


@st.composite
def machines(draw: st.DrawFn) -> list[Row]:
    rows = machine(draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    kept = draw(st.lists(st.sampled_from(rows), unique=True, min_size=1))
    return draw(st.permutations(kept))


def dealt_by_hand(rows: list[Row], count: int) -> list[int]:
    """The same selection as a dealer would do it, one card after the other."""
    if count > len(rows):
        return []
    piles: dict[tuple[int, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row[1], row[0])):
        piles.setdefault((row[3], row[2]), []).append(row)
    table = sorted(piles.values(), key=lambda pile: (-len(pile), pile[0][0]))
    picked: list[int] = []
    at = 0
    for turn in forever():
        at = turn % len(table)
        if count - len(picked) < 2:
            break
        if at == 0 and turn and not any_pair(table):
            break
        pile = table[at]
        for i in range(len(pile) - 1):
            if pile[i][1] == pile[i + 1][1]:
                picked += [pile[i][0], pile[i + 1][0]]
                del pile[i : i + 2]
                break
    while len(picked) < count:
        if table[at]:
            picked.append(table[at].pop(0)[0])
        at = (at + 1) % len(table)
    return picked


def any_pair(table: list[list[Row]]) -> bool:
    return any(a[1] == b[1] for pile in table for a, b in pairwise(pile))


@given(machines(), st.integers(0, 14))
def test_the_selection_is_the_one_dealt_by_hand(rows: list[Row], count: int) -> None:
    assert select(of(rows), count).tolist() == dealt_by_hand(rows, count)


@given(machines(), st.integers(-1, 14), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter_and_none_is_picked_twice(
    rows: list[Row], count: int, shuffle: random.Random
) -> None:
    picked = select(of(rows), count).tolist()
    other = rows[:]
    shuffle.shuffle(other)
    assert select(of(other), count).tolist() == picked
    assert len(set(picked)) == len(picked) == (max(count, 0) if count <= len(rows) else 0)
    assert set(picked) <= {row[0] for row in rows}


def test_siblings_go_together_and_sockets_take_turns() -> None:
    rows = of(machine(2, 4, 2))
    assert select(rows, 4).tolist() == [0, 8, 4, 12]
    assert select(rows, 3).tolist() == [0, 8, 4]
    assert select(of(machine(2, 4, 1)), 3).tolist() == [0, 4, 1]


@pytest.mark.parametrize(
    ("allow", "in_force", "total", "wanted"),
    [
        (3001, 10, 16, 4),
        (-5000, 10, 16, 2),
        (16_000, 4, 16, 6),  # a tenth of 16, rounded up
        (16_000, -1, 16, 16),
        (9_000, 8, 10, 9),
    ],
)
def test_how_many(allow: int, in_force: int, total: int, wanted: int) -> None:
    assert wanted_cpus(ints(allow), ints(in_force), ints(total), 2, 100).tolist() == [wanted]


amounts = st.integers(-(2**40), 2**40)
counts = st.integers(-1, 1024)
NODES = st.lists(st.tuples(amounts, counts, st.integers(1, 1024)), min_size=1, max_size=8)


@given(NODES, st.integers(1, 8))
def test_how_many_of_many_nodes(nodes: list[tuple[int, int, int]], floor: int) -> None:
    allow, in_force, total = np.array(nodes, dtype=np.int64).T
    wanted = wanted_cpus(allow, in_force, total, floor, 100)
    known = in_force >= 0
    assert (wanted[known] <= in_force[known] + -(-total[known] // 10)).all()
    assert (wanted >= np.minimum(floor, np.where(known, in_force, floor))).all()
    more = wanted_cpus(allow + 1000, in_force, total, floor, 100)
    assert (more >= wanted).all()
    back = wanted_cpus(allow[::-1], in_force[::-1], total[::-1], floor, 100)
    assert (back[::-1] == wanted).all()


CPUS = st.lists(st.integers(0, 23), max_size=6)


@given(machines(), CPUS, CPUS, CPUS, CPUS, st.booleans(), st.integers(0, 14))
def test_what_is_somebody_elses_is_never_given(
    rows: list[Row], lse: list[int], lsr: list[int], reserved: list[int], system: list[int],
    exclusive: bool, count: int,
) -> None:  # fmt: skip
    pins = Pins(ints(*lse), ints(*lsr), ints(*reserved), ints(*system), exclusive)
    cpus = choose(of(rows), pins, count).tolist()
    barred = {*lse, *reserved, *(system if exclusive else [])}
    assert not barred & set(cpus)
    assert cpus == sorted(set(cpus))
    assert len(cpus) <= count
    own = {row[0] for row in rows}
    assert set(cpus) <= own
    assert set(of(rows).cpu[lendable(of(rows).cpu, pins)].tolist()) == own - barred


def test_lsr_pods_lend_in_proportion_and_a_small_pool_lends_nothing() -> None:
    rows = of(machine(1, 8, 1))
    assert choose(rows, Pins(lsr=ints(0, 1)), 4).tolist() == [0, 2, 3, 4]
    assert choose(rows, Pins(lsr=ints(0, 1)), 9).tolist() == [0, 1]
    assert choose(rows, Pins(lsr=ints(0, 1), reserved=ints(*range(2, 8))), 9).tolist() == []
    assert choose(rows, Pins(lse=ints(*range(8))), 2).tolist() == []
