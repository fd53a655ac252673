"""The arithmetic of the second stage: `agents.fleet` (r5: bounded blast)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.fleet import PUBLISH_MS, Fleet, budget_of, due, fleet_budget, share
from schemas.errors import BadRecord
from schemas.policy import Blast, EvictMemory, Policy
from schemas.records import Cause, FleetFacts, PartitionHealth
from tests.agents.worlds import GIB, MEMORY, PARTITION, WARM, Node, World, best_effort, online

COOLDOWN_MS = 4_000
STALE_MS = 10_000
POLICY = Policy(
    evict_memory=EvictMemory(cooldown_ms=COOLDOWN_MS),
    blast=Blast(evictions_permille=10, stop_ill_permille=550, facts_stale_ms=STALE_MS),
)


def health(
    partition: int, nodes: int = 100, ill: int = 0, wanted: int = 0, incarnation: int = 7
) -> PartitionHealth:
    cause = Cause(incarnation, partition, 0, 0, "", 1)
    return PartitionHealth(cause, nodes, 0, ill, wanted)


def fed(*healths: PartitionHealth, at_ms: int = 1_000) -> Fleet:
    fleet = Fleet(partitions=len(healths), incarnation=7)
    for partition, one in enumerate(healths):
        assert fleet.fold(partition, at_ms, fleet.revision + 1, one)
    return fleet


def test_sums_over_partitions_and_a_budget_of_the_whole_fleet() -> None:
    facts = fed(health(0, 100, 3), health(1, 200, 6), health(2, 100, 1)).facts(POLICY)
    assert (facts.nodes, facts.ill, facts.ill_permille, facts.partitions_seen) == (400, 10, 25, 3)
    assert sum(facts.budgets) == 4  # 10 permille of 400 nodes
    assert facts.evictions_per_partition == min(facts.budgets) == 1
    assert (facts.reason, facts.revision, facts.stale_after_ms) == ("", 2, STALE_MS)


def test_r5_a_small_fleet_may_evict_one_a_cooldown_in_all_not_one_a_partition() -> None:
    facts = fed(*(health(p, nodes=2) for p in range(24))).facts(POLICY)
    assert sum(facts.budgets) == 1
    assert facts.evictions_per_partition == 0


@pytest.mark.parametrize(("ill", "reason"), [(54, ""), (55, "too_many_ill"), (100, "too_many_ill")])
def test_r5_stops_at_the_share_of_ill_nodes(ill: int, reason: str) -> None:
    facts = fed(health(0, 100, ill), health(1, 100, ill)).facts(POLICY)
    assert facts.reason == reason
    assert bool(sum(facts.budgets)) == (reason == "")


def test_r3_a_partition_never_heard_stops_evictions() -> None:
    fleet = Fleet(partitions=2, incarnation=7)
    fleet.fold(0, 1_000, 0, health(0))
    facts = fleet.facts(POLICY)
    assert (facts.reason, facts.partitions_seen, sum(facts.budgets)) == ("partitions_missing", 1, 0)


def test_r3_a_partition_that_fell_silent_counts_as_missing_by_record_time() -> None:
    fleet = fed(health(0), health(1), at_ms=1_000)
    fleet.fold(0, 1_000 + STALE_MS, 2, health(0))
    assert fleet.facts(POLICY).reason == ""
    fleet.fold(0, 1_001 + STALE_MS, 3, health(0))
    facts = fleet.facts(POLICY)
    assert (facts.reason, facts.partitions_seen, facts.nodes) == ("partitions_missing", 1, 100)
    fleet.fold(1, 1_002 + STALE_MS, 4, health(1))
    assert fleet.facts(POLICY).reason == ""


def test_r13_time_never_goes_back() -> None:
    fleet = fed(health(0), health(1), at_ms=1_000_000)
    fleet.fold(0, 5, 2, health(0))
    facts = fleet.facts(POLICY)
    assert (fleet.now_ms, facts.reason) == (1_000_000, "")


def test_without_policy_nobody_is_evicted() -> None:
    facts = fed(health(0, wanted=3)).facts(None)
    assert (facts.reason, facts.budgets) == ("no_policy", (0,))


def test_r6_no_nodes_and_a_policy_of_none_give_no_budget() -> None:
    assert fed(health(0, nodes=0)).facts(POLICY).reason == "no_nodes"
    none = Policy(blast=Blast(evictions_permille=0))
    facts = fed(health(0)).facts(none)
    assert (facts.reason, facts.budgets) == ("none_allowed", (0,))


def test_r4_repeats_and_other_incarnations_change_nothing() -> None:
    fleet = fed(health(0, 100), health(1, 100))
    before = fleet.facts(POLICY)
    assert not fleet.fold(0, 2_000, 1, health(0, 999))
    assert not fleet.fold(0, 2_000, 9, health(0, 999, incarnation=6))
    assert fleet.facts(POLICY) == before


@pytest.mark.parametrize(
    ("partition", "bad", "reason"),
    [
        (2, health(2), "unknown_partition"),
        (-1, health(0), "unknown_partition"),
        (0, health(0, nodes=5, ill=6), "wrong_type"),
        (0, health(0, nodes=-1), "wrong_type"),
    ],
)
def test_r8_impossible_numbers_are_refused(
    partition: int, bad: PartitionHealth, reason: str
) -> None:
    fleet = fed(health(0), health(1))
    before = fleet.facts(POLICY)
    with pytest.raises(BadRecord) as refused:
        fleet.fold(partition, 2_000, 5, bad)
    assert refused.value.reason == reason
    assert fleet.facts(POLICY) == before


def test_within_a_slot_the_shares_stay_and_a_stop_gives_none() -> None:
    fleet = fed(health(0, 100, wanted=5), health(1, 100), at_ms=COOLDOWN_MS)
    first = fleet.facts(POLICY)
    assert first.budgets == (2, 0)
    fleet.fold(1, COOLDOWN_MS + 10, 2, health(1, 100, wanted=9))
    assert fleet.facts(POLICY).budgets == (2, 0)
    fleet.fold(1, COOLDOWN_MS + 20, 3, health(1, 100, ill=100, wanted=9))
    fleet.fold(0, COOLDOWN_MS + 30, 4, health(0, 100, ill=100, wanted=9))
    assert fleet.facts(POLICY).budgets == (0, 0)
    fleet.fold(1, 2 * COOLDOWN_MS, 5, health(1, 100, ill=0, wanted=9))
    fleet.fold(0, 2 * COOLDOWN_MS, 6, health(0, 100, ill=0, wanted=0))
    assert fleet.facts(POLICY).budgets == (0, 2)


def test_a_slot_that_began_stopped_hands_out_nothing_before_the_next() -> None:
    fleet = fed(health(0, 100, ill=100), at_ms=COOLDOWN_MS)
    assert fleet.facts(POLICY).reason == "too_many_ill"
    fleet.fold(0, COOLDOWN_MS + 1, 1, health(0, 100))
    facts = fleet.facts(POLICY)
    assert (facts.reason, facts.budgets) == ("", (0,))
    fleet.fold(0, 2 * COOLDOWN_MS, 2, health(0, 100))
    assert fleet.facts(POLICY).budgets == (1,)


@given(
    budget=st.integers(0, 2**62),
    wanted=st.lists(st.integers(0, 2**62) | st.integers(0, 5), min_size=1, max_size=48),
    turn=st.integers(0, 2**45),
)
def test_shares_sum_to_the_budget_and_serve_the_asking_first(
    budget: int, wanted: list[int], turn: int
) -> None:
    shares = share(budget, wanted, turn)
    assert sum(shares) == budget
    assert min(shares) >= 0
    if budget <= sum(wanted):
        assert all(got <= want for got, want in zip(shares, wanted, strict=True))
        hungry = [got for got, want in zip(shares, wanted, strict=True) if got < want]
        assert not hungry or max(hungry) - min(hungry) <= 1
    else:
        assert all(got >= want for got, want in zip(shares, wanted, strict=True))


def test_a_budget_of_one_goes_round() -> None:
    served = [share(1, [1] * 24, turn).index(1) for turn in range(24)]
    assert sorted(served) == list(range(24))


@given(nodes=st.integers(0, 10**7), permille=st.integers(0, 1000))
def test_the_fleet_budget_is_at_least_one_and_at_most_the_share(nodes: int, permille: int) -> None:
    budget = fleet_budget(nodes, permille)
    assert (budget == 0) == (nodes == 0 or permille == 0)
    assert budget <= max(1, nodes * permille // 1000)


def test_budget_of_a_partition() -> None:
    facts = fed(*(health(p, 100) for p in range(3))).facts(POLICY)
    assert [budget_of(facts, p) for p in range(3)] == list(facts.budgets)
    assert budget_of(facts, 3) == 0
    assert budget_of(replace(facts, budgets=(), evictions_per_partition=4), 2) == 4


def test_facts_are_said_at_most_once_a_second_and_refreshed_before_they_are_stale() -> None:
    said = fed(health(0, 1000)).facts(POLICY)
    later = replace(said, revision=9)
    changed = replace(later, ill=1)
    assert due(said, 0, None, 0)
    assert not due(changed, PUBLISH_MS - 1, said, 0)
    assert due(changed, PUBLISH_MS, said, 0)
    assert not due(later, PUBLISH_MS, said, 0)
    assert due(later, STALE_MS // 3, said, 0)


def test_a_stop_is_said_at_once() -> None:
    fleet = fed(health(0, 1000))
    said = fleet.facts(POLICY)
    fleet.fold(0, 1_001, 1, health(0, 1000, ill=1000))
    assert due(fleet.facts(POLICY), 1_001, said, 1_000)


def test_the_same_records_give_the_same_facts_whoever_computes() -> None:
    def run() -> list[FleetFacts]:
        fleet = Fleet(3, 7)
        told = []
        for offset in range(60):
            partition = offset % 3
            one = health(partition, 50, ill=offset % 7, wanted=offset % 4)
            fleet.fold(partition, 900 * offset, offset, one)
            told.append(fleet.facts(POLICY))
        return told

    assert run() == run()


def test_partitions_take_newer_facts_only() -> None:
    world = World()
    for revision, budget in ((7, 3), (6, 9), (7, 2), (8, 1)):
        facts = FleetFacts(revision, 1, 9, 0, 0, 0, budget, 10_000)
        world.tick(1000, ("fleet", 0, b"fleet", facts))
        assert world.state.facts is not None
        assert world.state.facts.revision == max(revision, 7)
    assert world.state.facts is not None
    assert world.state.facts.evictions_per_partition == 1


@pytest.mark.parametrize("mine", [0, 2])
def test_r5_a_partition_spends_its_own_share(mine: int) -> None:
    node = Node(pods=(online("a"), *(best_effort(f"b{i}") for i in range(3))))
    world = World(WARM, node)
    budgets = tuple(mine if p == PARTITION else 5 for p in range(PARTITION + 2))
    facts = FleetFacts(1, 1, 9, 0, 0, 0, 0, 10_000, "", budgets)
    world.tick(1000, ("fleet", 0, b"fleet", facts))
    world.say(node.sample(available=MEMORY // 10, used=[GIB] * 4))
    ordered = [one.record for one in world.out if one.topic == "commands"]
    evicted = [pod for one in ordered for pod in getattr(one, "pods", ())]
    assert len(evicted) == mine
