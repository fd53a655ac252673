"""What of an SLI is believed, and objectives of the policy that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas import policy
from schemas.errors import BadPolicy, BadRecord
from schemas.records import Sli
from schemas.slis import AHEAD_MS, RANGES, check

NOW_MS = 1_790_000_000_000
GOOD = Sli("shop/web", "n0", 30_000, 2_000, 80_000, 1_000, 3, NOW_MS)
ONE = {"workload": "shop/web", "p99_us": 1}


def test_what_can_be_is_believed() -> None:
    check(GOOD, NOW_MS)
    check(replace(GOOD, end_ms=-1), -1)
    check(replace(GOOD, end_ms=NOW_MS + AHEAD_MS), NOW_MS)
    check(replace(GOOD, requests=0, errors=0, p50_us=0, p99_us=0), NOW_MS)


@pytest.mark.parametrize(
    ("changes", "reason", "told"),
    [
        ({"p99_us": -1}, "implausible", "p99_us is -1; allowed: 0 to 3600000000"),
        ({"p99_us": 3_600_000_001}, "implausible", "p99_us is 3600000001"),
        ({"window_ms": 99}, "implausible", "window_ms is 99; allowed: 100 to 86400000"),
        ({"requests": -1}, "implausible", "requests is -1"),
        ({"errors": 1_001}, "implausible", "errors 1001; allowed: 0 to 1000"),
        ({"p50_us": 80_001}, "implausible", "p50_us 80001; allowed: 0 to p99_us 80000"),
        ({"p90_us": 80_001}, "implausible", "p90_us 80001; allowed: p50_us to p99_us, or -1"),
        ({"p999_us": 79_999}, "implausible", "p999_us 79999; allowed: from p99_us on, or -1"),
        ({"workload": ""}, "implausible", "workload of 0 characters; allowed: 1 to 253"),
        ({"workload": "x" * 254}, "implausible", "workload of 254 characters"),
        ({"end_ms": -2}, "implausible", "end_ms is -2"),
        ({"end_ms": NOW_MS + AHEAD_MS + 1}, "future_clock", "60001 ms after the record"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str, told: str) -> None:
    with pytest.raises(BadRecord, match=told) as refused:
        check(replace(GOOD, **changes), NOW_MS)
    assert refused.value.reason == reason


@given(st.sampled_from(sorted(RANGES)), st.integers(-(2**63), 2**63 - 1))
def test_only_what_lies_in_its_range_passes(name: str, value: Any) -> None:
    low, high = RANGES[name]
    try:
        check(replace(GOOD, **{name: value}), NOW_MS)
    except BadRecord:
        return
    assert low <= value <= high


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"objectives": [ONE, ONE]}, r"objectives\[1\].workload is shop/web; allowed: each"),
        ({"objectives": [{"workload": "a"}]}, r"objectives\[0\] judges nothing; allowed: p99_us"),
        ({"objectives": [{"p99_us": 1}]}, r"objectives\[0\].workload is missing"),
        ({"objectives": [ONE | {"p99_us": -1}]}, r"\[0\].p99_us is -1; allowed: a whole number"),
        ({"objectives": [ONE | {"errors_permille": 1001}]}, "errors_permille is 1001; allowed: a"),
        ({"objectives": [ONE | {"rounds": 0}]}, r"rounds is 0; allowed: a whole number from 1"),
        ({"objectives": [ONE | {"least_requests": 0}]}, "least_requests is 0; allowed: a whole"),
        ({"objectives": [ONE | {"window_ms": 1}]}, "window_ms is 1; allowed: a whole number from"),
        ({"objectives": [ONE | {"p95_us": 1}]}, r"objectives\[0\].p95_us is no key"),
        ({"order": ["free", "prod"]}, r"order\[1\] is 'prod'; allowed: batch or free or mid"),
        ({"order": ["free", "free"]}, "order is free, free; allowed: each class once"),
        ({"step_permille": 0}, "step_permille is 0; allowed: a whole number from 1 to 1000"),
        ({"most_nodes_permille": 0}, "most_nodes_permille is 0; allowed: a whole number from 1"),
        ({"calm_percent": 101}, "calm_percent is 101; allowed: a whole number from 1 to 100"),
    ],
)
def test_bad_objectives_are_refused_naming_key_and_range(
    section: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadPolicy, match=told):
        policy.parse(yaml.safe_dump({"slo_guard": section}), "test.yaml")


def test_objectives_may_differ_by_node() -> None:
    text = (
        "slo_guard: {objectives: [{workload: shop/web, p99_us: 100}]}\n"
        "nodes: [{name: big, match: {pool: big}, slo_guard: {order: [free],"
        " objectives: [{workload: shop/web, p99_us: 50}]}}]\n"
    )
    whole = policy.parse(text, "test.yaml")
    there = policy.effective(whole, policy.reach(whole, {"pool": "big"}, "")).policy.slo_guard
    assert (there.order, there.objectives[0].p99_us) == (("free",), 50)


def test_in_the_first_stage_nobody_is_called_back() -> None:
    text = "slo_guard: {objectives: [{workload: shop/web, p99_us: 100}]}\n"
    for stage, on in (("observe", False), ("protect", True), ("expand", True)):
        whole = policy.parse(f"{text}rollout: {{stage: {stage}}}\n", "test.yaml")
        guard = policy.effective(whole, policy.reach(whole, {}, "")).policy.slo_guard
        assert guard.enabled == on
