"""Promises R1, R3 to R6, R8, R12 and R13 at the level of a cluster, each by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from agents.fleet import Fleet
from agents.log import Output
from node_agent.lease import ANSWERS_KEPT
from schemas import codec
from schemas.records import Command, PartitionHealth
from tests.sim import faults
from tests.sim.broker import START_MS
from tests.sim.cluster import Cluster, run
from tests.sim.faults import forge
from tests.sim.findings import Report
from tests.sim.kernel import GIB
from tests.sim.node import SPOOL_PARCELS
from tests.sim.plan import QUANTUM_MS, Plan
from tests.sim.rule import allowed_milli

Seen = list[str]


def plan(storm_ms: int, *, faults: int = 0, nodes: int = 3, ttl_ms: int = 8_000) -> Plan:
    return Plan(
        nodes=nodes, partitions=2, workers=2, storm_ms=storm_ms, faults=faults, ttl_ms=ttl_ms,
        lookback_ms=3_600_000, image_every_ms=5_000,
    )  # fmt: skip


def at(moments: Mapping[int, Callable[[Cluster], None]]) -> Callable[[Cluster], None]:
    """Acts at moments (ms since the start), before their quantum."""

    def tweak(cluster: Cluster) -> None:
        real = cluster.quantum

        def quantum() -> None:
            act = moments.get(cluster.at_ms)
            if act is not None:
                act(cluster)
            real()

        cluster.quantum = quantum  # type: ignore[method-assign]

    return tweak


def whole(report: Report) -> Report:
    assert not report.violations, "\n".join(map(str, report.violations))
    return report


def test_r1_silent_brain() -> None:
    """The broker is away for ten minutes while online load goes up and down."""
    quotas: list[tuple[int, int, int]] = []

    def look(cluster: Cluster) -> None:
        for node in cluster.nodes:
            rule = allowed_milli(node.kernel, cluster.policy, node.reserved_milli)
            quotas.append((node.kernel.quota_milli, rule, node.kernel.cpu_milli))

    moments: dict[int, Callable[[Cluster], None]] = {
        15_000: lambda cluster: setattr(cluster.broker, "up", False),
        615_000: lambda cluster: setattr(cluster.broker, "up", True),
    }
    moments |= dict.fromkeys(range(60_000, 610_000, 10_000), look)
    report = whole(run(1, plan(616_000), at(moments)))
    assert report.figures["quota_writes"] > 100, "the law slept through the outage"
    assert all(quota >= 10 for quota, _, _ in quotas)
    lowest = min(quota * 1000 // cpu for quota, _, cpu in quotas)
    assert lowest < 200, "no load step was steep enough to prove anything"


@pytest.mark.parametrize("column", ["cpu_busy_us", "cpu_usage_us", "be_cpu_usage_us"])
def test_r3_a_transient_zero_moves_nothing(column: str) -> None:
    """One reading of zero, in calm: neither the quota nor capacity takes it for news."""
    before: dict[str, int] = {}
    after: list[dict[str, int]] = []

    def note(cluster: Cluster) -> dict[str, int]:
        quotas = {node.name: node.kernel.quota_milli for node in cluster.nodes}
        offers = {f"{n} cpu": c.batch_cpu_milli for n, c in cluster.outputs.capacity.items()}
        return quotas | offers

    def zero(cluster: Cluster) -> None:
        before.update(note(cluster))
        for node in cluster.nodes:
            node.faults.zero = frozenset({column})

    def steady(cluster: Cluster) -> None:
        cluster.calm = True

    moments: dict[int, Callable[[Cluster], None]] = {10_000: steady, 30_000: zero}
    moments |= {
        ms: lambda cluster: after.append(note(cluster)) for ms in range(30_250, 40_000, 250)
    }
    whole(run(3, plan(41_000), at(moments)))
    assert len(before) == 6
    assert [each for each in after if each != before] == []


def test_r3_stale_is_not_zero() -> None:
    """Muted nodes: no new work after the silence that is forgiven, never less than is lent, and
    withdrawn to what is lent in the end."""
    offers: dict[int, dict[str, tuple[bool, str, int, int]]] = {}

    def mute(cluster: Cluster) -> None:
        for node in cluster.nodes[:2]:
            node.faults.mute = True

    def note(cluster: Cluster) -> None:
        offers[cluster.at_ms] = {
            name: (said.new_work, said.reason, said.batch_cpu_milli, said.cpu_terms["lent"])
            for name, said in cluster.outputs.capacity.items()
        }

    moments = {20_000: mute, 20_250: note, 26_000: note, 38_000: note}
    whole(run(11, plan(40_000), at(moments)))
    for name in ("n0", "n1"):
        assert offers[20_250][name][0], "it was fresh"
        assert offers[26_000][name][:2] == (False, "silent")
        assert offers[26_000][name][2] >= min(offers[20_250][name][2], offers[26_000][name][3])
        assert offers[38_000][name][:2] == (False, "withdrawn")
        assert offers[38_000][name][2] <= offers[26_000][name][2]
    assert offers[38_000]["n2"][0], "who speaks is not touched"


def test_r4_twice_is_once() -> None:
    """Every command is delivered again, twice, shuffled, also to the next start of the agent."""
    twice = Random(4)

    def again(cluster: Cluster) -> None:
        for node in cluster.nodes:
            held = [record for record in list(node.spare) for _ in range(2)]
            twice.shuffle(held)
            for record in held:
                cluster.broker.append("commands", record.partition, record.key, record.value)

    def restart(cluster: Cluster) -> None:
        for node in cluster.nodes:
            node.crash()
            node.start()

    moments: dict[int, Callable[[Cluster], None]] = dict.fromkeys(
        range(8_000, 30_000, 3_000), again
    )
    moments |= dict.fromkeys((15_500, 24_500), restart)
    report = whole(run(4, plan(32_000), at(moments)))
    assert report.figures["duplicate_acks"] > 50


def test_r5_the_cool_down_outlives_the_agent() -> None:
    """Memory is full for long; agents that have just evicted start anew, and wait."""

    def surge(cluster: Cluster) -> None:
        for node in cluster.nodes:
            for _ in range(4):
                node.kernel.place("best_effort", 500, 8 * GIB)
            cluster.check.unsettle(node)

    def restart(cluster: Cluster) -> None:
        for node in cluster.nodes:
            if node.kernel.killed:
                node.crash()
                node.start()

    moments: dict[int, Callable[[Cluster], None]] = {
        10_000: surge, 12_000: restart, 13_000: restart
    }  # fmt: skip
    assert whole(run(9, plan(30_000), at(moments))).figures["kills"] >= 4


def test_r5_bounded_blast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node is full for long: one order a node in 20 s, none while most nodes are ill."""
    orders: dict[str, list[int]] = {}
    ill = range(40_000, 60_000)

    def slowly(cluster: Cluster) -> None:
        text = cluster.plan.policy(65).replace("cooldown_ms: 4000", "cooldown_ms: 20000")
        cluster.publish_policy(text)
        cluster.check.cooldown_ms = 20_000

    def surge(cluster: Cluster) -> None:
        for node in cluster.nodes:
            room = node.kernel.available_bytes - node.kernel.memory_bytes // 10
            for _ in range(8 if room > 0 else 0):
                node.kernel.place("best_effort", 100, room // 8)
            cluster.check.unsettle(node)

    def note(cluster: Cluster) -> None:
        real = cluster.outputs.said

        def said(worker: str, partition: int, output: Output, value: bytes) -> None:
            record = output.record
            if isinstance(record, Command) and record.pods:
                orders.setdefault(record.node, []).append(record.cause.log_ms - START_MS)
            real(worker, partition, output, value)

        cluster.outputs.said = said  # type: ignore[method-assign]
        fold = Fleet.fold

        def sick(
            self: Fleet, partition: int, at_ms: int, offset: int, health: PartitionHealth
        ) -> bool:
            if cluster.at_ms in ill:
                health = replace(health, ill=health.nodes)
            return fold(self, partition, at_ms, offset, health)

        monkeypatch.setattr(Fleet, "fold", sick)

    moments: dict[int, Callable[[Cluster], None]] = dict.fromkeys(
        range(10_000, 75_000, 5_000), surge
    )
    moments |= {2_000: slowly, 3_000: note}
    report = whole(run(5, plan(75_000), at(moments)))
    assert report.figures["kills"] >= 4
    assert len(orders) > 1
    for times in orders.values():
        assert all(b - a >= 20_000 for a, b in pairwise(sorted(set(times))))
        assert not any(ms in ill[5_000:] for ms in times), "suspect ourselves"


def test_r6_empty_never_means_all() -> None:
    """Orders that name nobody, or somebody online, and pod sets that are empty, harm nobody."""
    killed: Seen = []

    def forged(kind: str) -> Callable[[Cluster], None]:
        def act(cluster: Cluster) -> None:
            for node in cluster.nodes:
                seen = codec.decode(Command, node.spare[-1].value or b"")
                said = forge(seen, node, kind, cluster.at_ms, cluster.broker.now_ms)
                raw = codec.encode(said)
                cluster.broker.append("commands", node.partition, node.key, raw)

        return act

    def emptied(cluster: Cluster) -> None:
        node = cluster.nodes[0]
        node.kernel.pods.clear()
        cluster.check.unsettle(node)

    def look(cluster: Cluster) -> None:
        killed.extend(uid for node in cluster.nodes for uid, _ in node.kernel.killed)

    moments = {
        15_000: forged("empty"), 16_000: forged("online"), 18_000: emptied,
        19_000: forged("empty"), 22_000: lambda cluster: cluster.populate(cluster.nodes[0]),
        30_000: look,
    }  # fmt: skip
    report = whole(run(6, plan(31_000), at(moments)))
    assert killed == []
    assert report.figures["refused_acks"] >= 9


def test_r8_bad_record_harms_only_itself() -> None:
    """One bad record of each kind in every partition and topic; the neighbours do not notice."""
    noise = bytes(range(100))

    def spoil(kind: int) -> Callable[[Cluster], None]:
        def act(cluster: Cluster) -> None:
            for partition in range(cluster.plan.partitions):
                cluster.bad_record("samples", partition, kind, noise)
                for topic in ("inventory", "acks", "ledger", "commands", "capacity"):
                    cluster.bad_record(topic, partition, kind, noise)

        return act

    moments = {10_000 + 2_000 * kind: spoil(kind) for kind in range(5)}
    report = whole(run(8, plan(24_000), at(moments)))
    assert report.figures["said_dead-letters"] >= 5 * 2


def test_r12_bounded_everything() -> None:
    """Twenty-five minutes with churn and outages: state, spools and answers stop growing."""
    sizes: list[dict[str, int]] = []

    def look(cluster: Cluster) -> None:
        found = {"spool": 0, "state": 0, "pods": 0, "rows": 0, "answers": 0, "seen": 0}
        for node in cluster.nodes:
            assert node.agent is not None
            found["spool"] = max(found["spool"], len(node.agent.spool))
            found["answers"] = max(found["answers"], len(node.agent.obey.lease.answers))
        for partition, worker in cluster.owner.items():
            state = worker.engines[partition].state
            assert state is not None
            _, arrays = state.to_arrays()
            found["state"] += sum(array.nbytes for array in arrays.values())
            found["pods"] += state.pods.size
            found["rows"] += state.nodes.size
            found["seen"] += len(state.orders_ms) + len(state.counts) + len(state.ledger)
        sizes.append(found)

    def churn(cluster: Cluster) -> None:
        for node in cluster.nodes:
            while len(node.kernel.pods) > 8:
                node.kernel.pods.popitem()
            cluster.churn(node)

    moments: dict[int, Callable[[Cluster], None]] = dict.fromkeys(
        range(20_000, 1_500_000, 20_000), churn
    )
    moments |= {
        400_000: lambda cluster: setattr(cluster.broker, "up", False),
        800_000: lambda cluster: setattr(cluster.broker, "up", True),
    }
    moments |= dict.fromkeys(range(300_250, 1_500_000, 100_000), look)
    whole(run(12, plan(1_500_000, nodes=2), at(moments)))
    half = len(sizes) // 2
    for name in ("state", "pods", "rows", "seen"):
        early, late = (max(each[name] for each in part) for part in (sizes[:half], sizes[half:]))
        assert late <= early * 3 // 2, f"{name} grows: {[each[name] for each in sizes]}"
    assert max(each["spool"] for each in sizes) == SPOOL_PARCELS, "too short to fill a spool"
    assert sizes[-1]["spool"] < 20
    assert max(each["answers"] for each in sizes) <= ANSWERS_KEPT


def test_r13_clocks_may_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wall clocks that are wrong, and step: not one byte of what is decided is another."""
    storm = tuple((fault, 1) for fault, _ in faults.STORM if fault is not faults.wall_clock)
    monkeypatch.setattr(faults, "STORM", storm)

    def lie(cluster: Cluster) -> None:
        dice = Random(cluster.at_ms)
        for node in cluster.nodes:
            node.faults.wall_offset_ms = dice.choice((-3_600_000, 0, 3_600_000, -(10**12)))

    moments = dict.fromkeys(range(0, 40_000, 4 * QUANTUM_MS), lie)
    for seed in range(130, 136):
        honest = whole(run(seed))
        lying = whole(run(seed, None, at(moments)))
        assert lying.digest == honest.digest
        assert lying.story == honest.story
