"""`slackwater policy`: check, put, show, history; r9 at the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from schemas import policy
from schemas.records import Inventory
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.topics_admin import publish
from tests.streams.stage_kit import Slackwater

FORCED = ("--force", "--author", "ana", "--note", "as agreed")
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


def test_a_new_installation_observes_and_says_what_comes_next(
    broker: DevBroker, prefix: str
) -> None:
    new = Slackwater(broker.bootstrap, prefix)
    observes = "stage observe: measured and reported only, no command, nothing lent; next: `"
    assert f"default policy published: {observes}" in new.good("topics", "create")
    shown = new.good("policy", "show").splitlines()[1]
    assert shown.startswith(f"# {observes}slackwater policy put FILE --canary LABEL=VALUE`")


def test_put_counts_versions_and_keeps_the_history(sw: Slackwater, write: Write) -> None:
    first = sw.good("policy", "history", "--json")
    assert [json.loads(line)["version"] for line in first.splitlines()] == [1]
    path = write("suppress: {threshold_percent: 60}")
    told = sw.good("policy", "put", path, "--author", "ana", "--note", "pilot pool", "--force")
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


def test_put_of_what_holds_already_publishes_nothing(sw: Slackwater, write: Write) -> None:
    path = write("# the same, written otherwise\nname: default\nblast: {stop_ill_permille: 550}\n")
    told = sw.good("policy", "put", path)
    assert told.startswith("policy default version 1 says the same already")
    assert json.loads(sw.good("policy", "put", path, "--json"))["version"] == 1
    assert len(sw.good("policy", "history").splitlines()) == 1


def test_rollback_puts_an_older_text_on_the_whole_fleet_and_is_never_refused(
    sw: Slackwater, write: Write
) -> None:
    sw.good("policy", "put", write("loop: {tick_ms: 2000}"), *FORCED)
    sw.good("policy", "rollback", "--author", "ana", "--note", "too slow")
    history = [json.loads(one) for one in sw.good("policy", "history", "--json").splitlines()]
    assert [one["version"] for one in history] == [1, 2, 3]
    assert history[0]["digest"] == history[2]["digest"] != history[1]["digest"]
    assert (history[2]["text"], history[2]["note"]) == (
        history[0]["text"],
        "rollback to version 1: too slow",
    )
    assert [one["forced"] for one in history] == [False, True, False]
    sw.good("policy", "rollback", "--to", "2")
    assert "tick_ms: 2000" in sw.good("policy", "show")
    assert "has no version 9 to go back to" in sw.refused("policy", "rollback", "--to", "9")


def test_policies_have_names_of_their_own(sw: Slackwater, write: Write) -> None:
    sw.good("policy", "put", write("name: pool-a"))
    assert "# version 1" in sw.good("policy", "show", "--name", "pool-a")
    assert "no policy pool-b on" in sw.refused("policy", "show", "--name", "pool-b")
    assert "no policy pool-b on" in sw.refused("policy", "history", "--name", "pool-b")
    assert "version 9" in sw.refused("policy", "show", "--version", "9")


def test_a_change_takes_its_stages(sw: Slackwater, write: Write, tmp_path: Path) -> None:
    path = write("suppress: {threshold_percent: 50}")
    assert "changes the whole fleet at once: name a canary" in sw.refused("policy", "put", path)
    assert "needs a --note" in sw.refused("policy", "put", path, "--force")
    told = sw.good("policy", "put", path, "--canary", "pool=a", "--json")
    record = json.loads(told)
    assert (record["version"], record["canary"], record["forced"]) == (2, {"pool": "a"}, False)
    assert policy.parse(record["elsewhere"], "elsewhere") == policy.Policy()
    differing = sw("policy", "diff")
    assert (differing.returncode, differing.stdout) == (1, "suppress.threshold_percent: 65 -> 50\n")
    promoted = json.loads(sw.good("policy", "promote", "--json"))
    assert (promoted["version"], promoted["canary"]) == (3, {})
    assert "no canary is on its way" in sw.refused("policy", "promote")
    assert "the same" in sw.good("policy", "diff", "3", path)
    one = json.loads(sw("policy", "diff", "1", "3", "--json").stdout)
    assert one == [{"key": "suppress.threshold_percent", "old": 65, "new": 50}]


def test_a_canary_that_fails_is_rolled_back_to_what_holds_elsewhere(
    sw: Slackwater, write: Write
) -> None:
    sw.good("policy", "put", write("suppress: {threshold_percent: 50}"), "--canary", "pool=a")
    assert "version 3" in sw.good("policy", "rollback")
    assert policy.parse(sw.good("policy", "show"), "shown") == policy.Policy()
    assert "pool=a" in sw.good("policy", "history")


def test_an_expansion_wants_an_account_that_meets_the_pilot_s_exit(
    sw: Slackwater, write: Write, tmp_path: Path
) -> None:
    sw.good("policy", "put", write("rollout: {stage: protect}"), *FORCED)
    path = write(
        "nodes: [{name: a, match: {pool: a}, rollout: {stage: expand}}]\nrollout: {stage: protect}"
    )
    put = ("policy", "put", path, "--canary", "pool=a")
    account = tmp_path / "account.json"
    met = {"net_benefit": 1.5, "stage": "pilot", "observed_days": 20, "node_days": 100}
    met |= {"evictions": 3, "suppressed_permille": 40, "online_violations": 0}
    for said, says in (
        ({}, "nodes a would be expanded, but there is no positive account of the pilot"),
        (met | {"observed_days": 2}, "rollout.pilot.exit.observed_days: at least 14, the account"),
    ):
        account.write_text(json.dumps(said))
        assert says in sw.refused(*put, "--account", str(account))
    account.write_text(json.dumps(met))
    sw.good(*put, "--account", str(account))
    for text in ("[", "[]", '{"net_benefit": true}', '{"evictions": "many"}'):
        account.write_text(text)
        assert f"{account}: no account: " in sw.refused(*put, "--account", str(account))


def test_drop_ins_are_laid_over_the_file_in_name_order(write: Write, tmp_path: Path) -> None:
    nowhere = Slackwater("127.0.0.1:1", "x.")
    path = write("suppress: {threshold_percent: 60, floor_milli: 20}")
    folder = tmp_path / "policy.d"
    folder.mkdir()
    (folder / "20-late.yaml").write_text("suppress: {threshold_percent: 40}")
    (folder / "10-early.yaml").write_text("suppress: {threshold_percent: 50}")
    (folder / "ignored.txt").write_text("not read")
    said = json.loads(nowhere.good("policy", "check", path, "--drop-in", str(folder), "--json"))
    text = "suppress: {threshold_percent: 40, floor_milli: 20}"
    assert said["digest"] == policy.digest(policy.parse(text, "expected"))
    (folder / "30-bad.yaml").write_text("suppress: {threshold_percent: 400}")
    line = nowhere.refused("policy", "check", path, "--drop-in", str(folder))
    assert f"{folder / '30-bad.yaml'}: suppress.threshold_percent is 400; allowed:" in line
    assert "is no folder" in nowhere.refused("policy", "check", path, "--drop-in", path)


def test_show_node_lays_all_layers(sw: Slackwater, write: Write) -> None:
    text = """
