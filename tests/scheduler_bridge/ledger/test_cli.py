"""`slackwater ledger` on a real topic, and its rows from a view."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from scheduler_bridge.ledger.cli import app, rows
from scheduler_bridge.ledger.log import LedgerLog
from scheduler_bridge.ledger.setup import LedgerSettings, settings_of
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.view import View
from schemas import codec, ledger
from schemas.ledger_records import LedgerClaim, LedgerGrant
from schemas.records import LedgerEntry
from streams.dev_broker import DevBroker
from tests.scheduler_bridge.ledger.stage import GIB, Topics
from tests.scheduler_bridge.test_bridge_broker import capacity, make_topics


def test_a_row_says_what_is_held_what_may_be_and_what_is_left() -> None:
    view = View()
    view.fold_capacity(b"n", codec.encode(capacity("n", 1, 8000)), 1)
    entry = LedgerEntry("n", "kubernetes", 3000, GIB, 500, 0, (), 700, 0)
    claim = LedgerClaim("n", "slurm", "a", 60_000, 2000)
    grant = LedgerGrant("n", "slurm", "a", True, "", 1, 0, cpu_milli=2000, until_ms=60_000)
    for key, record in (
        (ledger.entry_key("n", "kubernetes"), entry),
        (ledger.claim_key("n", "slurm", "a"), claim),
        (ledger.grant_key("n", "slurm", "a"), grant),
    ):
        view.fold_ledger(key, codec.encode(record), 0, 0, 1)
    found = {(one["scheduler"], one["class"]): one for one in rows(view, 2)}
    assert found.keys() == {("kubernetes", "batch"), ("kubernetes", "mid"), ("slurm", "batch")}
    batch = found["kubernetes", "batch"]
    assert (batch["allocated_cpu_milli"], batch["releasing_cpu_milli"]) == (3000, 500)
    assert found["slurm", "batch"]["granted_cpu_milli"] == 2000
    assert {one["remainder_cpu_milli"] for key, one in found.items() if key[1] == "batch"} == {3000}
    assert found["kubernetes", "mid"]["allocated_cpu_milli"] == 700
    assert rows(view, 2, "other") == []


def test_it_is_shown_from_a_real_topic(broker: DevBroker, prefix: str) -> None:
    async def fill() -> None:
        await make_topics(broker.bootstrap, prefix)
        async with Topics(broker.bootstrap, prefix) as topics:
            await topics.capacity("n1", Amount(8000, 8 * GIB))

    asyncio.run(fill())
    asked = ["--brokers", broker.bootstrap, "--prefix", prefix]
    said = CliRunner().invoke(app, [*asked, "--json"])
    assert said.exit_code == 0, said.output
    lines = [orjson.loads(line) for line in said.output.splitlines()]
    assert [(one["node"], one["remainder_cpu_milli"]) for one in lines] == [("n1", 8000)]
    assert "8000m" in CliRunner().invoke(app, asked).output


def test_r9_what_stands_for_a_system_that_is_gone_is_ended_by_a_word(
    broker: DevBroker, prefix: str
) -> None:
    """Its bridge was started again without it, and takes nothing of it back."""
    share = ledger.grant_key("n1", "hadoop-yarn", "share")
    granted = LedgerGrant("n1", "hadoop-yarn", "share", True, "", 1, 0, cpu_milli=6000)
    work = LedgerEntry("n2", "hadoop-yarn", 1000, GIB)

    async def fill() -> None:
        await make_topics(broker.bootstrap, prefix)
        async with Topics(broker.bootstrap, prefix) as topics:
            for node in ("n1", "n2"):
                await topics.capacity(node, Amount(8000, 8 * GIB))
        log = LedgerLog(broker.bootstrap, prefix)
        await log.start()
        try:
            await log.write([(share, granted), (ledger.entry_key("n2", "hadoop-yarn"), work)])
        finally:
            await log.stop()

    asyncio.run(fill())
    where = ["--brokers", broker.bootstrap, "--prefix", prefix]

    def left() -> dict[str, int]:
        said = CliRunner().invoke(app, [*where, "--json"])
        lines = [orjson.loads(line) for line in said.output.splitlines()]
        return {line["node"]: line["remainder_cpu_milli"] for line in lines}

    def forget(*words: str) -> Result:
        return CliRunner().invoke(app, ["forget", "hadoop-yarn", *where, *words])

    assert left() == {"n1": 2000, "n2": 7000}
    refused = forget()
    assert (refused.exit_code, "holds something on n2" in refused.output) == (1, True)
    assert left() == {"n1": 2000, "n2": 7000}
    one = forget("--node", "n1", "--json")
    assert orjson.loads(one.output) == {"ended": [share.decode()]}
    assert left() == {"n1": 8000, "n2": 7000}
    assert forget("--held").exit_code == 0
    assert left() == {"n1": 8000, "n2": 8000}
    odd = CliRunner().invoke(app, [*where, "--node", "nosuch"])
    assert (
        odd.exit_code,
        "nothing is known of node 'nosuch'; known: such as n1" in odd.output,
    ) == (
        1,
        True,
    )


def test_a_wrong_address_says_what_to_do() -> None:
    said = CliRunner().invoke(app, ["--brokers", "nowhere"])
    assert said.exit_code == 2
    assert "host:port" in said.output


@pytest.mark.parametrize(
    ("sink", "yarn", "says"),
    [
        ("dry-run", "http://rm:8088", "in earnest"),
        ("yarn", None, "needs --yarn"),
        ("yarn", " , ", "needs --yarn"),
        ("kubernetes", "rm:8088", "want http://host:8088"),
        ("kubernetes", "http://rm:8088,ftp://rm2", "want http://host:8088"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    sink: str, yarn: str | None, says: str
) -> None:
    said = {"yarn": yarn, "yarn_user": "yarn", "yarn_weight": 1, "kubernetes_weight": 1}
    with pytest.raises(ValueError, match=says):
        settings_of(sink, said)


def test_several_resource_managers_are_taken_in_their_order() -> None:
    said = {
        "yarn": "http://a:8088, https://b", "yarn_user": "me", "yarn_weight": 2,
        "kubernetes_weight": 1,
    }  # fmt: skip
    found = settings_of("kubernetes", said)
    assert found is not None
    assert (found.yarn, found.yarn_user) == (("http://a:8088", "https://b"), "me")
    assert settings_of("dry-run", {**said, "yarn": None}) is None


@pytest.mark.parametrize(
    "wrong",
    [{"yarn_name": "a/b"}, {"yarn_name": "kubernetes"}, {"yarn_weight": 0}, {"settle_ms": -1}],
)
def test_settings_out_of_range_name_key_and_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"allowed|want|two names"):
        LedgerSettings(**wrong)
