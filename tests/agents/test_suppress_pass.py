"""One pass over the bound of best effort: one bound in force, the other lifted, never both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents import suppress_pass as law
from agents.cpuset import Pins, Processors
from agents.suppress_pass import Bounds, Facts, Manners
from agents.table import Ints


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


CPUS = ints(*range(8))
ROWS = Processors(CPUS, CPUS // 2, CPUS // 4, CPUS // 4)
HOW = Manners(True, True, 2000, 2, 10, 100)
SEEN = Facts(8000, 3000, 4, 3000)
NOW = Bounds(ints(0, 1, 4), 500_000)


def plain(bounds: Bounds) -> tuple[list[int], int, int, int]:
    return bounds.cpus.tolist(), bounds.quota_us, bounds.cpuset_status, bounds.quota_status


def test_by_cpu_set_the_quota_is_lifted() -> None:
    after = law.reconcile(NOW, SEEN, ROWS, Pins(), HOW)
    assert plain(after) == ([0, 1, 4], -1, law.USING, law.RECOVERED)


def test_by_quota_the_cpu_set_is_lifted_but_for_what_is_not_lent() -> None:
    pins = Pins(lse=ints(2), lsr=ints(3), reserved=ints(0), system=ints(7))
    after = law.reconcile(NOW, SEEN, ROWS, pins, replace(HOW, by_cpuset=False))
    assert plain(after) == ([1, 3, 4, 5, 6], 300_000, law.RECOVERED, law.USING)


def test_switched_off_or_managed_by_others_both_are_lifted_once_for_the_quota() -> None:
    for how in (replace(HOW, enabled=False), replace(HOW, cpus_managed=True)):
        after = law.reconcile(NOW, replace(SEEN, node_milli=-1), ROWS, Pins(), how)
        assert plain(after) == (CPUS.tolist(), -1, law.RECOVERED, law.RECOVERED)
        set_by_others = replace(after, quota_us=70_000)
        assert law.reconcile(set_by_others, SEEN, ROWS, Pins(), how).quota_us == 70_000


def test_what_is_not_known_changes_nothing() -> None:
    for facts in (
        replace(SEEN, capacity_milli=-1),
        replace(SEEN, node_milli=-1),
        replace(SEEN, pods=0),
    ):
        assert law.reconcile(NOW, facts, ROWS, Pins(), HOW) is NOW


def test_a_set_that_stays_still_leaves_an_lse_pod_its_cpus() -> None:
    pins = Pins(lse=ints(*range(1, 8)))
    stays = law.reconcile(NOW, SEEN, ROWS, pins, HOW)
    assert stays.cpus.tolist() == [0, 1, 4]
    assert law.keep_off(stays, pins).cpus.tolist() == [0]
    assert law.keep_off(stays, Pins(lse=CPUS)).cpus.tolist() == [0, 1, 4], "never an empty set"


@given(
    st.integers(-20_000, 20_000), st.integers(-1, 8000), st.booleans(), st.booleans(),
    st.lists(st.integers(0, 7), min_size=1, unique=True), st.lists(st.integers(0, 7)),
    st.integers(-1, 800_000), st.integers(0, 3),
)  # fmt: skip
def test_any_pass(
    allow: int, node: int, enabled: bool, by_cpuset: bool, old: list[int], lse: list[int],
    quota: int, pods: int,
) -> None:  # fmt: skip
    before = Bounds(ints(*sorted(old)), quota)
    how = replace(HOW, enabled=enabled, by_cpuset=by_cpuset)
    facts = Facts(8000, node, pods, allow)
    pins = Pins(lse=ints(*lse))
    after = law.reconcile(before, facts, ROWS, pins, how)
    assert plain(after) == plain(law.reconcile(before, facts, ROWS, pins, how))
    assert len(after.cpus) > 0
    assert set(after.cpus.tolist()) <= set(range(8))
    assert after.quota_us == -1 or 0 <= after.quota_us <= max(800_000, 2000, allow * 100)
    both = after.cpuset_status == after.quota_status == law.USING
    assert not both, "two bounds at once"
    if after is not before:
        assert law.RECOVERED in (after.cpuset_status, after.quota_status)


@given(st.lists(st.tuples(
    st.integers(0, 4_096_000), st.integers(-4_096_000, 4_096_000), st.integers(-1, 400_000_000),
), min_size=1, max_size=6))  # fmt: skip
def test_quotas_of_many_nodes(nodes: list[tuple[int, int, int]]) -> None:
    capacity, allow, now = np.array(nodes, dtype=np.int64).T
    quota = law.quota_us(capacity, allow, now, 2000, 10, 100)
    assert (quota >= np.where(now >= 0, np.minimum(now, 2000), 2000)).all()
    assert (quota[::-1] == law.quota_us(
        capacity[::-1], allow[::-1], now[::-1], 2000, 10, 100)).all()  # fmt: skip
    step = -(-capacity // 1000) * 10_000
    assert (quota <= np.where(now >= 0, now + step, np.maximum(allow * 100, 2000))).all()
