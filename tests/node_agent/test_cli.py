"""`slackwater node`: options, errors in one line, and the journal made visible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from node_agent.cli import main
from node_agent.courtesy import DEFAULT_NS, set_slice
from node_agent.journal import Journal
from node_agent.lock import lock
from node_agent.metrics import TABLE
from node_agent.process import main as process
from node_agent.settings import Kubernetes, Settings, from_wire, parse_period, to_wire


@pytest.fixture(autouse=True)
def _slice_of_this_process() -> Iterator[None]:
    """`process` sets it for the process it lives in, which is the tests' own here."""
    yield
    set_slice(DEFAULT_NS)


@pytest.mark.parametrize(("text", "ms"), [("1s", 1000), ("200ms", 200), ("100ms", 100)])
def test_periods(text: str, ms: int) -> None:
    assert parse_period(text) == ms


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "99ms", "11s", "1.5s", "1m", "1 s"])
def test_bad_periods_say_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="100ms to 10s"):
        parse_period(text)


def test_settings_survive_the_way_into_the_process(tmp_path: Path) -> None:
    settings = Settings(
        "n", "b:1", "p.", tmp_path, 200, tmp_path / "i.yaml", ("a/*",), "be", 20, 0, "::1", False
    )
    assert from_wire(orjson.dumps(to_wire(settings)).decode()) == settings


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (Kubernetes(kubelet="ftp://x"), "want a URL such as"),
        (Kubernetes(api_server="https://x/api"), "scheme, host and port alone"),
        (Kubernetes(kubelet="http://x", token="t"), "in the open"),
    ],
)
def test_whom_to_ask_is_checked_at_the_start(
    tmp_path: Path, said: Kubernetes, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings("n", "127.0.0.1:1", "p.", tmp_path, kubernetes=said, kubepods=False)
    wire = orjson.dumps(to_wire(settings)).decode()
    assert from_wire(wire) == settings
    assert process(wire) == 1
    assert word in caplog.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--period", "3x"], "period '3x'"),
        (["run", "--be-root", "/"], "hierarchy root"),
        (["run", "--floor-milli", "3"], "10"),
        (["run", "--nonsense"], "No such option"),
        (["run", "--metrics-port", "99999"], "65535"),
        (["run", "--brokers", "a:b:c"], "want host:port"),
        (["run", "--node", "../x"], "want 1 to 253"),
        (["release-all", "--state-dir", "/nonexistent"], "no such folder"),
        (["show", "--state-dir", "/nonexistent"], "no such folder"),
    ],
)
def test_wrong_options_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) != 0
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_second_agent_and_release_all_beside_a_running_one_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lock(tmp_path)
    wire = orjson.dumps(to_wire(Settings("n", "127.0.0.1:1", "p.", tmp_path))).decode()
    assert process(wire) == 1
    assert "one agent a node" in caplog.text
    assert main(["release-all", "--state-dir", str(tmp_path)]) == 1
    assert "one agent a node" in capsys.readouterr().err


def test_show_and_release_all_without_a_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "--state-dir", str(tmp_path)]) == 0
    assert "never started" in capsys.readouterr().out
    assert main(["release-all", "--state-dir", str(tmp_path)]) == 0
    assert "nothing to restore" in capsys.readouterr().out


def test_show_prints_the_standing_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path, "k")
    journal.boot("b1", 1)
    journal.keep_originals("be", [("cpu_quota", ".", {"quota_us": -1, "period_us": 100_000})])
    journal.append({"kind": "in_force", "in_force_milli": 300, "granted_milli": 500})
    journal.close()
    assert main(["show", "--state-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "in force    300 milli" in text
    assert "original    be cpu_quota ." in text
    assert main(["show", "--state-dir", str(tmp_path), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["granted_milli"] == 500


def test_a_damaged_journal_is_said_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(tmp_path, "k")
    journal.boot("b1", 1)
    journal.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(b"{spoilt\n" + path.read_bytes())
    assert main(["release-all", "--state-dir", str(tmp_path)]) == 1
    assert "1 broken lines in the journal" in capsys.readouterr().err
    assert main(["show", "--state-dir", str(tmp_path)]) == 0
    assert "broken      1 lines" in capsys.readouterr().out


def test_metric_names_are_unique_and_well_formed() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in names)
