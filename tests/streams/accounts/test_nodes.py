"""What is counted of nodes: evictions, suppression, OOMs, ledger, gaps, restarts, forgeries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.log import LAW_VERSION
from schemas.records import (
    Ack,
    Cause,
    Command,
    DeadLetter,
    Decider,
    EvictionReport,
    Inventory,
    LedgerEntry,
    PodFact,
)
from streams.accounts.columns import NODE_WANTED
from tests.streams.accounts.case import BOOT, HOUR_MS, MINUTE_MS, MINUTE_US, T0, Case, batch_pod
from tests.streams.accounts.test_account import told

CAUSE = Cause(1, 0, 0, T0, "", LAW_VERSION)


def lending(*pods: PodFact, minutes: int = 60) -> Case:
    """One node that lends, with a sample a minute that says nothing more."""
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.node("n1", pods)
    for minute in range(minutes + 1):
        case.sample("n1", minute * MINUTE_MS, count=len(pods))
    return case


def figures(case: Case, folder: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = told(case.bundle(folder / "case.slack"), *more)["figures"]
    return found


def ack(case: Case, at_ms: int, decider: Decider, outcome: Any, *pods: str, **more: Any) -> None:
    said = Ack("n1", BOOT, 1, 1, decider, outcome, pods=pods, **more)
    case.say(at_ms, "acks", "n1", said)


def test_each_pod_that_went_counts_once_with_the_reason_of_its_order(tmp_path: Path) -> None:
    case = lending(*(batch_pod(name) for name in "abcdef"))
    order = Command("c1", "n1", "evict_memory", CAUSE, 0, "memory_full", pods=("a", "b"))
    case.say(60_000, "commands", "n1", order)
    ack(case, 61_000, "evict_memory", "started", "a", "b", command_id="c1")
    ack(case, 62_000, "evict_memory", "applied", "a", "b", command_id="c1")
    ack(case, 63_000, "evict_memory", "applied", "a", "b", command_id="c1")
    ack(case, 64_000, "evict_cpu", "local", "c")
    ack(case, 65_000, "evict_cpu", "local", "d", dry_run=True)
    ack(case, 66_000, "evict_memory", "refused", reason="stale")
    report = EvictionReport("n1", "e", "quota", "evicted", "taken", why="over_quota")
    for said in (
        report, report, replace(report, pod="f", outcome="waiting"), replace(report, pod="a"),
    ):  # fmt: skip
        case.say(70_000, "evictions", "n1", said)
    found = figures(case, tmp_path)["evictions"]
    assert found["by_reason"] == {
        "evict_cpu: local": 1, "evict_memory: memory_full": 2, "quota: over_quota": 1,
    }  # fmt: skip
    assert found["pods"] == 4
    assert found["per_1000_node_days"] == pytest.approx(4 * 1000 * 24)
    (row, rest) = told(tmp_path / "case.slack", "--by", "workload")["rows"]
    assert (row["figures"]["evictions"]["pods"], rest["figures"]["evictions"]["pods"]) == (4, 0)


def test_suppressed_is_bound_below_what_is_asked_or_throttled(tmp_path: Path) -> None:
    """Four quarters of an hour: wide, bound by quota, throttled, bound by command alone."""
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.node("n1", [batch_pod("a", 4), batch_pod("b", 4)])
    throttled_us = 0
    for minute in range(61):
        quarter = min((max(minute, 1) - 1) // 15, 3)
        throttled_us += MINUTE_US // 10 if quarter == 2 else 0
        quota = {0: 8000, 1: 7999, 2: 8000, 3: -1}[quarter]
        columns: dict[str, int | None] = {
            "be_cpu_quota_milli": quota, "be_cpu_throttled_us": throttled_us
        }  # fmt: skip
        case.sample("n1", minute * MINUTE_MS, columns, count=2)
    bound = Command("c1", "n1", "suppress", CAUSE, 0, "lower", allow_milli=4000)
    case.say(0, "commands", "n1", bound)
    found = figures(case, tmp_path)["suppression"]
    assert found == {
        "best_effort_pod_hours": 2, "suppressed_pod_hours": 1.5, "suppressed_permille": 750
    }  # fmt: skip


def test_who_was_killed_for_memory(tmp_path: Path) -> None:
    web = PodFact("w", "w", "shop", "shop/web", "LS", "prod")
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.node("n1", [web, batch_pod("a")])
    for second in range(121):  # a slow column, in samples that follow each other closely
        pods: dict[str, list[int | None]] = {}
        if second % 60 == 7:
            pods["oom_kills"] = [1 if second > 60 else 0, 5 if second > 60 else 3]
        kills = 7 + (second > 50) + 2 * (second > 90)
        case.sample("n1", second * 1000, {"oom_kills": kills}, pods, 2)
    found = figures(case, tmp_path)["machines"]
    assert (found["ooms"], found["online_pod_ooms"], found["best_effort_pod_ooms"]) == (3, 1, 2)
    assert found["node_hours"] == pytest.approx(120 / 3600)


def test_what_is_lent_is_what_all_schedulers_hold_until_they_give_it_back(tmp_path: Path) -> None:
    case = lending()
    case.lent("n1", 2)
    case.lent("n1", 3, at_ms=0, scheduler="yarn")
    case.lent("n1", 4, at_ms=30 * MINUTE_MS)
    case.say(45 * MINUTE_MS, "ledger", "n1/yarn", None)
    found = figures(case, tmp_path)["lending"]["batch_cpu"]
    assert found["lent_hours"] == pytest.approx(2 * 0.5 + 4 * 0.5 + 3 * 0.75)


def test_a_prediction_holds_until_the_next_and_nothing_is_predicted_below_zero(
    tmp_path: Path,
) -> None:
    case = lending()
    case.capacity("n1", 10)
    case.capacity("n1", -5, at_ms=30 * MINUTE_MS)
    case.say(
        45 * MINUTE_MS, "inventory", "n1", Inventory("n1", 2, 1000, 1, removed=True)
    )  # fmt: skip
    found = figures(case, tmp_path)["lending"]["batch_cpu"]
    assert found["predicted_hours"] == pytest.approx(5)


def test_mid_is_a_line_of_its_own_and_free_work_is_batch_s(tmp_path: Path) -> None:
    mid = PodFact("m", "m", "q", "q/mid", "BE", "mid", cpu_request_milli=1000)
    free = PodFact("f", "f", "q", "q/free", "BE", "free")
    web = PodFact("w", "w", "shop", "shop/web", "LS", "prod")
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.node("n1", [mid, free, web])
    for minute in range(61):
        used = [minute * MINUTE_US * cores for cores in (1, 2, 9)]
        case.sample(
            "n1", minute * MINUTE_MS, {"be_cpu_usage_us": minute * MINUTE_US * 4},
            {"cpu_usage_us": [*used]}, 3,
        )  # fmt: skip
    found = figures(case, tmp_path)
    assert found["lending"]["mid_cpu"]["used_hours"] == 1
    assert found["lending"]["batch_cpu"]["used_hours"] == 3, "2 of a pod and 1 of nobody known"
    assert found["lending"]["reclaimed_core_hours"] == 4
    assert found["satisfaction"]["mean"] == 1


def test_counters_of_another_start_are_not_compared_and_silence_is_no_time(tmp_path: Path) -> None:
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.node("n1")
    for minute, boot, cores_us in (
        (0, "aa" * 16, 100), (1, "aa" * 16, 160), (2, "bb" * 16, 10), (3, "bb" * 16, 70),
        (63, "bb" * 16, 100), (64, "bb" * 16, 101), (65, "bb" * 16, 5),
    ):  # fmt: skip
        columns: dict[str, int | None] = {"be_cpu_usage_us": cores_us * 1_000_000}
        case.sample("n1", minute * MINUTE_MS, columns, boot=boot)
    said = told(case.bundle(tmp_path / "case.slack"))
    found = said["figures"]
    assert found["lending"]["batch_cpu"]["used_hours"] == pytest.approx((60 + 60 + 30 + 1) / 3600)
    assert found["machines"]["node_hours"] == pytest.approx(5 / 60)
    assert found["machines"]["silent_node_hours"] == 1
    assert "1.00 node-hours without samples are left out" in said["lacks"]


def test_what_workers_refused_and_what_nobody_can_read_is_left_out_and_named(
    tmp_path: Path,
) -> None:
    case = lending()
    case.policy("rollout: {stage: expand}\nslo_guard: {objectives: [{workload: shop/web, "
                "p99_us: 100000, least_requests: 1}]}", 1, 2)  # fmt: skip
    for minute in range(1, 11):
        case.sli("n1", minute * MINUTE_MS, 200_000, window_ms=MINUTE_MS)
    forged = DeadLetter("slis", 0, 9, "implausible", "")
    case.say(HOUR_MS, "dead-letters", "slis", forged)
    case.sli("n1", 11 * MINUTE_MS, 50, p90_us=49, window_ms=MINUTE_MS)  # p50 above p99
    case.say(12 * MINUTE_MS, "acks", "n1", {"node": 7})
    said = told(case.bundle(tmp_path / "case.slack"))
    assert said["figures"]["online"]["windows"] == 9
    assert said["online_violations"] == 1, "one long one"
    assert said["lacks"][-2:] == [
        "1 records of acks could not be read", "1 records of slis could not be read"
    ]  # fmt: skip


def test_windows_that_overlap_count_each_request_once(tmp_path: Path) -> None:
    case = lending()
    for second in range(30, 3600, 5):
        said = {"errors": 12, "end_ms": T0 + second * 1000}
        for _ in range(2):  # and two readers say the same
            case.sli("n1", second * 1000 + 400, requests=600, window_ms=30_000, **said)
    found = figures(case, tmp_path)["online"]
    assert (found["requests"], found["errors"]) == (600 + 100 * 713, 12 + 2 * 713)
    assert found["requests_per_s"] == pytest.approx(20)
    assert found["heard_hours"] == pytest.approx((3595 - 0) / 3600)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_whatever_numbers_are_said_there_is_an_account(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any integer in any place of a sample, a capacity, a ledger's line, a job, an SLI."""
    number = st.integers(-(2**63), 2**63 - 1)
    drawn = [data.draw(st.none() | number) for _ in range(12)]
    amount = [data.draw(number) for _ in range(8)]
    pod = batch_pod("a", cpu_limit_milli=amount[0])
    case = lending(replace(pod, cpu_request_milli=amount[1]), minutes=1)
    for i, names in enumerate((NODE_WANTED, NODE_WANTED[::-1])):
        columns = dict(zip(names, drawn[6 * i :], strict=False))
        case.sample("n1", (2 + i) * MINUTE_MS, columns, {"cpu_usage_us": [drawn[i]]}, 1)
    said = LedgerEntry("n1", "yarn", amount[2], amount[3], mid_cpu_milli=amount[4])
    case.say(1, "ledger", "n1/yarn", said)
    case.capacity("n1", 1, 1, computed_memory_bytes=amount[5])
    for retries in amount[6:]:
        case.job(MINUTE_MS, "etl", "n1", "running", retries=retries, cpu_us=retries)
        case.sli("n1", MINUTE_MS, amount[6], amount[7])
    figures(case, tmp_path_factory.mktemp("any"))


def test_a_damaged_part_is_named_and_the_rest_counts(tmp_path: Path) -> None:
    path = lending(batch_pod("a")).bundle(tmp_path / "case.slack")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"policies/0/") + 300] ^= 1
    path.write_bytes(raw)
    said = told(path)
    assert said["stage"] is None
    assert "policies/0/00000000000000000000.parquet is damaged" in said["lacks"][-1]
    raw[raw.index(b"samples/0/") + 300] ^= 1
    path.write_bytes(raw)
    assert told(path)["lacks"][0].startswith("no samples: use, suppression")


def test_without_a_policy_there_is_no_stage(tmp_path: Path) -> None:
    case = Case()
    case.node("n1")
    for minute in range(3):
        case.sample("n1", minute * MINUTE_MS)
    said = told(case.bundle(tmp_path / "case.slack"))
    assert said["stage"] is None
    assert "no policy: stages and policy versions are not known" in said["lacks"]
