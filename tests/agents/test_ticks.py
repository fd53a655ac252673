"""Ticks: what they admit, which of them decide, and what time alone brings about."""

from __future__ import annotations

from itertools import pairwise

import pytest
from numpy import array

from agents import guards
from agents.log import LAW_VERSION, SideRecord, TickEntry
from schemas.policy import digest, parse
from schemas.records import FleetFacts, LedgerEntry, PolicyRecord, Tick
from tests.agents.worlds import GIB, PARTITION, WARM, Node, World, of, online

POLICY = ("policies", 0, b"default")


def decided(world: World) -> bool:
    return any(output.decider == "lease" for output in world.out)


def test_every_accepted_tick_renews_the_lease() -> None:
    world = World()
    world.tick(1000)
    (lease,) = [output for output in world.out if output.decider == "lease"]
    assert (lease.topic, lease.key) == ("commands", b"~lease")
    assert lease.record.expires_log_ms == world.log_ms + 30_000
    assert lease.record.cause.offset == world.offset


@pytest.mark.parametrize(("after_ms", "decides"), [(0, False), (499, False), (500, True)])
def test_a_tick_within_half_a_period_only_merges(after_ms: int, decides: bool) -> None:
    node = Node()
    world = World()
    world.tick(after_ms, ("inventory", PARTITION, b"n0", node.inventory()))
    assert decided(world) is decides
    assert world.state.side[f"inventory/{PARTITION}"] == 0
    assert b"n0" in world.state.seats  # admitted either way


def test_every_tick_is_decided_under_lag_and_missing_ticks_are_one_long_step() -> None:
    node = Node()
    world, slow = World(WARM, node), World(WARM, node)
    world.run(node, 3)
    for _ in range(5):
        world.tick(1000)
        assert decided(world)
    other = Node()
    slow.run(other, 3)
    slow.tick(5000)
    assert world.value(node, "offer_ms") == slow.value(other, "offer_ms")


@pytest.mark.parametrize("of_tick", [{"incarnation": 0}, {"incarnation": 2}, {"partition": 4}])
def test_a_tick_of_another_incarnation_or_partition_is_refused_whole(
    of_tick: dict[str, int],
) -> None:
    world = World()
    before = dict(world.state.side)
    world.tick(1000, ("inventory", PARTITION, b"n0", Node().inventory()), **of_tick)
    assert [letter.reason for letter in of(world.out, "dead-letters")] == ["unknown_partition"]
    assert not decided(world)
    assert world.state.side == before
    assert world.state.seats == {}


def test_a_tick_of_another_law_merges_and_admits_but_decides_nothing() -> None:
    world = World()
    world.tick(
        1000, ("inventory", PARTITION, b"n0", Node().inventory()), law_version=LAW_VERSION + 1
    )
    assert world.out == []
    assert b"n0" in world.state.seats
    assert world.state.counts["other_law_version"] == 1
    world.tick(1000)
    assert decided(world)


def admit(world: World, vector: dict[str, int], *side: SideRecord) -> None:
    world.offset += 1
    world.log_ms += 1000
    world.feed(TickEntry(world.offset, world.log_ms, Tick(PARTITION, 1, 1, vector), side))


def policy_at(offset: int, percent: int) -> SideRecord:
    text = f"name: default\nsuppress: {{threshold_percent: {percent}}}\n"
    return SideRecord("policies", 0, offset, b"default", PolicyRecord("default", 1, "", text))


def threshold(world: World) -> int:
    assert world.state.policy is not None
    return world.state.policy.suppress.threshold_percent


def test_side_records_apply_in_offset_order_and_not_beyond_the_vector() -> None:
    world = World(None)
    admit(world, {"policies/0": 1}, policy_at(2, 42), policy_at(1, 41), policy_at(0, 40))
    assert threshold(world) == 41
    admit(world, {"policies/0": 2}, policy_at(2, 42))
    assert threshold(world) == 42


def test_side_records_given_out_of_order_lose_nothing() -> None:
    world = World(None)
    lent = [
        SideRecord("ledger", PARTITION, at, b"n0", LedgerEntry("n0", name, milli, 1))
        for at, (name, milli) in enumerate([("yarn", 500), ("k8s", 700), ("yarn", 900)])
    ]
    admit(world, {f"ledger/{PARTITION}": 2}, *reversed(lent))
    assert world.state.ledger == {"n0": {"yarn": (900, 1, 0, 0), "k8s": (700, 1, 0, 0)}}


def test_r4_a_side_record_is_admitted_once_and_a_smaller_vector_takes_nothing_back() -> None:
    world = World(None)
    admit(world, {"policies/0": 5}, policy_at(5, 45))
    admit(world, {"policies/0": 3}, policy_at(5, 55), policy_at(3, 33))
    assert threshold(world) == 45
    assert world.state.side == {"policies/0": 5}


