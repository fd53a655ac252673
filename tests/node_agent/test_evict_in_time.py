"""The eviction bench in short, on this very kernel; its own goals hold for a calm machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import eviction as bench
from tests.node_agent.kernel import real_groups
from tests.support import patient

pytestmark = pytest.mark.kernel
GONE_MS = 400.0  # with a quota that stays on it takes about a second


def test_throttled_spinners_are_gone_long_before_their_quota_would_let_them() -> None:
    with real_groups():
        pass  # says so where groups cannot be made
    assert min(bench.spinners(2)) < patient(GONE_MS)


def test_the_last_gate_is_there_before_the_kernels_killer(tmp_path: Path) -> None:
    with real_groups() as groups:
        memory = groups.layout.hierarchy("memory")
        assert memory is not None, "this machine has no memory controller"
    with bench.bench_groups() as made, bench.growing(tmp_path, made) as growth:
        found = growth.run()
        said = [line for line in growth.agent.lines() if line["kind"] == "command"]
    assert (found.by, found.left_mb > 0) == ("agent", True)
    assert [line["pods"] for line in said] == [["hog-1"]]
    assert said[0]["decider"] == "evict_memory"
