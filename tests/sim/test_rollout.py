"""A change of policy in a whole cluster: a canary reaches its nodes only, a rollback everyone."""

from __future__ import annotations

from collections.abc import Callable

from agents import law
from schemas import codec, policy
from schemas.policy import NAME_LABEL
from schemas.records import PolicyRecord
from tests.sim.cluster import Cluster, run
from tests.sim.plan import QUANTUM_MS
from tests.sim.test_promises import at, plan, whole

OLD, NEW = 65, 50
ROLLBACK_MS = 3_000
Thresholds = dict[str, tuple[int, int]]
"""By node: what the node itself obeys, and what the owner of its partition decides by."""


def thresholds(cluster: Cluster) -> Thresholds:
    found: Thresholds = {}
    for node in cluster.nodes:
        assert node.agent is not None
        own = node.agent.law.policy
        state = cluster.owner[node.partition].engines[node.partition].state
        assert own is not None
        assert state is not None
        central = law.of_node(state, node.name)
        assert central is not None
        found[node.name] = own.suppress.threshold_percent, central.suppress.threshold_percent
    return found


def publish(cluster: Cluster, record: PolicyRecord) -> None:
    cluster.broker.append("policies", 0, b"default", codec.encode(record))


def test_a_rollback_is_effective_everywhere_within_three_seconds() -> None:
    """All nodes and all owners go by the old figure; no node keeps more than it allows."""
    since_ms, back_ms = 20_000, 32_000
    late: list[tuple[int, Thresholds]] = []
    before: list[Thresholds] = []

    def put(percent: int) -> Callable[[Cluster], None]:
        return lambda cluster: cluster.publish_policy(cluster.plan.policy(percent))

    def look(cluster: Cluster) -> None:
        found = thresholds(cluster)
        if set(found.values()) != {(OLD, OLD)}:
            late.append((cluster.at_ms, found))

    moments: dict[int, Callable[[Cluster], None]] = {
        since_ms: put(90),
        back_ms - QUANTUM_MS: lambda cluster: before.append(thresholds(cluster)),
        back_ms: put(OLD),
    }
    after = range(back_ms + ROLLBACK_MS, back_ms + ROLLBACK_MS + 5_000, QUANTUM_MS)
    report = whole(run(21, plan(45_000, nodes=6), at(moments | dict.fromkeys(after, look))))
    assert [set(found.values()) for found in before] == [{(90, 90)}]
    assert late == []
    assert report.figures["quota_writes"] > 0


def test_a_canary_reaches_exactly_the_chosen_nodes_until_it_is_promoted() -> None:
    seen: dict[int, Thresholds] = {}

    def canary(cluster: Cluster) -> None:
        old, new = cluster.plan.policy(OLD), cluster.plan.policy(NEW)
        publish(cluster, PolicyRecord("default", 2, "", new, canary=MATCH, elsewhere=old))
        cluster.check.policies.append((cluster.broker.now_ms, policy.parse(old, "sim")))
        for node in cluster.nodes:
            cluster.check.unsettle(node)

    def look(cluster: Cluster) -> None:
        seen[cluster.at_ms] = thresholds(cluster)

    def promote(cluster: Cluster) -> None:
        cluster.publish_policy(cluster.plan.policy(NEW))

    moments = {
        20_000: canary, 23_000: look, 30_000: look, 31_000: promote, 34_000: look,
    }  # fmt: skip
    whole(run(22, plan(40_000, nodes=5), at(moments)))
    others = {f"n{i}": (OLD, OLD) for i in range(5) if i != 1}
    assert seen[23_000] == seen[30_000] == others | {"n1": (NEW, NEW)}
    assert set(seen[34_000].values()) == {(NEW, NEW)}


MATCH = {NAME_LABEL: "n1"}
