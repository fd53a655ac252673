"""A whole cluster in which one service leaves its objective, and comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas import codec
from schemas.records import Capacity, Command, Sli
from tests.sim.broker import START_MS
from tests.sim.cluster import Cluster, run
from tests.sim.kernel import GIB
from tests.sim.test_promises import at, plan, whole

OBJECTIVES = (
    "mid: {mode: static, static_cpu_percent: 10, static_memory_percent: 10}\n"
    "slo_guard: {step_wait_ms: 3000, calm_ms: 3000, return_permille: 500, objectives:"
    " [{workload: sim/online, p99_us: 100000, rounds: 1, window_ms: 10000}]}\n"
)
BAD_MS, GOOD_MS, END_MS = 40_000, 70_000, 120_000
"""Moments: the service of n0 leaves its objective, it is calm again, the last look."""


def report(cluster: Cluster, name: str, p99_us: int) -> None:
    node = next(one for one in cluster.nodes if one.name == name)
    said = Sli("sim/online", name, 1_000, 0, p99_us, 1_000)
    cluster.broker.append("slis", node.partition, name.encode(), codec.encode(said))


class Story:
    """What was published of each node while it was told, newest last."""

    def __init__(self) -> None:
        self.capacity: dict[str, list[Capacity]] = {}
        self.lowered: list[Command] = []
        self.killed: dict[str, list[str]] = {}
        self.quotas: list[int] = []

    def tweak(self) -> Callable[[Cluster], None]:
        moments: dict[int, Callable[[Cluster], None]] = {2_000: self.begin, 20_000: self.steady}
        moments |= dict.fromkeys(range(21_000, END_MS, 1_000), self.second)
        moments |= {END_MS: self.end}
        return at(moments)

    def begin(self, cluster: Cluster) -> None:
        cluster.publish_policy(cluster.plan.policy(65) + OBJECTIVES)
        real = cluster.outputs.said

        def said(worker: str, partition: int, output: object, value: bytes) -> None:
            record = getattr(output, "record", None)
            if isinstance(record, Capacity):
                self.capacity.setdefault(record.node, []).append(record)
            elif isinstance(record, Command) and record.reason == "slo":
                self.lowered.append(record)
            real(worker, partition, output, value)  # type: ignore[arg-type]

        cluster.outputs.said = said  # type: ignore[method-assign]
        for node in cluster.nodes:
            node.kernel.pods.clear()
            node.kernel.place("online", 500, GIB)
            node.kernel.place("best_effort", 4_000, GIB)
            cluster.check.unsettle(node)

    def steady(self, cluster: Cluster) -> None:
        cluster.calm = True

    def second(self, cluster: Cluster) -> None:
        slow = BAD_MS <= cluster.at_ms < GOOD_MS
        for node in cluster.nodes:
            report(cluster, node.name, 200_000 if slow and node.name == "n0" else 10_000)
        self.quotas.append(cluster.nodes[0].kernel.quota_milli)

    def end(self, cluster: Cluster) -> None:
        for node in cluster.nodes:
            self.killed[node.name] = [kind for _, kind in node.kernel.killed]


@pytest.fixture(scope="module")
def story() -> Story:
    told = Story()
    whole(run(21, plan(END_MS + 5_000), told.tweak()))
    return told


def since(story: Story, name: str, begin_ms: int, end_ms: int) -> list[Capacity]:
    return [one for one in story.capacity[name] if begin_ms <= one.cause.log_ms - START_MS < end_ms]


def test_no_new_work_within_two_seconds_of_the_report(story: Story) -> None:
    before = since(story, "n0", 30_000, BAD_MS)[-1]
    assert before.new_work
    stopped = next(one for one in since(story, "n0", BAD_MS, END_MS) if not one.new_work)
    assert stopped.reason == "slo"
    assert stopped.cause.log_ms - START_MS - BAD_MS <= 2_000
    assert all(not one.new_work for one in since(story, "n0", BAD_MS + 2_000, GOOD_MS))


def test_lent_capacity_falls_free_batch_mid_and_returns_step_by_step(story: Story) -> None:
    def amounts(one: Capacity) -> tuple[int, int, int]:
        return one.cpu_terms["free"], one.batch_cpu_milli, one.mid_cpu_milli

    before = amounts(since(story, "n0", 30_000, BAD_MS)[-1])
    assert min(before) > 0
    falling = [amounts(one) for one in since(story, "n0", BAD_MS + 2_000, GOOD_MS)]
    assert falling[-1] == (0, 0, 0)
    gone = [next(i for i, one in enumerate(falling) if one[k] == 0) for k in range(3)]
    assert gone[0] < gone[1] < gone[2]
    assert all(one[2] == before[2] for one in falling[: gone[1] + 1])
    back = [amounts(one) for one in since(story, "n0", GOOD_MS + 3_000, END_MS)]
    rises = [i for i, one in enumerate(back[1:], 1) if one[1:] != back[i - 1][1:]]
    assert len(rises) >= 3, "step by step"
    assert back[-1][1:] == before[1:]
    welcome = next(one for one in since(story, "n0", GOOD_MS, END_MS) if one.new_work)
    assert welcome.cause.log_ms - START_MS - GOOD_MS >= 3_000


def test_best_effort_work_of_that_node_shrinks_and_nobody_is_killed(story: Story) -> None:
    assert {command.node for command in story.lowered} == {"n0"}
    allowed = [command.allow_milli for command in story.lowered]
    assert len(allowed) >= 2
    assert allowed == sorted(allowed, reverse=True)
    during = story.quotas[(GOOD_MS - 21_000) // 1_000]
    assert during == 10, "the floor"
    assert during < story.quotas[(BAD_MS - 21_000) // 1_000]
    assert all(not kinds for kinds in story.killed.values())


def test_the_other_nodes_go_on(story: Story) -> None:
    for name in ("n1", "n2"):
        assert all(one.reason != "slo" for one in story.capacity[name])
        assert since(story, name, 30_000, END_MS)[-1].new_work
