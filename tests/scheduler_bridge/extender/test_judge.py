"""What the extender decides of candidates, from records as they come to a verdict and a score."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.placement import borrow_filter, load_filter
from scheduler_bridge.extender import judge
from scheduler_bridge.extender.fleet import FIELDS, Fleet
from scheduler_bridge.extender.nodes import RAW_ALLOCATABLE, THRESHOLDS_ANNOTATION
from scheduler_bridge.extender.pods import FACTORS_ANNOTATION, PodRow
from schemas.policy import LoadAware, Policy
from schemas.records import LedgerEntry, Signal
from tests.scheduler_bridge.extender.world import (
    CPU,
    MEMORY,
    NOW_MS,
    World,
    batch,
    capacity,
    cause,
    reservation,
    row,
)

PLAIN = row("incoming", asks={"cpu": "1000m", "memory": "1Gi"}, priority=9500)
FRESH_MS, STALE_MS = NOW_MS, NOW_MS - 180_000
LEND_MS = 900_000


def policy(**rule: Any) -> Policy:
    return Policy(load_aware=LoadAware(**rule))


def verdicts(world: World, pod: PodRow, *names: str) -> list[str]:
    """The code of each candidate: why it is refused, else `fits`."""
    world.fleet.refresh()
    found = judge.filtered(world.fleet, world.fleet.rows_of(names), pod, NOW_MS, LEND_MS)
    refused = set(found.refused.tolist())
    return [found.why(i)[0] if i in refused else "fits" for i in range(len(names))]


def scores(world: World, pod: PodRow, *names: str) -> list[int]:
    world.fleet.refresh()
    found: list[int] = judge.scored(world.fleet, world.fleet.rows_of(names), pod, NOW_MS).tolist()
    return found


def test_a_node_is_refused_above_the_bound_and_not_at_it() -> None:
    world = World()
    world.join("at", "over", "memory")
    bound = CPU * 65 // 100 - 850  # the pod is expected to use 850 of its 1000
    world.hear(
        reservation("at", bound),
        reservation("over", bound + CPU // 100),
        reservation("memory", 0, system_bytes=MEMORY * 96 // 100),
    )
    assert verdicts(world, PLAIN, "at", "over", "memory") == ["fits", "cpu_over", "memory_over"]


def test_what_nobody_reports_is_let_in_and_comes_last() -> None:
    world = World()
    world.join("silent", "busy")
    world.hear(reservation("busy", CPU // 2))
    assert verdicts(world, PLAIN, "silent", "unheard", "busy") == ["fits"] * 3
    silent, unheard, busy = scores(world, PLAIN, "silent", "unheard", "busy")
    assert silent == unheard == 0 < busy


def test_the_less_loaded_is_the_better_on_the_schedulers_scale() -> None:
    world = World()
    world.join("a", "b", "c")
    world.hear(
        *(reservation(name, used) for name, used in zip("abc", (0, 4_000, 8_000), strict=True))
    )
    found = scores(world, PLAIN, "a", "b", "c")
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 3
    scaled = judge.on_the_schedulers_scale(np.array([0, 9, 10, 55, 99, 100]))
    assert scaled.tolist() == [0, 0, 1, 5, 9, 10]


@pytest.mark.parametrize(
    ("rule", "verdict", "keeps"),
    [
        ({}, "stale", 0),
        ({"reject_stale": False}, "fits", 0),
        ({"reject_stale": False, "stale_keep_permille": 500}, "fits", 500),
        ({"reject_stale": False, "stale_keep_permille": 1000}, "fits", 1000),
        ({"expire_after_ms": 0}, "fits", 1000),
    ],
)
def test_r3_stale_nodes_go_by_policy(rule: dict[str, Any], verdict: str, keeps: int) -> None:
    world = World(policy(**rule))
    world.join("fresh", "stale")
    world.hear(reservation("fresh", 1000), reservation("stale", 1000, at_ms=STALE_MS))
    assert verdicts(world, PLAIN, "fresh", "stale") == ["fits", verdict]
    fresh, stale = scores(world, PLAIN, "fresh", "stale")
    assert stale == fresh * keeps // 1000


def test_ill_nodes_are_weighed_down_until_they_are_well_or_the_signal_is_old() -> None:
    world = World()
    world.join("well", "ill", "once")
    world.hear(
        *(reservation(name, 1000) for name in ("well", "ill", "once")),
        Signal("well", cause(FRESH_MS), ill=False),
        Signal("ill", cause(FRESH_MS), ill=True),
        Signal("once", cause(STALE_MS), ill=True),
    )
    well, ill, once = scores(world, PLAIN, "well", "ill", "once")
    assert (ill, once) == (well * 500 // 1000, well)
    assert verdicts(world, PLAIN, "ill") == ["fits"], "weighed down, not refused"
    world.hear(Signal("ill", cause(FRESH_MS), ill=False))
    assert scores(world, PLAIN, "ill") == [well]


def test_a_pod_just_placed_counts_by_its_estimate_until_a_report_holds_it() -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", 4_000, at_ms=NOW_MS - 1000))
    before = scores(world, PLAIN, "n")[0]
    placed = row("placed", asks={"cpu": "8000m", "memory": "1Gi"}, node="n")
    world.fleet.put(placed, NOW_MS, seen=False)
    assert scores(world, PLAIN, "n")[0] < before
    assert verdicts(world, PLAIN, "n") == ["cpu_over"]

    # The first report that covers a whole period since counts it as measured: 500, not 6800.
    world.hear(reservation("n", 4_000, at_ms=NOW_MS + 5_000, pods={"uid-placed": (500, 1 << 20)}))
    assert verdicts(world, PLAIN, "n") == ["cpu_over"], "that one is too young"
    world.hear(reservation("n", 4_000, at_ms=NOW_MS + 10_000, pods={"uid-placed": (500, 1 << 20)}))
    assert verdicts(world, PLAIN, "n") == ["fits"]

    world.fleet.drop("uid-placed")
    world.fleet.refresh()
    row_of = world.fleet.rows_of(["n"])
    assert world.fleet.take("pending", row_of).tolist() == [[0, 0]]


def test_a_pod_that_moved_leaves_no_ghost() -> None:
    world = World()
    world.join("a", "b")
    world.hear(reservation("a", 0), reservation("b", 0))
    for node in ("a", "b"):
        world.fleet.put(row("p", asks=batch(4000), node=node), NOW_MS, seen=True)
    world.fleet.refresh()
    rows = world.fleet.rows_of(["a", "b"])
    assert world.fleet.take("taken", rows)[:, 0].tolist() == [0, 4000]
    assert world.fleet.take("pending", rows)[:, 0].tolist() == [0, 3400]


def test_daemonsets_go_everywhere() -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", CPU))
    pod = row("d", asks={"cpu": "1"}, owner="DaemonSet")
    assert verdicts(world, pod, "n") == ["fits"]


def test_prod_pods_are_judged_by_what_prod_pods_use() -> None:
    world = World(policy(prod_cpu_percent=50))
    world.join("n")
    online = row("online", asks={"cpu": "7"}, node="n", priority=9500)
    other = row("other", asks=batch(1000), node="n", labels={"koordinator.sh/qosClass": "BE"})
    for pod in (online, other):
        world.fleet.put(pod, NOW_MS - 60_000, seen=True)
    used = {"uid-online": (2_000, 1 << 30), "uid-other": (9_000, 1 << 30)}
    world.hear(reservation("n", 0, pods=used))
    assert verdicts(world, PLAIN, "n") == ["fits"], "2000 and 850 of 16000 are prod's"
    batch_pod = row("b", asks=batch(1000), labels={"koordinator.sh/qosClass": "BE"})
    world.hear(capacity("n", 8_000))
    assert verdicts(world, batch_pod, "n") == ["cpu_over"], "all together is 11000"


def test_by_percentile_a_spike_counts_where_the_last_second_is_calm() -> None:
    calm = reservation(
        "n", 1_000, rank_milli=(1_000, 9_000, 12_000, 15_000), rank_bytes=(1 << 30,) * 4
    )
    for rule, verdict in (({}, "fits"), ({"aggregated_cpu_percent": 65}, "cpu_over")):
        world = World(policy(**rule))
        world.join("n")
        world.hear(calm)
        assert verdicts(world, PLAIN, "n") == [verdict]


def test_one_calm_second_draws_no_work() -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", 100, rank_milli=(12_000,) * 4, rank_bytes=(1 << 30,) * 4))
    assert verdicts(world, PLAIN, "n") == ["cpu_over"], "the median of five minutes is 12000"


def test_nodes_say_their_own_bounds_and_true_size() -> None:
    bounds = json.dumps({"usageThresholds": {"cpu": 20}})
    raw = json.dumps({"cpu": "32"})
    world = World()
    world.join("strict", notes={THRESHOLDS_ANNOTATION: bounds})
    world.join("large", notes={RAW_ALLOCATABLE: raw})
    world.join("garbled", notes={RAW_ALLOCATABLE: "{", THRESHOLDS_ANNOTATION: "[]"})
    names = ("strict", "large", "garbled")
    world.hear(*(reservation(name, 9_000) for name in names))
    assert verdicts(world, PLAIN, *names) == ["cpu_over", "fits", "fits"]
    world.hear(*(reservation(name, 12_000, at_ms=NOW_MS + 1) for name in names))
    assert verdicts(world, PLAIN, *names) == ["cpu_over", "fits", "cpu_over"]


def test_pods_choose_their_factors_where_policy_lets_them() -> None:
    own = row("p", asks={"cpu": "10"}, annotations={FACTORS_ANNOTATION: '{"cpu": 20}'})
    for lets, expected in ((False, 8_500), (True, 2_000)):
        fleet = Fleet(policy(pods_choose_factors=lets))
        assert judge.estimate_of(fleet, own)[0] == expected


@pytest.mark.parametrize(
    ("offer", "verdict"),
    [
        (None, "nothing_known"),
        (capacity("n", 2_000), "fits"),
        (capacity("n", 1_999), "too_little"),
        (capacity("n", 9_000, new_work=False), "no_new_work"),
        (capacity("n", 9_000, workloads=("test/other",)), "not_listed"),
        (capacity("n", 9_000, workloads=("test/other", "test/p")), "fits"),
    ],
)
def test_who_borrows_needs_an_offer_with_room(offer: Any, verdict: str) -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", 0))
    if offer is not None:
        world.hear(offer)
    assert verdicts(world, row("p", asks=batch(2_000)), "n") == [verdict]
    assert verdicts(world, PLAIN, "n") == ["fits"], "who borrows nothing is not asked for it"


def test_what_others_hold_and_what_stands_is_no_longer_offered() -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", 0), capacity("n", 5_000))
    world.hear(LedgerEntry("n", "yarn", 2_000, 0), LedgerEntry("n", "kubernetes", 4_000, 0))
    pod = row("p", asks=batch(2_000))
    assert verdicts(world, pod, "n") == ["fits"], "our own entry is counted by the pods"
    world.fleet.put(row("first", asks=batch(1_500), node="n"), NOW_MS, seen=True)
    assert verdicts(world, pod, "n") == ["too_little"]
    found = judge.filtered(world.fleet, world.fleet.rows_of(["n"]), pod, NOW_MS, LEND_MS)
    assert found.curable(0), "work that weighs less may go"


def test_an_offer_that_is_old_or_gone_is_none() -> None:
    world = World()
    world.join("n")
    world.hear(capacity("n", 5_000))
    pod, rows = row("p", asks=batch(1)), world.fleet.rows_of(["n"])
    fresh = judge.by_offer(world.fleet, rows, pod, NOW_MS + LEND_MS - 1, LEND_MS)
    old = judge.by_offer(world.fleet, rows, pod, NOW_MS + LEND_MS, LEND_MS)
    assert (fresh[0], old[0]) == (borrow_filter.FITS, borrow_filter.NOTHING_KNOWN)
    world.records.fold("capacity", b"n", None, NOW_MS)
    gone = judge.by_offer(world.fleet, rows, pod, NOW_MS, LEND_MS)
    assert gone[0] == borrow_filter.NOTHING_KNOWN


def test_load_is_not_cured_by_making_room() -> None:
    world = World()
    world.join("n")
    world.hear(reservation("n", CPU), capacity("n", 0))
    world.fleet.refresh()
    pod = row("p", asks=batch(1))
    found = judge.filtered(world.fleet, world.fleet.rows_of(["n"]), pod, NOW_MS, LEND_MS)
    assert (int(found.load[0]), found.curable(0)) == (load_filter.CPU_OVER, False)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "drop", "report", "policy")),
        st.integers(0, 5),  # which pod
        st.integers(0, 2),  # which node
        st.integers(0, 40_000),  # when
    ),
    max_size=40,
)


def played(steps: list[tuple[str, int, int, int]], refreshing: bool) -> Fleet:
    world = World()
    world.join("n0", "n1", "n2")
    for what, pod, node, after_ms in steps:
        if what == "put":
            made = row(f"p{pod}", asks=batch(1000 * (pod + 1)), node=f"n{node}", priority=5500)
            world.fleet.put(made, NOW_MS + after_ms, seen=True)
        elif what == "drop":
            world.fleet.drop(f"uid-p{pod}")
        elif what == "report":
            used = {f"uid-p{pod}": (300, 1 << 20)}
            world.hear(reservation(f"n{node}", 1000, at_ms=NOW_MS + after_ms, pods=used))
        else:
            world.fleet.set_policy(policy(cpu_factor_percent=50 + pod))
        if refreshing:
            world.fleet.refresh()
    world.fleet.refresh()
    return world.fleet


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_what_is_worked_out_step_by_step_is_what_is_worked_out_at_once(
    steps: list[tuple[str, int, int, int]],
) -> None:
    one, other = played(steps, refreshing=True), played(steps, refreshing=False)
    rows = one.rows_of(["n0", "n1", "n2"])
    for field in FIELDS:
        assert one.take(field.name, rows).tolist() == other.take(field.name, rows).tolist()
    standing = {uid: at for uid, at in ((u, one.stands(u)) for u in one._places) if at is not None}
    taken = dict.fromkeys(("n0", "n1", "n2"), 0)
    for node, at in standing.values():
        taken[node] += at.pod.borrows[0]
    assert one.take("taken", rows)[:, 0].tolist() == list(taken.values())
