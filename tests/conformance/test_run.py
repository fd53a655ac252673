"""The runner itself, on vectors of our own derived from the peer's formulas."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import run

POD = {
    "key": "t/a", "phase": "Running", "qos_class": "LS", "priority_class": "prod",
    "requests": {"cpu_m": 2000, "memory": 4000}, "numa_nodes": None,
}  # fmt: skip
BATCH: dict[str, Any] = {
    "strategy": {
        "cpu_reclaim_threshold_percent": 60, "memory_reclaim_threshold_percent": 65,
        "cpu_policy": "usage", "memory_policy": "usage", "batch_cpu_threshold_percent": None,
        "batch_memory_threshold_percent": None, "degrade_minutes": 15,
    },
    "node": {
        "capacity": {"cpu_m": 10_000, "memory": 100_000},
        "allocatable": {"cpu_m": 9_500, "memory": 100_000}, "reservation": None,
    },
    "pods": [POD, POD | {"key": "t/new"}],
    "metric": {
        "age_seconds": 900, "node_usage": {}, "system_usage": {"cpu_m": 300, "memory": 1000},
        "pods": [
            {"key": "t/a", "priority_class": "prod", "usage": {"cpu_m": 700, "memory": 900}},
            {"key": "t/gone", "priority_class": "", "usage": {"cpu_m": 50, "memory": 60}},
        ],
        "host_apps": [],
    },
    "zones": None,
}  # fmt: skip
VECTORS: dict[str, list[tuple[str, Any, Any]]] = {
    "batch_resource": [
        (
            "calculate",
            BATCH,
            {
                "degraded": False, "zones": None,
                "cpu_m": 10_000 - 4000 - 500 - 700 - 2000 - 50,
                "memory": 100_000 - 35_000 - 1000 - 900 - 4000 - 60,
            },
        )
    ],
    "cpu_suppress": [
        (
            "cfs_quota_adjust",
            {"capacity_cpu_m": 4000, "suppress_cpu_m": 1000, "current_quota": 10_000},
            {"quota": 50_000},
        ),
        (
            "cfs_quota_adjust",
            {"capacity_cpu_m": 4000, "suppress_cpu_m": -7, "current_quota": 2001},
            {"quota": 2000},
        ),
    ],
    "memory_evict": [
        (
            "release_by_usage",
            {"capacity": 1000, "used": 709, "threshold_percent": 70, "lower_percent": None},
            {"release": 20},
        )
    ],
}  # fmt: skip


def write(folder: Path, family: str, vectors: list[tuple[str, Any, Any]], **more: Any) -> Path:
    path = folder / f"{family}.json"
    document = {
        "family": family,
        "vectors": [
            {"id": f"{family}-{i}", "op": op, "input": given, "expected": expected} | more
            for i, (op, given, expected) in enumerate(vectors)
        ],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("family", sorted(VECTORS))
def test_the_law_gives_the_peers_figures(family: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    lines = run.run_file(write(tmp_path, family, VECTORS[family]), counts)
    assert counts == {"passed": len(VECTORS[family])}, lines


def test_wrong_figures_and_missing_ops_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [(op, given, {"quota": 1}) for op, given, _ in VECTORS["cpu_suppress"]]
    path = write(tmp_path, "cpu_suppress", [*wrong, ("no_such_op", {}, {})])
    assert run.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 3 failed"


def test_vectors_that_hang_on_a_quirk_decide_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "cpu_suppress", VECTORS["cpu_suppress"], quirk="odd")
    assert run.main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed"


def test_no_files_is_a_usage_error() -> None:
    assert run.main([]) == 2
