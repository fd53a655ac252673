"""The four lines, and what is reported when."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from agents.reservation import expected, line_of
from schemas.records import Reservation
from tests.agents.worlds import CAPACITY_MILLI, GIB, WARM, Node, World, best_effort, of, online


def reports(world: World, node: Node, seconds: int, **sample: object) -> list[Reservation]:
    return of(world.run(node, seconds, **sample), "reservations")


def test_the_lines_of_pods_and_node() -> None:
    node = Node(pods=(online("a"), online("quiet"), best_effort("b")))
    world = World(WARM, node)
    world.run(node, 5, milli=[2000, 0, 500], used=[2 * GIB, GIB, GIB])
    used = [GIB, GIB, GIB]
    last = reports(world, node, 12, milli=[1000, 0, 500], system=250, used=used)[-1]
    assert last.pods == ("a", "quiet", "b")
    assert last.pod_cpu_milli["usage"] == [1000, 0, 500]
    assert last.pod_cpu_milli["short"] == [2200, 0, 550]
    assert last.pod_cpu_milli["long"] == [2400, 0, 600]
    assert last.pod_memory_bytes["short"][0] == 2 * GIB * 110 // 100 // 1024 * 1024
    assert last.cpu_milli == {"limit": 2000, "usage": 1000, "short": 2200, "long": 2400}
    assert last.system_cpu_milli == 250
    assert last.reclaimable_cpu_milli == 0
    assert last.cpu_percentiles_milli["p50"] == 1750
    assert last.cpu_percentiles_milli["online_p99"] == 2000
    assert last.cpu_percentiles_milli["system_p99"] == 250
    assert last.warm_ms == last.cause.log_ms - world.log_ms + 16_000


def test_lines_are_capped_at_capacity() -> None:
    node = Node()
    world = World(WARM, node)
    last = reports(world, node, 15, milli=[7900, 0])[-1]
    assert last.pod_cpu_milli["short"][0] == CAPACITY_MILLI
    assert last.cpu_milli["long"] == CAPACITY_MILLI


def test_r3_a_pod_without_a_value_has_no_line_and_stands_at_its_request() -> None:
    node = Node(pods=(online("a"), online("blind")))
    world = World(WARM, node)
    last = reports(
        world, node, 15, milli=[500, 0],
        more={"cpu_usage_us": [None, None], "memory_used_bytes": [GIB, None]},
    )[-1]  # fmt: skip
    assert last.pod_cpu_milli["short"] == [-1, -1]
    assert last.cpu_milli["short"] == 2000
    assert last.pod_memory_bytes["usage"] == [GIB, -1]


def test_a_node_is_reported_once_a_period_and_not_while_silent() -> None:
    node = Node()
    world = World(WARM, node)
    found = reports(world, node, 40)
    assert len(found) in (4, 5)
    times = [report.cause.log_ms for report in found]
    assert {b - a for a, b in pairwise(times[1:])} == {10_000}
    for _ in range(30):
        world.tick(1000)
    assert of(world.out, "reservations") == []


def test_nodes_are_reported_at_different_moments() -> None:
    nodes = [Node(f"node-{i}") for i in range(40)]
    world = World(WARM, *nodes)
    per_tick = []
    for _ in range(25):
        for node in nodes:
            world.say(node.sample(), after_ms=0)
        world.tick(1000)
        per_tick.append(len(of(world.out, "reservations")))
    assert max(per_tick[5:]) <= 14
    assert sum(per_tick[15:]) == 40


def test_what_is_expected_of_the_young_the_warm_and_the_unknown() -> None:
    peak = np.array([[1000, 1024], [1000, 1024], [-1, -1], [-1, -1]])
    line = line_of(peak, np.full(4, 10))
    request = np.array([[3000, 9 << 20]] * 4)
    warm = np.array([True, False, True, False])
    assert expected(line, request, warm).tolist() == [
        [1100, 1126 << 10], [3000, 9 << 20], [-1, -1], [-1, -1],
    ]  # fmt: skip
