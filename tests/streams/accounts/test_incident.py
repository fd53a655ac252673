"""The account of the planted incident against what its tables say; parts against the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import typer
from typer.testing import CliRunner

from streams.recording import Recording, open_recording
from streams.recording.cut_cli import cut_command
from tests.streams.accounts.test_account import told

BUNDLE = Path(__file__).parents[2] / "fixtures" / "recordings" / "incident.slack"


CUT = typer.Typer()
CUT.command()(cut_command)


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return told(BUNDLE, "--by", "policy")


def test_sums_are_those_of_the_tables(said: dict[str, Any]) -> None:
    figures = said["figures"]
    with open_recording(BUNDLE) as bundle:
        samples = bundle.table("samples").group_by("node")
        ends = samples.aggregate([("be_cpu_usage_us", "min"), ("be_cpu_usage_us", "max")])
        used_us = pc.sum(ends["be_cpu_usage_us_max"]).as_py()
        used_us -= pc.sum(ends["be_cpu_usage_us_min"]).as_py()
        jobs = bundle.table("jobs")
        done = pc.count_distinct(jobs.filter(pc.equal(jobs["state"], "done"))["job"]).as_py()
        slis = bundle.table("slis")
        gone = _gone(bundle)
        online = figures["online"]
        assert online["windows"] == slis.num_rows
        assert online["errors"] == pc.sum(slis["errors"]).as_py()
        assert online["requests"] == pc.sum(slis["requests"]).as_py()
        assert online["heard_hours"] == pytest.approx(pc.sum(slis["window_ms"]).as_py() / 3.6e6)
        assert not bundle.problems
    assert figures["lending"]["batch_cpu"]["used_hours"] == pytest.approx(used_us / 3.6e9, abs=1e-6)
    assert figures["jobs"]["done"] == done
    assert figures["evictions"]["pods"] == len(gone) > 0


def _gone(bundle: Recording) -> set[tuple[str, str]]:
    acks = bundle.table("acks").to_pylist()
    return {
        (ack["node"], uid)
        for ack in acks
        if ack["decider"].startswith("evict_") and ack["outcome"] in ("applied", "local")
        for uid in ack["pods"]
    }


def test_the_policy_that_reclaims_too_much_stands_out(said: dict[str, Any]) -> None:
    """By policy version: the bad one has the evictions, and the services suffer under it."""
    rows = {row["name"].partition(" (")[0]: row["figures"] for row in said["rows"]}
    evicted = {name: figures["evictions"]["pods"] for name, figures in rows.items()}
    beyond = {name: figures["online"]["beyond_hours"] for name, figures in rows.items()}
    assert evicted == {"version 3, 5": 0, "version 4": 9}
    assert beyond["version 4"] > 10 * beyond["version 3, 5"]


@pytest.mark.parametrize("cut_s", [60, 199])
def test_an_account_of_two_halves_is_the_whole(said: dict[str, Any], cut_s: int) -> None:
    cut_ms = said["from_ms"] + cut_s * 1000 + 1
    halves = [told(BUNDLE, "--to", str(cut_ms)), told(BUNDLE, "--from", str(cut_ms))]
    whole = said["figures"]
    for path in (
        "machines.node_hours", "machines.busy_core_hours", "lending.batch_cpu.predicted_hours",
        "lending.batch_cpu.lent_hours", "lending.batch_cpu.used_hours",
        "lending.batch_memory.used_hours", "suppression.best_effort_pod_hours",
        "suppression.suppressed_pod_hours", "evictions.pods", "jobs.done", "jobs.retries",
        "online.requests", "online.errors", "online.beyond_hours", "online.violations",
    ):  # fmt: skip
        parts = [_at(half["figures"], path) for half in halves]
        assert sum(parts) == pytest.approx(_at(whole, path), rel=0.005), path


def test_hidden_names_change_no_figure(said: dict[str, Any], tmp_path: Path) -> None:
    span = (str(said["from_ms"] + 100_000), str(said["to_ms"]))
    figures = []
    for name, more in (("open", ()), ("hidden", ("--pseudonymise",))):
        path = tmp_path / f"{name}.slack"
        cut = [str(BUNDLE), "--from", span[0], "--to", span[1], *more, "-o", str(path)]
        done = CliRunner().invoke(CUT, cut)
        assert done.exit_code == 0, (done.output, done.exception)
        figures.append(told(path)["figures"])
    assert figures[0] == figures[1]


def _at(figures: Any, path: str) -> float:
    for name in path.split("."):
        figures = figures[name]
    found: float = figures
    return found


def test_times_count_back_from_the_end_of_a_recording() -> None:
    said = told(BUNDLE, "--from", "-2m", "--to", "now")
    assert said["to_ms"] - said["from_ms"] == 120_000
