"""The rollout's gate reads what `slackwater account` writes; an account from live topics."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.records import PodFact
from schemas.topics import TOPICS, full_name
from streams.dev_broker import DevBroker
from streams.topics_admin import create
from tests.streams.accounts.case import (
    HOUR_MS,
    MINUTE_MS,
    POLICY,
    PRICES,
    T0,
    Case,
    batch_pod,
    encoded,
    ten_hours,
)
from tests.streams.accounts.test_account import run, told
from tests.streams.stage_kit import Slackwater

DAYS = 15
STEP_MS = 10 * MINUTE_MS
PILOT = "rollout: {stage: protect}\nnodes: [{name: a, match: {pool: a}, rollout: {stage: pilot}}]\n"
EXPAND = PILOT.replace("pilot", "expand")
FORCED = ("--force", "--author", "ana", "--note", "as agreed")


def pilot(*, slow_hours: int) -> Case:
    """Fifteen days of one node in the pilot and its control, 60 cores used."""
    case = Case()
    case.policy(POLICY)
    case.node("n1", [batch_pod("a", 60)], pool="a")
    case.node("n2", pool="a", group="control")
    case.capacity("n1", 100)
    case.lent("n1", 80)
    for at_ms in range(0, DAYS * 24 * HOUR_MS + 1, STEP_MS):
        used_us = at_ms * 1000 * 60
        case.sample("n1", at_ms, {"be_cpu_usage_us": used_us}, {"cpu_usage_us": [used_us]}, 1)
        case.sample("n2", at_ms)
    for hour in range(1, DAYS * 24 + 1):
        case.sli("n1", hour * HOUR_MS, 150_000 if hour <= slow_hours else 50_000)
        case.sli("n2", hour * HOUR_MS)
    case.job(0, "etl", "n1", "running")
    return case


def test_a_good_account_lets_an_expansion_through_and_a_bad_one_does_not(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    sw = Slackwater(broker.bootstrap, prefix)
    sw.good("topics", "create", "--partitions", "2")
    prices, before, after = (tmp_path / name for name in ("prices.yaml", "b.yaml", "a.yaml"))
    prices.write_text(PRICES)
    before.write_text(PILOT)
    after.write_text(EXPAND)
    sw.good("policy", "put", str(before), *FORCED)
    put = ("policy", "put", str(after), "--canary", "pool=a", "--note", "x", "--account")
    said = {}
    for name, slow_hours in (("bad", 1), ("good", 0)):
        bundle = pilot(slow_hours=slow_hours).bundle(tmp_path / f"{name}.slack")
        account = tmp_path / f"{name}.json"
        told(bundle, "--prices", str(prices), "-o", str(account))
        said[name] = json.loads(account.read_bytes())
    assert (said["bad"]["observed_days"], said["bad"]["node_days"]) == (DAYS, DAYS)
    assert said["bad"]["net_benefit"] > 0
    refused = sw.refused(*put, str(tmp_path / "bad.json"))
    assert "nodes a would be expanded, but rollout.pilot.exit.online_violations" in refused
    assert "at most 0, the account says 1" in refused
    sw.good(*put, str(tmp_path / "good.json"))
    poor = tmp_path / "poor.json"
    prices.write_text(PRICES.replace("platform_per_day: 72", "platform_per_day: 720"))
    told(tmp_path / "good.slack", "--prices", str(prices), "-o", str(poor))
    promote = ("policy", "promote", "--account")
    assert "there is no positive account of the pilot" in sw.refused(*promote, str(poor))
    sw.good(*promote, str(tmp_path / "good.json"))


async def _said(brokers: str, prefix: str, case: Case) -> None:
    """The case on topics that keep the times it names."""
    client = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await client.start()
    kept = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    try:
        await client.create_topics(
            [NewTopic(full_name(prefix, topic.name), 1, 1, topic_configs=kept) for topic in TOPICS]
        )
    finally:
        await client.close()
    await create(brokers, prefix, 1, None, POLICY)
    producer = AIOKafkaProducer(bootstrap_servers=brokers)
    await producer.start()
    try:
        for at_ms, topic, key, record in sorted(case.said, key=lambda one: one[0]):
            value, headers = encoded(record)
            await producer.send(
                full_name(prefix, topic), value, key, headers=headers, timestamp_ms=at_ms
            )
        await producer.flush()
    finally:
        await producer.stop()


def test_live_topics_give_the_account_of_their_recording(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    case = ten_hours()
    asyncio.run(_said(broker.bootstrap, prefix, case))
    bundle = case.bundle(tmp_path / "case.slack")
    span = ("--from", str(T0), "--to", str(T0 + 10 * HOUR_MS))
    done = run("--brokers", broker.bootstrap, "--prefix", prefix, *span, "--json")
    assert done.exit_code == 0, done.exception
    live = json.loads(done.stdout)
    assert live == told(bundle, *span)
    begun = run("--brokers", broker.bootstrap, "--prefix", prefix, "--from", "1", "--json")
    assert json.loads(begun.stdout)["from_ms"] == T0, "the topics begin there"
    assert live["figures"]["lending"]["batch_cpu"]["used_of_lent"] == 0.75


@pytest.mark.parametrize("pods", [(), (PodFact("w", "w"),)])
def test_an_account_without_best_effort_work_has_no_share_of_nothing(
    tmp_path: Path, pods: tuple[PodFact, ...]
) -> None:
    case = Case()
    case.policy(POLICY)
    case.node("n1", [replace(pod, qos="LS", priority_class="prod") for pod in pods])
    for minute in range(5):
        case.sample("n1", minute * MINUTE_MS, count=len(pods))
    said = told(case.bundle(tmp_path / "case.slack"))
    assert said["suppressed_permille"] is None
    assert said["figures"]["satisfaction"]["mean"] is None