def test_r9_a_bad_policy_never_runs_and_the_last_good_one_stays() -> None:
    world = World("name: default\nsuppress: {threshold_percent: 50}\n")
    good = world.state.policy_digest
    for text in ("", "name: [", "suppress: {threshold_percent: 101}", "name: other"):
        world.tick(1000, (*POLICY, PolicyRecord("default", 7, "", text)))
        (line,) = of(world.out, "decisions", "health")
        assert line.outcome[0] in ("policy_refused", "policy_of_other_name")
        assert line.columns == {"version": [7]}
        assert world.state.policy_digest == good
    world.tick(1000, (*POLICY, None))
    assert world.state.policy_digest == good


def test_only_the_policy_named_default_counts_and_its_digest_is_in_the_causes() -> None:
    world = World(WARM)
    world.tick(1000, ("policies", 0, b"night", PolicyRecord("night", 1, "", "name: default")))
    assert world.state.policy_digest == digest(parse(WARM, "test"))
    (lease,) = [output.record for output in world.out if output.decider == "lease"]
    assert lease.cause.policy == world.state.policy_digest


def test_r12_a_vanished_node_is_forgotten_and_its_room_used_again() -> None:
    world = World(WARM)
    rows = set()
    for number in range(20):
        node = Node(f"n{number}", tuple(online(f"{number}-{k}") for k in range(9)))
        world.know(node)
        world.run(node, 2)
        rows.add(world.state.seats[node.name.encode()].row)
        world.tick(3_600_001)
        assert world.state.seats == {}
    assert len(rows) == 1
    assert world.state.pods.size <= 16
    assert world.state.counts["forgotten"] == 20


def test_a_removed_node_is_dropped_at_once() -> None:
    node = Node()
    for gone in (node.inventory(removed=True), None):
        world = World(WARM, node)
        world.run(node, 3)
        world.tick(1000, ("inventory", PARTITION, b"n0", gone))
        assert world.state.seats == {}


def test_the_ledger_outlives_the_row_and_sums_schedulers() -> None:
    node = Node()
    world = World(WARM)
    lent = [
        ("ledger", PARTITION, b"n0", LedgerEntry("n0", name, milli, GIB))
        for name, milli in (("yarn", 500), ("k8s", 700), ("yarn", 900))
    ]
    world.tick(1000, *lent)
    world.know(node)
    assert world.value(node, "lent") == [1600, 2 * GIB, 0, 0]
    world.tick(1000, ("ledger", PARTITION, b"n0", LedgerEntry("n0", "k8s", 0, 0)))
    assert world.value(node, "lent") == [900, GIB, 0, 0]
    world.tick(1000, ("ledger", PARTITION, b"n0", None))
    assert world.value(node, "lent") == [0, 0, 0, 0]
    assert world.state.ledger == {}


def test_the_ledger_has_a_key_a_scheduler_and_its_tombstone_frees_that_share_alone() -> None:
    world = World(WARM)
    world.know(Node())
    for name, milli in (("yarn", 500), ("k8s", 700)):
        entry = LedgerEntry("n0", name, milli, GIB)
        world.tick(1000, ("ledger", PARTITION, f"n0/{name}".encode(), entry))
    assert world.state.ledger == {"n0": {"yarn": (500, GIB, 0, 0), "k8s": (700, GIB, 0, 0)}}
    world.tick(1000, ("ledger", PARTITION, b"n0/yarn", None))
    assert world.value(Node(), "lent") == [700, GIB, 0, 0]
    world.tick(1000, ("ledger", PARTITION, b"n0/yarn", LedgerEntry("n0", "k8s", 1, 1)))
    assert world.state.counts["key_mismatch"] == 1


def test_a_record_that_speaks_for_another_node_than_its_key_is_ignored() -> None:
    world = World(WARM)
    world.tick(
        1000,
        ("inventory", PARTITION, b"other", Node().inventory()),
        ("ledger", PARTITION, b"other", LedgerEntry("n0", "yarn", 1, 1)),
    )
    assert world.state.seats == {}
    assert world.state.ledger == {}
    assert world.state.counts["key_mismatch"] == 2


def test_fleet_facts_are_dated_by_the_tick_that_admits_them() -> None:
    world = World(WARM)
    facts = FleetFacts(1, 1, 1, 0, 0, 0, 1, 10_000)
    world.tick(1000, ("fleet", 0, b"fleet", facts), ("fleet", 0, b"partition/1", None))
    assert (world.state.facts, world.state.facts_ms) == (facts, world.log_ms)


def test_health_counts_nodes_that_are_silent() -> None:
    speaks, mute = Node("n0"), Node("n1")
    world = World(WARM, speaks, mute)
    world.run(speaks, 2)
    world.tick(1000)
    (health,) = of(world.out, "fleet")
    assert (health.nodes, health.silent, health.ill) == (2, 1, 0)
    assert [o.key for o in world.out if o.topic == "fleet"] == [b"partition/3"]


@pytest.mark.parametrize("period_ms", [1000, 10_000])
def test_reports_are_due_once_a_period_at_the_nodes_own_moment(period_ms: int) -> None:
    for phase in (0, 123_456_789, 2**32 - 1):
        last, times = -1, []
        for now in range(1_000_000, 1_000_000 + 10 * period_ms, 500):
            if guards.due(now, array([last]), array([phase]), period_ms)[0]:
                times.append(now)
                last = now
        gaps = {b - a for a, b in pairwise(times[1:])}
        assert gaps == {period_ms}
