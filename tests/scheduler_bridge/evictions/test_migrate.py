"""Rounds over a small fleet: who is asked to leave, when, and why nobody is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agents.classes import classify
from scheduler_bridge.evictions.facts import Facts
from scheduler_bridge.evictions.flights import Flights
from scheduler_bridge.evictions.migrate import Migration, Round
from scheduler_bridge.evictions.node import LiveNode
from scheduler_bridge.evictions.pod import LivePod, Needs
from schemas import codec
from schemas.records import Cause, EvictionReport, FleetFacts, PolicyRecord, Reservation

GIB = 1 << 30
POLICY = """
name: default
rollout: {stage: expand}
low_node_load: {low_cpu_percent: 30, high_cpu_percent: 60, consecutive_rounds: 2}
migration: {enabled: true, round_ms: 1000, %s}
%s
"""


class Said:
    """A record as the source hands it over."""

    headers = codec.JSON_HEADERS

    def __init__(self, key: str, record: Any, at_ms: int) -> None:
        self.key, self.value, self.timestamp = key.encode(), codec.encode(record), at_ms


class Fleet:
    """Nodes of 10 CPUs; pods with what they use; time goes by the round."""

    def __init__(self, migration: str = "dry_run: false", more: str = "") -> None:
        self.facts = Facts()
        self.migration = Migration(self.facts)
        self.nodes: dict[str, LiveNode] = {}
        self.pods: dict[str, LivePod] = {}
        self.uses: dict[str, int] = {}
        self.system: dict[str, int] = {}
        self.now_ms = 0
        self.ill_permille = 0
        text = POLICY % (migration, more)
        self.facts.fold(
            "policies", Said("default", PolicyRecord("default", 1, "d", text), self.now_ms)
        )

    def node(self, name: str, system_milli: int = 0, **more: Any) -> None:
        has = {"cpu": 10_000, "memory": 64 * GIB, "pods": 110}
        self.nodes[name] = LiveNode(name, allocatable=has, **more)
        self.system[name] = system_milli

    def pod(self, uid: str, node: str, milli: int, qos: str = "BE", **more: Any) -> None:
        said: dict[str, Any] = {
            "workload": "batch/etl", "maker": "m1", "maker_kind": "ReplicaSet", "ready": True,
            "needs": Needs({"cpu": 100}),
        }  # fmt: skip
        classes = classify(qos, None, None, "Burstable")
        self.pods[uid] = LivePod(uid, "batch", uid, node, classes, True, None, **{**said, **more})
        self.uses[uid] = milli

    def round(self) -> Round:
        self.now_ms += 1_000
        cause = Cause(1, 0, self.now_ms, self.now_ms, "abc", 1)
        for name in self.nodes:
            here = [uid for uid, pod in self.pods.items() if pod.node == name]
            report = Reservation(
                name, cause, 0, {}, {}, system_cpu_milli=self.system[name],
                system_memory_bytes=GIB, pods=tuple(here),
                pod_cpu_milli={"usage": [self.uses[uid] for uid in here]},
                pod_memory_bytes={"usage": [GIB] * len(here)},
            )  # fmt: skip
            self.facts.fold("reservations", Said(name, report, self.now_ms))
        facts = FleetFacts(self.now_ms, 1, 3, 0, 0, self.ill_permille, 1, 10_000)
        self.facts.fold("fleet", Said("fleet", facts, self.now_ms))
        return self.migration.round(self.now_ms, 1_000_000, self.nodes, self.pods)

    def rounds(self, count: int) -> list[str]:
        return [self.round().result for _ in range(count)]


def hot_and_cold(**more: Any) -> Fleet:
    """One node at 90 %, three pods of 2 CPUs on it; one node that is empty; one between."""
    fleet = Fleet(**more)
    fleet.node("hot", 3_000)
    fleet.node("cold")
    fleet.node("warm", 4_500)
    for uid in "abc":
        fleet.pod(uid, "hot", 2_000)
    for i in range(20):
        fleet.pod(f"elsewhere-{i}", "warm", 0)
    return fleet


def test_hot_for_long_enough_and_then_only_until_within_limits() -> None:
    fleet = hot_and_cold()
    assert fleet.rounds(2) == ["not_long_enough"] * 2
    found = fleet.round()
    assert (found.result, found.hot) == ("moved", 1)
    assert [request.uid for request in found.requests] == ["a", "b"]
    assert found.stopped == {"hot": "relieved"}
    first = found.requests[0]
    assert (first.node, first.source, first.why) == ("hot", "low_node_load", "hot_cpu")
    assert first.terms == {"cpu_percent": 90, "cpu_high_percent": 60}
    assert not first.dry_run
    assert found.kinds == {"cold": "both_low", "hot": "high", "warm": "prod_low"}
    assert fleet.rounds(2) == ["not_long_enough"] * 2, "it is judged anew after pods were taken"


def test_arbitration_holds_over_rounds_until_the_workload_is_whole_again() -> None:
    fleet = hot_and_cold(migration="per_node: 1")
    fleet.rounds(2)
    assert [one.uid for one in fleet.round().requests] == ["a"]
    found = fleet.rounds(3)
    assert found[-1] == "nobody_may_leave"
    del fleet.pods["a"]
    fleet.pod("a2", "cold", 0)
    assert [one.uid for one in fleet.round().requests] == ["b"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"qos": "LS"}, None),
        ({"maker": "", "maker_kind": ""}, "no_maker"),
        ({"maker_kind": "DaemonSet"}, "no_maker"),
        ({"needs": Needs(tied=True)}, "tied"),
        ({"workload": "batch/alone"}, "few_pods"),
        ({"needs": Needs({"cpu": 99_000})}, None),
        ({"needs": Needs(selector={"disk": "ssd"})}, None),
    ],
)
def test_who_is_left_alone(change: dict[str, Any], why: str | None) -> None:
    fleet = hot_and_cold()
    for uid in "abc":
        one = dict(change)
        if "workload" in one:
            one["workload"] += uid
        fleet.pod(uid, "hot", 2_000, **one)
    fleet.rounds(2)
    found = fleet.round()
    assert found.result == "nobody_may_leave"
    assert found.refused == ({} if why is None else dict.fromkeys("abc", why))


def test_taints_and_closed_nodes_are_no_place_to_go() -> None:
    fleet = hot_and_cold()
    cold = fleet.nodes["cold"]
    fleet.nodes["cold"] = replace(cold, open=False)
    assert fleet.rounds(3)[-1] == "no_target"
    fleet.nodes["cold"] = replace(cold, taints=(("gpu", "yes", "NoSchedule"),))
    assert fleet.round().result == "nobody_may_leave"
    for uid in "abc":
        needs = Needs({"cpu": 100}, tolerations=(("gpu", "Exists", "", ""),))
        fleet.pod(uid, "hot", 2_000, needs=needs)
    assert fleet.round().result == "moved"


def test_an_ill_or_unknown_fleet_and_a_policy_that_is_off_move_nobody() -> None:
    fleet = hot_and_cold()
    fleet.rounds(2)
    fleet.ill_permille = 550
    assert fleet.round().result == "fleet_ill"
    fleet.ill_permille = 0
    later = fleet.now_ms + 60_000
    assert fleet.migration.round(later, 0, fleet.nodes, fleet.pods).result == "fleet_unknown"
    assert Migration(Facts()).round(0, 0, {}, {}).result == "no_policy"
    assert hot_and_cold(migration="fleet: 3", more="control_group: {a: b}").round().result == (
        "not_long_enough"
    )
    off = Fleet()
    off.facts.fold("policies", Said("default", PolicyRecord("default", 2, "d", "name: default"), 0))
    assert off.round().result == "off"


def test_nodes_that_are_only_observed_keep_their_pods() -> None:
    fleet = hot_and_cold(more="nodes: [{name: new, match: {pool: new}, rollout: {stage: observe}}]")
    fleet.nodes["hot"] = replace(fleet.nodes["hot"], labels={"pool": "new"})
    assert fleet.rounds(4)[-1] == "not_long_enough"


def test_a_node_without_a_fresh_report_is_not_judged() -> None:
    fleet = hot_and_cold()
    fleet.rounds(3)
    later = fleet.now_ms + 180_000
    facts = FleetFacts(later, 1, 3, 0, 0, 0, 1, 10_000)
    fleet.facts.fold("fleet", Said("fleet", facts, later))
    assert fleet.migration.round(later, 0, fleet.nodes, fleet.pods).result == "no_report"


def test_a_node_that_is_hot_for_its_prod_pods_alone_is_left_to_people() -> None:
    more = "low_cpu_percent: 95, high_cpu_percent: 99, prod_low_cpu_percent: 10, "
    fleet = Fleet()
    text = (POLICY % ("fleet: 9", "")).replace(
        "low_cpu_percent: 30, high_cpu_percent: 60", more + "prod_high_cpu_percent: 20"
    )
    fleet.facts.fold("policies", Said("default", PolicyRecord("default", 2, "d", text), 0))
    fleet.node("hot")
    fleet.node("cold")
    fleet.pod("online", "hot", 5_000, "LS")
    fleet.pod("batch", "hot", 1_000)
    found = [fleet.round() for _ in range(3)][-1]
    assert (found.kinds["hot"], found.result) == ("prod_high", "prod_only")


def test_a_dry_run_says_who_would_go() -> None:
    fleet = hot_and_cold(migration="dry_run: true")
    fleet.rounds(2)
    assert [one.dry_run for one in fleet.round().requests] == [True, True]


def test_flights_are_learned_from_reports_and_end_by_time() -> None:
    flights = Flights()
    said = EvictionReport(
        "n1", "a", "low_node_load", "evicted", "accepted", namespace="s", workload="s/w"
    )
    for _ in range(2):
        flights.note(said, 1_000)
    flights.note(replace(said, pod="b", dry_run=True), 1_000)
    flights.note(replace(said, pod="c", source="evict_cpu"), 1_000)
    assert [one.uid for one in flights.all] == ["a"]
    assert flights.moved("s/w") == 1
    flights.land(9_000, 10_000, 20_000, {}, {"s/w": 99})
    assert [one.uid for one in flights.all] == ["a"]
    flights.land(11_000, 10_000, 20_000, {}, {})
    assert not flights.all
    assert flights.moved("s/w") == 1
    flights.land(21_000, 10_000, 20_000, {}, {})
    assert flights.moved("s/w") == 0
