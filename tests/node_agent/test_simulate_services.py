"""Simulated services: calm is within bounds, waiting shows in the tail first, then in errors."""

from __future__ import annotations

import numpy as np

from node_agent.simulate.fleet import SERVICES, build
from node_agent.simulate.services import P50_US, P99_US, WINDOW_US, Services
from schemas.records import Sli
from schemas.slis import check

NODES = 3
ALL = slice(0, NODES)


def said(wait: float, seconds: int = 5, demand_milli: float = 2_000.0) -> list[Sli]:
    services = Services(build(NODES, 10, 1, 60))
    shape = (NODES, 8)
    for _ in range(seconds):
        services.note(ALL, 1_000_000, np.full(shape, wait), np.full(shape, demand_milli))
    return services.due(ALL)


def test_one_record_a_service_node_and_window_and_nothing_before_it_is_over() -> None:
    assert said(0.005, seconds=4) == []
    records = said(0.005)
    assert [(one.node, one.workload) for one in records] == [
        (f"sim-{row:05}", name) for row in range(NODES) for name in SERVICES
    ]
    assert {one.window_ms for one in records} == {WINDOW_US // 1000}
    assert {one.requests for one in records} == {2 * 5 * 400}


def test_the_worse_a_service_waits_the_worse_it_fares_and_the_tail_first() -> None:
    calm, full, collided = said(0.005), said(0.03), said(0.2)
    for quiet, busy, worst in zip(calm, full, collided, strict=True):
        assert quiet.p99_us < 1.4 * P99_US
        assert busy.p99_us > 1.5 * quiet.p99_us
        assert busy.p50_us < 1.4 * P50_US
        assert worst.p99_us > 5 * quiet.p99_us
        assert quiet.errors == 0 < busy.errors < worst.errors < worst.requests


def test_what_is_said_can_be_believed_whatever_happens() -> None:
    for wait in (0.0, 0.01, 0.5, 1.0):
        for demand_milli in (0.0, 10.0, 64_000.0):
            for one in said(wait, demand_milli=demand_milli):
                check(one, append_ms=0)


def test_the_same_seed_says_the_same() -> None:
    assert said(0.02) == said(0.02)
