"""200 seeds of the simulated cluster: no invariant is broken, and a seed is a whole run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.sim.cluster import run
from tests.sim.findings import Report

SEEDS, CHUNK = 200, 20


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """One run is one thread; runs share nothing, so as many at once as there are cores."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """What happened in all runs of this module."""
    return Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_breaks_an_invariant(
    first: int, processes: ProcessPoolExecutor, seen: Counter[str]
) -> None:
    reports = list(processes.map(run, range(first, first + CHUNK)))
    for report in reports:
        seen.update(report.figures)
    broken = [line for report in reports for line in told(report)]
    assert not broken, "\n".join(broken)


def test_the_seeds_reach_what_they_are_there_for(seen: Counter[str]) -> None:
    if not seen:
        pytest.fail("run the whole module: this looks at what the seeds did")
    least = {
        "quota_writes": 1_000, "said_again": 500, "said_dead-letters": 20, "eviction_orders": 10,
        "kills": 20, "said_capacity": 1_000,
    }  # fmt: skip
    assert {name: seen[name] for name in least if seen[name] < least[name]} == {}


def test_a_seed_is_the_whole_run() -> None:
    first, again = run(7), run(7)
    assert first.story == again.story
    assert first.digest == again.digest
    assert run(8).digest != first.digest


def told(report: Report) -> list[str]:
    return [
        f"python -m tests.sim --seed {report.seed} -v   # {v.at_ms / 1000:.2f} s "
        f"{v.invariant}: {v.detail[:300]}"
        for v in report.violations
    ]
