"""The planted incident: the report finds the policy, the services, the nodes, the suspects."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from streams.recording import BadRecording, Recording, open_recording
from streams.report import cli
from streams.report.build import Wish, build
from streams.report.cli import app
from streams.report.model import Report
from streams.report.page import render
from tests.sim.broker import START_MS
from tests.sim.incident import BAD_S, GOOD_S, NODES, VERSIONS

LARGEST_PAGE = 2_000_000


def told(report: Report, kind: str) -> list[str]:
    return [one.text for one in report.findings if one.kind == kind]


def test_it_names_the_policy_that_was_published_and_by_whom(report: Report) -> None:
    first, second = told(report, "policy")
    assert "version 4 at 22:16:20 by ann" in first
    assert "suppress.threshold_percent 65 -> 98" in first
    assert "version 5 at 22:18:50 by bob" in second
    assert [one.version for one in report.policies] == [version for _, version, *_ in VERSIONS]


def test_it_names_the_services_and_when_they_left_their_objective(report: Report) -> None:
    first, second = told(report, "slis")
    assert first.startswith("shop/web left its objective (p99 at most 48 ms")
    assert second.startswith("shop/cart left its objective")
    for service in report.services:
        since_s, until_s = ((at - START_MS) / 1000 for at in (service.from_ms, service.to_ms))
        assert BAD_S <= since_s < until_s <= GOOD_S + 10
        assert service.worst_p99_ms > service.p99_ms == 48
        assert service.beyond_s > 100


def test_it_says_what_was_lent_instead_of_what_before(report: Report) -> None:
    lent = told(report, "lending")
    assert lent
    assert all(each.startswith("From 22:16:20 best-effort work on node-") for each in lent)


def test_its_suspects_are_batch_pods_that_ran_while_services_suffered(report: Report) -> None:
    assert len(told(report, "suspect")) == 3
    worst = report.suspects[0]
    assert worst.workload == "batch/jobs"
    assert worst.correlation > 0.5
    assert worst.beyond_cores > 10 * worst.calm_cores
    assert worst.share_percent > 50


def test_every_eviction_is_a_mark_with_its_sentence(report: Report) -> None:
    by_node = {
        name: [mark for mark in detail.marks if mark.lane in ("node", "evict_memory")]
        for name, detail in report.details.items()
    }
    marks = [mark for found in by_node.values() for mark in found]
    assert marks
    assert all(BAD_S < (mark.log_ms - START_MS) / 1000 < GOOD_S for mark in marks)
    assert all("evicted" in mark.text or "told to leave" in mark.text for mark in marks)
    counted = {line.node: line.evictions for line in report.nodes if line.evictions}
    assert set(counted) == {name for name, found in by_node.items() if found}


def test_marks_carry_the_version_that_held_then(report: Report) -> None:
    for detail in report.details.values():
        for mark in detail.marks:
            at_s = (mark.log_ms - START_MS) / 1000
            if mark.policy and at_s > GOOD_S + 2:
                assert mark.version == 5
            elif mark.policy and BAD_S + 2 < at_s < GOOD_S:
                assert mark.version == 4
            elif mark.policy and at_s < BAD_S:
                assert mark.version == 3


def test_timelines_show_more_best_effort_work_while_the_policy_held(report: Report) -> None:
    fleet = report.fleet
    during: list[float] = []
    before: list[float] = []
    for at, value in zip(fleet.times_s, fleet.series["best_effort"], strict=True):
        assert at is not None
        second = at - START_MS / 1000
        if value is not None and second < BAD_S:
            before.append(value)
        elif value is not None and BAD_S + 10 < second < GOOD_S:
            during.append(value)
    assert sum(during) / len(during) > 2 * sum(before) / len(before)


def test_nodes_are_chosen_and_a_node_that_is_not_there_is_refused(recording: Recording) -> None:
    one = build(recording, Wish("x", ("node-00002",), 1))
    assert list(one.details) == ["node-00002"]
    assert len(one.nodes) == NODES
    assert {pod.node for pod in one.pods} == {"node-00002"}
    with pytest.raises(BadRecording, match="node 'other' is not in it: it has node-00000"):
        build(recording, Wish("x", ("other",), 1))


@pytest.mark.parametrize("tenths", [1, 5, 8])
def test_of_a_bundle_that_was_cut_short_it_says_what_is_left(
    bundle: Path, tmp_path: Path, tenths: int
) -> None:
    raw = bundle.read_bytes()
    path = tmp_path / "short.slack"
    path.write_bytes(raw[: len(raw) * tenths // 10])
    with open_recording(path) as recording:
        report = build(recording, Wish("short"))
    assert len(report.nodes) == NODES
    assert any(text.startswith("Part of the recording") for text in told(report, "damage"))
    assert "samples/" in " ".join(report.about.problems)
    assert render(report)


def test_the_page_loads_nothing_and_is_small(report: Report) -> None:
    page = render(report)
    assert len(page) < LARGEST_PAGE
    assert "default-src 'none'" in page
    for load in ("src=", 'href="http', "url(", "@import", "fetch(", "XMLHttpRequest"):
        assert load not in page.replace("src=x onerror", ""), load


def test_the_command_writes_a_page_and_says_what_stands_out(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, [str(bundle), "-o", str(out), "--nodes", "2"])
    assert done.exit_code == 0, done.output
    assert "- shop/web left its objective" in done.output
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob("*.partial"))


def test_no_name_writes_on_the_terminal(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = msgspec.structs.replace(report.findings[0], text="pod \x1b[2J\n gone")
    made = msgspec.structs.replace(report, findings=(evil,))
    cli._write(made, tmp_path / "page.html", as_json=False)
    assert "- pod \\x1b[2J\\n gone" in capsys.readouterr().out


def test_the_same_as_json_and_as_an_answer_in_sql(bundle: Path) -> None:
    made = CliRunner().invoke(app, [str(bundle), "--json", "--nodes", "1"])
    assert msgspec.json.decode(made.stdout, type=Report).about.nodes == NODES
    asked = CliRunner().invoke(
        app, [str(bundle), "--sql", "select count(*) as n from policies", "--json"]
    )
    assert msgspec.json.decode(asked.stdout) == {"n": len(VERSIONS)}


def test_what_cannot_be_is_said_in_one_line(bundle: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ([str(tmp_path / "none.slack")], "does not exist"),
        ([str(bundle), "--node", "nobody"], "node 'nobody' is not in it"),
        ([str(bundle), "--what-if", str(bundle)], "is no answer to what if"),
        ([str(bundle), "--policy", "version:99"], "99"),
        ([str(bundle), "--sql", "select nonsense"], "nonsense"),
        ([str(bundle), "-o", str(tmp_path / "no" / "where.html")], "is no folder"),
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2, arguments
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_page_replaces_an_earlier_page_and_nothing_else(bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "incident.slack"
    source.write_bytes(bundle.read_bytes())
    page, note = tmp_path / "page.html", tmp_path / "note.html"
    note.write_text("mine")
    for target in (source, note):
        before = target.read_bytes()
        done = CliRunner().invoke(app, [str(source), "-o", str(target), "--nodes", "1"])
        assert (done.exit_code, target.read_bytes()) == (2, before), done.output
    for _ in range(2):
        done = CliRunner().invoke(app, [str(source), "-o", str(page), "--nodes", "1"])
        assert done.exit_code == 0, done.output
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "samples.csv").write_text("mine")
    done = CliRunner().invoke(app, [str(source), "--csv", str(tmp_path / "tables")])
    assert (done.exit_code, (tmp_path / "tables" / "samples.csv").read_text()) == (2, "mine")
