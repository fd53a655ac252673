"""A simulated cluster in which every name that people give has a zebra in it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from schemas import codec
from schemas.errors import BadRecord
from schemas.ledger import claim_key, entry_key, grant_key
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.policy import parse
from schemas.records import (
    Ack,
    BurstWish,
    EvictionReport,
    Inventory,
    Job,
    LedgerEntry,
    PodFact,
    PolicyRecord,
    Sli,
    Zone,
)
from streams.intake import dead_letter
from tests.sim import kernel, node, plan
from tests.sim.broker import Broker
from tests.sim.cluster import Cluster
from tests.sim.plan import Plan
from tests.streams.recording import made

NAME = "zebra"
WORKLOADS = ("zebra/shop", "zebra/search", "zebra/ads")
TEXT = """# of the zebra team
rollout: {stage: expand, workloads: [zebra/ads, zebra/shop]}
control_group: {zebra.example/control: "zebra"}
cpu_burst: {policy: auto}
slo_guard: {step_wait_ms: 3000, calm_ms: 3000, objectives: [
  {workload: zebra/shop, p99_us: 100000, rounds: 1, window_ms: 10000},
  {workload: zebra/search, p99_us: 50000, rounds: 1, window_ms: 10000}]}
nodes:
  - {name: zebra-one, match: {slackwater.io/node: zebra-n0}, suppress: {threshold_percent: 50}}
  - {name: zebra-two, match: {zebra.example/pool: zebra-pool}, suppress: {threshold_percent: 55}}
"""
ANNOTATION = "slo_guard: {objectives: [{workload: zebra/shop, p99_us: 70000, rounds: 1}]}"


class Kernel(kernel.Kernel):
    """A machine with a name that tells something."""

    def __init__(self, name: str, *figures: object) -> None:
        super().__init__(f"{NAME}-{name}", *figures)  # type: ignore[arg-type]


def _facts(self: node.SimNode) -> Inventory:
    name = self.name
    labels = {"zebra.example/pool": "zebra-pool" if name.endswith("1") else "zebra-rest"}
    return replace(
        REAL_FACTS(self), kernel="6.1-zebra", capabilities={"psi": True},
        labels={**labels, "slackwater.io/suppress.threshold_percent": "60", "zebra": name},
        annotations={"slackwater.io/policy": ANNOTATION, "zebra.example/x": "zebra"},
        zones=(Zone("zebra-zone", 2_000, 1 << 30),),
    )  # fmt: skip


def _fact(self: kernel.FakePod) -> PodFact:
    number = 0 if self.kind == "online" else sum(map(ord, self.uid))
    return replace(
        REAL_FACT(self), name=f"zebra-pod-{self.uid}", namespace="zebra-space",
        workload=WORKLOADS[number % 3], cpu_burst=BurstWish("auto"),
        cpu_limit_milli=2_000,
    )  # fmt: skip


REAL_FACTS, REAL_FACT = node.SimNode._facts, kernel.FakePod.fact


def log(seed: int = 3, seconds: int = 60) -> tuple[Broker, int]:
    """Its topics, with all that people, services and schedulers say, and what nobody can read."""
    parse(_policy_of(_plan(seed), 65), "the policy of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.sim.cluster.Kernel", Kernel)
        patch.setattr(node.SimNode, "_facts", _facts)
        patch.setattr(kernel.FakePod, "fact", _fact)
        return made.log_of(seed, seconds, _happens, _plan(seed))


def _plan(seed: int) -> Plan:
    drawn = plan.draw(Random(seed))
    return replace(drawn, nodes=4, partitions=2, image_every_ms=5_000, lookback_ms=600_000)


def _happens(cluster: Cluster, at_ms: int) -> None:
    if at_ms == 2_000:
        cluster.publish_policy(_policy(cluster, 65))
    if at_ms == 45_000:
        _canary(cluster)
    if at_ms % 3_000 == 1_000:
        cluster.churn(cluster.nodes[at_ms // 3_000 % 4])
    if at_ms > 5_000 and at_ms % 1_000 == 0:
        for each in cluster.nodes:
            _services(cluster, each, at_ms)
    if at_ms % 4_000 == 1_000:
        for kind in range(5):
            noise = b"zebra zebra" * 20
            cluster.bad_record("samples", at_ms // 1_000 % 2, kind, noise)
            cluster.bad_record("acks", 0, kind, noise)
            cluster.bad_record("inventory", 1, kind, noise)
        _forged(cluster)
        _schedulers(cluster)


def _policy(cluster: Cluster, threshold: int) -> str:
    return _policy_of(cluster.plan, threshold)


def _policy_of(drawn: Plan, threshold: int) -> str:
    rest = drawn.policy(threshold).replace("rollout: {stage: expand}\n", "")
    return rest + TEXT


def _canary(cluster: Cluster) -> None:
    said = PolicyRecord(
        "default", 9, "", _policy(cluster, 55), "zebra@example.com", "for the zebras",
        {"zebra.example/pool": "zebra-pool"}, _policy(cluster, 65),
    )  # fmt: skip
    cluster.broker.append("policies", 0, b"default", codec.encode(said))
    other = PolicyRecord("zebra-other", 1, "zebra", "zebra: {", "zebra")
    cluster.broker.append("policies", 0, b"zebra-other", codec.encode(other))


def _services(cluster: Cluster, each: node.SimNode, at_ms: int) -> None:
    broker, key = cluster.broker, each.name.encode()
    slow = 20_000 <= at_ms % 40_000 < 30_000
    for workload in WORKLOADS[:2]:
        said = Sli(workload, each.name, 1_000, 0, 200_000 if slow else 10_000, 1_000)
        broker.append("slis", each.partition, key, codec.encode(said))
    job = Job(f"zebra-job-{at_ms % 5_000}", each.name, "running", 500)
    broker.append("jobs", at_ms // 1_000 % 2, job.job.encode(), codec.encode(job))


def _schedulers(cluster: Cluster) -> None:
    each = cluster.nodes[0]
    name, append = each.name, cluster.broker.append
    claim = LedgerClaim(name, "zebra-yarn", "zebra-claim", 60_000, 500)
    grant = LedgerGrant(name, "zebra-yarn", "zebra-claim", True, "granted", 3)
    entry = LedgerEntry(name, "zebra-yarn", 500, 0, pods=("zebra-lent",))
    for key, record in (
        (claim_key(name, "zebra-yarn", "zebra-claim"), claim),
        (grant_key(name, "zebra-yarn", "zebra-claim"), grant),
        (entry_key(name, "zebra-yarn"), entry),
        (b"~reign", LedgerReign(3, "zebra-bridge")),
    ):
        append("ledger", each.partition, key, codec.encode(record))
    report = EvictionReport(
        name, "zebra-uid", "quota", "waiting", "budget", "quota", f"low.{name}", "zebra-space",
        "zebra-pod", "zebra/ads",
    )  # fmt: skip
    append("evictions", each.partition, name.encode(), codec.encode(report))


def _forged(cluster: Cluster) -> None:
    """An ack of a stranger that moves nothing, said not to be believed for its signature."""
    ack = Ack("zebra-stranger", "ab" * 16, 1, 1, "suppress", "duplicate")
    raw = codec.encode(ack)
    record = cluster.broker.append("acks", 0, b"zebra-stranger", raw)
    letter = dead_letter("acks", record, BadRecord("bad_signature", f"key {record.key!r}"))
    cluster.broker.append("dead-letters", 0, letter.key, codec.encode(letter.record))