nodes:
  - {name: a, match: {pool: a}, suppress: {threshold_percent: 50}, rollout: {stage: protect}}
"""
    sw.good("policy", "put", write(text), *FORCED)
    assert "no inventory of node n1" in sw.refused("policy", "show", "n1")
    labels = {"pool": "a", "slackwater.io/suppress.floor_milli": "many"}
    asyncio.run(_know(sw, Inventory("n1", 1, 8000, 1 << 30, labels=labels)))
    shown = sw.good("policy", "show", "n1")
    assert shown.splitlines()[0].startswith("# node n1: version 2, digest ")
    assert shown.splitlines()[0].endswith("stage protect")
    assert "# layers: cluster < nodes[0] a < label slackwater.io/suppress.floor_milli" in shown
    assert "# stage protect: suppression, eviction and isolation as the policy says" in shown
    assert "# refused: label slackwater.io/suppress.floor_milli: suppress.floor_milli is" in shown
    found = json.loads(sw.good("policy", "show", "n1", "--json"))
    assert found["policy"]["suppress"]["threshold_percent"] == 50
    assert found["policy"]["capacity"]["enabled"] is False
    assert yaml.safe_load(shown) == found["policy"]


async def _know(sw: Slackwater, inventory: Inventory) -> None:
    topic = full_name(sw.prefix, "inventory")
    await publish(sw.broker, topic, inventory.node.encode(), inventory)


def test_without_topics_it_says_which_command_makes_them(
    broker: DevBroker, prefix: str, write: Write
) -> None:
    line = Slackwater(broker.bootstrap, prefix).refused("policy", "put", write("name: default"))
    assert "run `slackwater topics create`" in line
