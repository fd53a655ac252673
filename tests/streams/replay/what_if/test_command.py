"""`slackwater replay --policy` and `--sweep`: refusals before anything is folded, and answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from streams.replay.cli import app
from streams.replay.what_if.result import WhatIf
from tests.streams.recording.made import bundle_of, log_of

runner = CliRunner()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what-if") / "made.slack"
    bundle_of(*log_of(seconds=20), path)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "/nowhere.yaml"], "No such file"),
        (["--policy", "version:7"], "holds versions 1"),
        (["--sweep", "suppress.threshold_percent=500"], "allowed: a whole number from 0 to 100"),
        (["--sweep", "suppress.tresholt=5"], "no key of the policy"),
        (["--sweep", "suppress"], "write KEY=VALUE,VALUE"),
        (["--sweep", "name=other"], "workers follow default alone"),
        (["--sweep", "suppress.floor_milli=1", "--sort-by", "beauty"], "one of lent_core_h"),
        (["--policy", "version:1", "--speed", "1x"], "without --keys, --speed and --into"),
        (["--policy", "version:1", "--partition", "77"], "partition 77 is not there"),
    ],
)
def test_what_may_not_be_asked_is_refused(bundle: Path, arguments: list[str], says: str) -> None:
    done = runner.invoke(app, [str(bundle), *arguments])
    assert done.exit_code == 2, done.output
    assert says in done.output


def test_a_grid_is_one_table_best_first(bundle: Path) -> None:
    done = runner.invoke(app, [
        str(bundle), "--jobs", "1", "--sort-by", "lent_core_h", "--json",
        "--sweep", "capacity.cpu_reclaim_percent=30,90",
        "--sweep", "suppress.threshold_percent=65,40",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    found = msgspec.json.decode(done.stdout, type=list[WhatIf])
    assert len(found) == 4
    lent = [each.whole.would.batch_cpu_core_ms + each.whole.would.mid_cpu_core_ms for each in found]
    assert lent == sorted(lent, reverse=True)
    assert lent[0] > lent[-1]
    assert {each.whole.was.command_count for each in found} == {found[0].whole.was.command_count}
    assert found[0].other.changes["capacity.cpu_reclaim_percent"] == "60 -> 90"


def test_the_same_in_two_processes(bundle: Path) -> None:
    asked = [str(bundle), "--json", "--sweep", "suppress.threshold_percent=40,50"]
    alone, together = (runner.invoke(app, [*asked, "--jobs", jobs]) for jobs in ("1", "2"))
    assert alone.exit_code == together.exit_code == 0
    assert alone.stdout == together.stdout


def test_an_answer_in_words_says_where_it_leaves_the_facts(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("name: default\nrollout: {stage: expand}\nsuppress: {threshold_percent: 40}\n")
    done = runner.invoke(app, [str(bundle), "--jobs", "1", "--policy", str(other)])
    assert done.exit_code == 0, done.output
    assert "Mark: diverges at" in done.stdout
    assert "suppress.threshold_percent: 65 -> 40" in done.stdout
    assert "would be" in done.stdout
