"""`slackwater policy`: check, put, show, history; r9 at the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from schemas import policy
from streams.dev_broker import DevBroker
from tests.streams.stage_kit import Slackwater

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: str) -> str:
        path = tmp_path / "pilot.yaml"
        path.write_text(text)
        return str(path)

    return put


@pytest.fixture
def sw(broker: DevBroker, prefix: str) -> Slackwater:
    one = Slackwater(broker.bootstrap, prefix)
    one.good("topics", "create", "--partitions", "2")
    return one


def test_check_needs_no_broker_and_names_the_digest(write: Write) -> None:
    nowhere = Slackwater("127.0.0.1:1", "x.")
    path = write("name: default\n")
    expected = policy.digest(policy.Policy())
    assert nowhere.good("policy", "check", path) == (
        f"{path}: good; policy default, digest {expected}\n"
    )


def test_r9_check_and_put_refuse_with_file_key_and_range(write: Write) -> None:
    nowhere = Slackwater("127.0.0.1:1", "x.")
    path = write("suppress: {threshold_percent: 130}")
    expected = (
        f"slackwater: {path}: suppress.threshold_percent is 130; "
        "allowed: a whole number from 0 to 100\n"
    )
    for verb in ("check", "put"):  # put refuses before it looks for a broker
        assert nowhere.refused("policy", verb, path) == expected


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    nowhere = Slackwater("127.0.0.1:1", "x.")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    assert "not UTF-8" in nowhere.refused("policy", "check", str(binary))
    assert "No such file" in nowhere.refused("policy", "check", str(tmp_path / "none"))


def test_put_counts_versions_and_keeps_the_history(sw: Slackwater, write: Write) -> None:
    first = sw.good("policy", "history", "--json")
    assert [json.loads(line)["version"] for line in first.splitlines()] == [1]
    path = write("suppress: {threshold_percent: 60}")
    told = sw.good("policy", "put", path, "--author", "ana", "--note", "pilot pool")
    assert told.startswith("policy default version 2, digest ")
    versions = [json.loads(line) for line in sw.good("policy", "history", "--json").splitlines()]
    assert [(one["version"], one["author"], one["note"]) for one in versions][1:] == [
        (2, "ana", "pilot pool")
    ]
    assert versions[1]["digest"] == policy.digest(policy.parse(versions[1]["text"], "history"))
    assert "   2 " in sw.good("policy", "history")
    shown = sw.good("policy", "show")
    assert shown.splitlines()[0] == f"# version 2, digest {versions[1]['digest']}, by ana"
    assert policy.parse(shown, "shown").suppress.threshold_percent == 60
    older = policy.parse(sw.good("policy", "show", "--version", "1"), "shown")
    assert older == policy.Policy()
    full = yaml.safe_load(sw.good("policy", "show", "--full"))
    assert full["suppress"]["floor_milli"] == policy.Policy().suppress.floor_milli


def test_put_refuses_what_changes_nothing(sw: Slackwater, write: Write) -> None:
    path = write("# the same, written otherwise\nname: default\nblast: {stop_ill_permille: 550}\n")
    line = sw.refused("policy", "put", path)
    assert "policy default version 1 says the same already" in line
    assert len(sw.good("policy", "history").splitlines()) == 1


def test_rollback_is_putting_an_older_text_again(sw: Slackwater, write: Write) -> None:
    sw.good("policy", "put", write("loop: {tick_ms: 2000}"))
    sw.good("policy", "put", write("name: default"))
    history = [json.loads(one) for one in sw.good("policy", "history", "--json").splitlines()]
    assert [one["version"] for one in history] == [1, 2, 3]
    assert history[0]["digest"] == history[2]["digest"] != history[1]["digest"]


def test_policies_have_names_of_their_own(sw: Slackwater, write: Write) -> None:
    sw.good("policy", "put", write("name: pool-a"))
    assert "# version 1" in sw.good("policy", "show", "--name", "pool-a")
    assert "no policy pool-b on" in sw.refused("policy", "show", "--name", "pool-b")
    assert "no policy pool-b on" in sw.refused("policy", "history", "--name", "pool-b")
    assert "version 9" in sw.refused("policy", "show", "--version", "9")


def test_without_topics_it_says_which_command_makes_them(
    broker: DevBroker, prefix: str, write: Write
) -> None:
    line = Slackwater(broker.bootstrap, prefix).refused("policy", "put", write("name: default"))
    assert "run `slackwater topics create`" in line
