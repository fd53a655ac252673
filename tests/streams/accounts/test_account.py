"""`slackwater account` on cases whose sums are known; the gate reads what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from streams.accounts import cli
from streams.accounts.statement import Statement
from tests.streams.accounts.case import HOUR_MS, MINUTE_MS, PRICES, T0, Case, batch_pod, ten_hours

APP = typer.main.get_command(cli.app)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, list(arguments))


def told(path: Path, *more: str) -> dict[str, Any]:
    """The account of a recording as JSON."""
    done = run(str(path), "--json", *more)
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ten_hours().bundle(tmp_path_factory.mktemp("case") / "pilot.slack")


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prices") / "prices.yaml"
    path.write_text(PRICES)
    return str(path)


def test_predicted_lent_used_and_what_it_came_to(bundle: Path, prices: str) -> None:
    said = told(bundle, "--prices", prices)
    line = said["figures"]["lending"]["batch_cpu"]
    assert line == {
        "predicted_hours": 1000, "offered_hours": 1000, "lent_hours": 800, "used_hours": 600,
        "lent_of_predicted": 0.8, "used_of_lent": 0.75, "used_of_predicted": 0.6,
    }  # fmt: skip
    found = said["benefit"]
    assert found["saved_machines"] + found["saved_energy"] == 120
    assert (found["online_regression"], found["batch_retries"], found["platform"]) == (15, 10, 30)
    assert said["net_benefit"] == found["net"] == 65
    assert (found["regression_against"], found["regression_hours"]) == ("control group", 3)
    assert (said["stage"], said["online_violations"], said["node_days"]) == ("pilot", 3, 0)
    assert said["lacks"] == []


def test_a_pod_that_asked_for_4_cores_and_got_002_for_a_minute_is_starved(bundle: Path) -> None:
    said = told(bundle)
    (pod,) = said["starved"]
    assert pod == {
        "node": "n1", "pod": "slow", "workload": "batch/etl", "minutes": 1, "satisfaction": 0.005,
        "first_ms": T0 + 61 * MINUTE_MS,
    }  # fmt: skip
    figures = said["figures"]["satisfaction"]
    assert (figures["starved_pods"], figures["starved_pod_minutes"]) == (1, 1)
    assert figures["pod_minutes"] == 2 * 600
    assert told(bundle, "--starved-minutes", "2")["starved"] == []
    assert told(bundle, "--starved-below", "0.005")["starved"] == []


def test_the_control_group_stands_beside_and_is_no_part_of_it(bundle: Path) -> None:
    said = told(bundle)
    ours, control = said["figures"], said["control"]
    assert (ours["machines"]["nodes"], control["machines"]["nodes"]) == (1, 1)
    assert control["lending"]["reclaimed_core_hours"] == 0
    assert (ours["online"]["beyond_hours"], control["online"]["beyond_hours"]) == (3, 0)
    assert ours["online"]["latency"]["p99"]["most_us"] == pytest.approx(150_000, rel=0.001)
    assert control["online"]["latency"]["p99"]["typical_us"] == pytest.approx(40_000, rel=0.001)
    assert said["stage_node_days"] == {
        "control": pytest.approx(10 / 24), "pilot": pytest.approx(10 / 24)
    }  # fmt: skip
    assert (ours["machines"]["utilisation"], control["machines"]["utilisation"]) == (
        pytest.approx(120 / 128),
        pytest.approx(60 / 128),
    )


def test_jobs_queue_complete_and_begin_again(bundle: Path) -> None:
    jobs = told(bundle)["figures"]["jobs"]
    assert (jobs["jobs"], jobs["done"], jobs["retries"]) == (1, 1, 10)
    assert (jobs["jobs_worth_of_progress"], jobs["left"]) == (1.0, {"done": 1})
    assert jobs["queue"]["p50_ms"] == pytest.approx(90_000, rel=0.001)
    assert jobs["completion"]["p99_ms"] == pytest.approx(9 * HOUR_MS, rel=0.001)


def test_part_of_the_time(bundle: Path) -> None:
    half = told(bundle, "--from", str(T0), "--to", str(T0 + 5 * HOUR_MS + 30_000))
    line = half["figures"]["lending"]["batch_cpu"]
    assert line["predicted_hours"] == pytest.approx(500 * (1 + 1 / 600))
    assert line["used_of_lent"] == pytest.approx(0.75, rel=0.002)
    later = told(bundle, "--from", str(T0 + 6 * HOUR_MS))["figures"]
    assert later["lending"]["batch_cpu"]["lent_hours"] == 320, "what was lent before still is"
    assert later["satisfaction"]["starved_pods"] == 0
    assert later["online"]["violations"] == 1
    early = told(bundle, "--from", str(T0 - HOUR_MS))
    assert early["from_ms"] == T0
    assert early["lacks"][-1].startswith("there is nothing before 2026-09-21T")
    done = run(str(bundle), "--from", str(T0 + 99 * HOUR_MS))
    assert "nothing lies in that time" in str(done.exception)


def test_what_is_missing_is_said_and_never_taken_for_nothing(tmp_path: Path, prices: str) -> None:
    case = Case()
    case.policy("rollout: {stage: pilot}")
    case.node("n1", [batch_pod("a")])
    for minute in range(11):
        case.sample("n1", minute * MINUTE_MS, {"be_cpu_usage_us": minute * 1000})
    path = case.bundle(tmp_path / "bare.slack")
    said = told(path, "--prices", prices)
    assert said["net_benefit"] is None
    assert said["online_violations"] is None
    assert said["figures"]["lending"]["batch_cpu"]["predicted_hours"] is None
    assert said["benefit"]["online_regression"] is None
    assert said["lacks"] == [
        "no capacity: what could have been lent is not known",
        "no ledger: what was lent is not known, its hours say 0",
        "no slis: how online services fared is not known; the benefit is not a number",
        (
            "no jobs: queue and completion times and retries are not known; the benefit is not "
            "a number"
        ),
    ]
    assert "Net benefit: not known\n" in run(str(path), "--prices", prices).stdout
    assert "no prices" in told(path)["lacks"][-1]


def test_a_page_for_people_and_rows_for_spreadsheets(
    bundle: Path, prices: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    done = run(str(bundle), "--prices", prices, "--by", "workload", "--csv", str(rows))
    assert done.exit_code == 0, done.exception
    page = done.stdout
    assert "Net benefit: 65.00 EUR" in page
    assert (
        "= saved machines 108.00 + energy 12.00 - online regression 15.00 - batch retries 10.00 "
        "- platform 30.00"
    ) in page
    assert (
        "predicted 1000.00, offered 1000.00, lent 800.00, used 600.00 core-hours; used 0.750"
        in page
    )
    assert "starved: slow (batch/etl) on n1, 1 min, 0.005 of what it asked for" in page
    head, *lines = rows.read_text().splitlines()
    names = head.split(",")
    used = names.index("lending.batch_cpu.used_hours")
    by_name = {line.split(",")[0]: float(line.split(",")[used]) for line in lines}
    assert by_name["(all)"] == by_name["batch/etl"] == 600
    assert by_name["shop/web"] == by_name["(none)"] == 0


def test_rows_add_up_to_the_whole(tmp_path: Path) -> None:
    """Pools, and policy versions: what ran under which, with a part that is no pod's."""
    case = Case()
    case.policy("rollout: {stage: expand}")
    case.policy("rollout: {stage: expand}\nsuppress: {threshold_percent: 50}", 10 * MINUTE_MS, 2)
    for name, pool in (("n1", "a"), ("n2", "b")):
        case.node(name, [batch_pod(f"{name}-pod")], zone=pool)
        case.lent(name, 2)
        for minute in range(21):
            root_us = minute * 2 * 60_000_000
            case.sample(
                name, minute * MINUTE_MS, {"be_cpu_usage_us": root_us},
                {"cpu_usage_us": [root_us // 2]}, 1,
            )  # fmt: skip
    path = case.bundle(tmp_path / "rows.slack")

    def hours(*more: str) -> dict[str, float]:
        rows = told(path, *more)["rows"]
        return {r["name"]: r["figures"]["lending"]["batch_cpu"]["used_hours"] for r in rows}

    assert hours("--pool-label", "zone") == pytest.approx({"a": 2 / 3, "b": 2 / 3})
    assert hours() == pytest.approx({"(none)": 4 / 3})
    assert hours("--by", "workload") == pytest.approx({"batch/etl": 2 / 3, "(none)": 2 / 3})
    versions = hours("--by", "policy")
    assert [name.split(" (")[0] for name in versions] in (
        ["version 1", "version 2"],
        ["version 2", "version 1"],
    )
    assert sum(versions.values()) == pytest.approx(4 / 3)
    assert list(versions.values()) == pytest.approx([2 / 3, 2 / 3])


def test_observe_is_accounted_in_the_same_form_and_serves_as_baseline(
    tmp_path: Path, prices: str
) -> None:
    case = Case()
    case.policy("rollout: {stage: observe}\n" + _objectives())
    case.node("n1")
    for minute in range(0, 601, 10):
        case.sample("n1", minute * MINUTE_MS, {"cpu_busy_us": minute * 60_000_000})
    for hour in range(1, 11):
        case.sli("n1", hour * HOUR_MS, 150_000 if hour == 1 else 50_000)
    file = tmp_path / "observe.json"
    path = case.bundle(tmp_path / "observe.slack")
    assert run(str(path), "-o", str(file)).exit_code == 0
    said = json.loads(file.read_bytes())
    assert (said["stage"], said["figures"]["online"]["beyond_hours"]) == ("observe", 1)
    assert "nothing is lent in stage observe" in said["lacks"][0]
    lone = ten_hours()
    lone.said = [one for one in lone.said if one[2] is None or not one[2].startswith(b"n2")]
    pilot = lone.bundle(tmp_path / "pilot.slack")
    alone = told(pilot, "--prices", prices)
    assert alone["control"] is None
    assert (alone["benefit"]["regression_against"], alone["net_benefit"]) == ("nothing", 65)
    assert "no control group and no baseline" in alone["lacks"][0]
    beside = told(pilot, "--prices", prices, "--baseline", str(file))
    assert (beside["benefit"]["regression_against"], beside["net_benefit"]) == ("baseline", 70)
    assert "no account" in str(run(str(pilot), "--baseline", prices).exception)


def _objectives() -> str:
    return (
        "slo_guard: {objectives: [{workload: shop/web, p99_us: 100000, rounds: 1, "
        "window_ms: 3600000}]}"
    )


def test_every_json_field_is_documented() -> None:
    """The shape is that of the structs, and a reader of N-1 takes it."""
    said = msgspec.json.schema(Statement)
    assert {"figures", "control", "benefit", "rows", "starved", "lacks"} <= set(
        said["$defs"]["Statement"]["properties"]
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a recording or a bundle, or --brokers"),
        (("--brokers", "127.0.0.1:1"), "--brokers needs --from"),
        (("x.slack",), "x.slack does not exist"),
        (("x.slack", "--stage", "control"), "--stage 'control': one of observe, protect"),
        (("x.slack", "--by", "month"), "--by 'month': one of pool, workload, policy"),
        (("x.slack", "--from", "noon"), "--from 'noon'"),
    ],
)
def test_a_bad_wish_is_refused_before_anything_is_read(
    arguments: tuple[str, ...], says: str
) -> None:
    done = run(*arguments)
    assert says in str(done.exception)
    assert done.stdout == ""
