"""A reservation as the report that load is judged by."""

from __future__ import annotations

from agents.placement.reported import KINDS, report_of
from schemas.records import Cause, Reservation

CAUSE = Cause(1, 0, 5, 77_000, "abc", 1)


def record(
    system: tuple[int, int],
    pods: dict[str, tuple[int, int]],
    p50: tuple[int, int] | None = None,
) -> Reservation:
    ranks = [{} if p50 is None else {"p50": value, "online_p50": 1} for value in p50 or (0, 0)]
    return Reservation(
        "n", CAUSE, 0, {}, {}, ranks[0], ranks[1], system[0], system[1],
        pods=tuple(pods),
        pod_cpu_milli={"usage": [cpu for cpu, _ in pods.values()]},
        pod_memory_bytes={"usage": [size for _, size in pods.values()]},
    )  # fmt: skip


def test_the_machine_is_its_pods_and_the_system() -> None:
    found = report_of(record((100, 10), {"a": (200, 20), "b": (300, -1), "c": (-1, -1)}))
    assert (found.at_ms, found.usage) == (77_000, (600, 30))
    assert found.pods == {"a": (200, 20), "b": (300, -1)}
    assert found.ranks == ((-1, -1),) * len(KINDS)


def test_never_less_than_the_median_of_minutes() -> None:
    assert report_of(record((100, 10), {}, (90, 15))).usage == (100, 15)


def test_a_node_whose_pods_nobody_could_measure_is_not_known() -> None:
    assert report_of(record((100, 10), {"a": (-1, -1)})).usage == (-1, -1)
    assert report_of(record((0, 0), {})).usage == (0, 0), "an empty node is known"
