"""The whitelist of the rollout: who may borrow."""

from __future__ import annotations

import pytest

from agents.placement.borrowers import may_borrow


@pytest.mark.parametrize(
    ("workloads", "workload", "may"),
    [
        ((), "batch/etl", True),
        ((), "", True),
        (("batch/etl",), "batch/etl", True),
        (("batch/etl", "batch/ml"), "batch/ml", True),
        (("batch/etl",), "batch/etl-2", False),
        (("batch/etl",), "", False),
    ],
)
def test_who_may_borrow(workloads: tuple[str, ...], workload: str, may: bool) -> None:
    assert may_borrow(workloads, workload) is may
