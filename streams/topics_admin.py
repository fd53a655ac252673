"""Creates the topics of the table, and says how those on the broker differ from it.

Called by `slackwater topics create|list` and by tests. Creating is idempotent: what exists is
kept, what is missing is added; nothing that exists is ever changed or deleted here.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from schemas import codec, policy
from schemas.errors import BadRecord
from schemas.records import INSTALLATION_KEY, Installation, PolicyRecord
from schemas.topics import TOPICS, configs_of, full_name, partitions_of
from streams.topic_reader import CannotRun, admin, newest_by_key, producer, started, whole

DEFAULT_POLICY = "default"
OTHER_WRITES_S = 3.0
AGAIN_S = 0.2
SETTLE_S = 30.0
_EXISTS = 36  # TOPIC_ALREADY_EXISTS


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic of the table beside what the broker has; ``differs``: name -> (there, expected)."""

    name: str
    exists: bool
    partitions: int
    expected_partitions: int
    differs: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Created:
    """What `create` found and did."""

    installation: Installation
    replication: int
    created: tuple[str, ...]
    policy_written: bool


async def create(
    brokers: str,
    prefix: str,
    partitions: int,
    replication: int | None,
    policy_text: str,
) -> Created:
    """Make what is missing: topics, the installation record, the default policy.

    Raises CannotRun when no broker answers, when existing topics have another number of partitions
    (it is fixed for the life of an installation) or when the broker refuses.
    """
    async with started(admin(brokers), brokers) as client:
        nodes = len((await client.describe_cluster())["brokers"])
        copies = min(3, nodes) if replication is None else replication
        if not 1 <= copies <= nodes:
            raise CannotRun(f"replication {copies} needs as many brokers; here are {nodes}")
        existing = await _partitions(client)
        _refuse_other_partitions(existing, prefix, partitions)
        made = await _create_missing(client, existing, prefix, partitions, copies)
        await _settled(client, prefix)
    anew = full_name(prefix, "samples") in made
    installation = await _install(brokers, prefix, partitions, anew=anew)
    written = await _default_policy(brokers, prefix, policy_text)
    return Created(installation, copies, tuple(made), written)


async def states(brokers: str, prefix: str) -> list[TopicState]:
    """Every topic of the table as the broker has it; partitions expected as `samples` has."""
    async with started(admin(brokers), brokers) as client:
        existing = await _partitions(client)
        nodes = len((await client.describe_cluster())["brokers"])
        names = [full_name(prefix, topic.name) for topic in TOPICS]
        configs = await _configs(client, [name for name in names if name in existing])
    wanted = existing.get(full_name(prefix, "samples"), 0)
    found = []
    for topic, name in zip(TOPICS, names, strict=True):
        expected = configs_of(topic, min(3, nodes))
        there = configs.get(name, {})
        differs = {
            key: (there.get(key, ""), value)
            for key, value in expected.items()
            if name in existing and there.get(key, "") != value
        }
        shape = existing.get(name, 0), partitions_of(topic, wanted)
        found.append(TopicState(name, name in existing, *shape, differs))
    return found


async def installation_of(brokers: str, prefix: str) -> Installation | None:
    """The installation record, None before the topics were created."""
    newest = await newest_by_key(brokers, full_name(prefix, "fleet"))
    record = newest.get(INSTALLATION_KEY)
    return codec.decode(Installation, record.value) if record is not None else None


async def policy_versions(brokers: str, prefix: str, name: str) -> list[PolicyRecord]:
    """Every version of a policy that the topic has, oldest first; unreadable ones left out."""
    found = []
    async for record in whole(brokers, full_name(prefix, "policies")):
        if record.key != name.encode() or record.value is None:
            continue
        try:
            found.append(codec.decode(PolicyRecord, record.value))
        except BadRecord:
            continue  # workers ignore it too: the last good one stays in force
    return found


async def publish(brokers: str, topic: str, key: bytes, record: Any) -> None:
    """Write one JSON record and wait for all replicas."""
    async with started(producer(brokers), brokers) as client:
        value = codec.encode(record)
        await client.send_and_wait(topic, value=value, key=key, headers=codec.JSON_HEADERS)


async def _partitions(client: AIOKafkaAdminClient) -> dict[str, int]:
    topics = await client.describe_topics()
    return {row["topic"]: len(row["partitions"]) for row in topics if row["partitions"]}


def _refuse_other_partitions(existing: dict[str, int], prefix: str, partitions: int) -> None:
    for topic in TOPICS:
        name = full_name(prefix, topic.name)
        there, wanted = existing.get(name), partitions_of(topic, partitions)
        if there is not None and there != wanted:
            advice = (
                f"use --partitions {there}" if topic.partitioned else "that topic must have one"
            )
            raise CannotRun(
                f"topic {name} exists with {there} partitions, asked for {wanted}: {advice}, or "
                "choose another --prefix; to change the count for good, stop everything, delete "
                f"the topics {prefix}* and create them again"
            )


async def _create_missing(
    client: AIOKafkaAdminClient,
    existing: dict[str, int],
    prefix: str,
    partitions: int,
    copies: int,
) -> list[str]:
    """Names that this call created; one that somebody else creates at the same time is not."""
    missing = [
        NewTopic(
            full_name(prefix, topic.name),
            partitions_of(topic, partitions),
            copies,
            topic_configs=configs_of(topic, copies),
        )
        for topic in TOPICS
        if full_name(prefix, topic.name) not in existing
    ]
    if not missing:
        return []
    response = await client.create_topics(missing)
    made = []
    for name, code, *rest in response.topic_errors:
        if code == 0:
            made.append(name)
        elif code != _EXISTS:
            why = rest[0] if rest and rest[0] else for_code(code).__name__
            raise CannotRun(f"the broker refused topic {name}: {why}")
    return made


async def _settled(client: AIOKafkaAdminClient, prefix: str) -> None:
    """Wait until every topic has its leaders: a created topic is not at once known everywhere."""
    deadline = time.monotonic() + SETTLE_S
    names = {full_name(prefix, topic.name) for topic in TOPICS}
    while True:
        led = {
            row["topic"]
            for row in await client.describe_topics()
            if row["partitions"] and all(part["leader"] >= 0 for part in row["partitions"])
        }
        if names <= led:
            return
        if time.monotonic() > deadline:
            raise CannotRun(
                f"no leader within {SETTLE_S:.0f} s for {', '.join(sorted(names - led))}: look at "
                "the broker's log, then run `slackwater topics create` again"
            )
        await asyncio.sleep(AGAIN_S)


async def _configs(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found: dict[str, dict[str, str]] = {}
    for response in await client.describe_configs(asked):
        for _code, _message, _kind, name, entries in response.resources:
            found[name] = {entry[0]: entry[1] or "" for entry in entries}
    return found


async def _install(brokers: str, prefix: str, partitions: int, *, anew: bool) -> Installation:
    """The installation: kept, or written when ``samples`` is new (its offsets begin again).

    Of several who create at once, the one that made ``samples`` writes it and the others wait; if
    that one died in between, the next writes it.
    """
    existing = await installation_of(brokers, prefix)
    deadline = time.monotonic() + OTHER_WRITES_S
    while existing is None and not anew and time.monotonic() < deadline:
        await asyncio.sleep(AGAIN_S)
        existing = await installation_of(brokers, prefix)
    if existing is not None and not anew:
        return existing
    older = existing.incarnation if existing is not None else 0
    incarnation = max(time.time_ns() // 1_000_000, older + 1)
    installation = Installation(incarnation, partitions)
    await publish(brokers, full_name(prefix, "fleet"), INSTALLATION_KEY, installation)
    return installation


async def _default_policy(brokers: str, prefix: str, text: str) -> bool:
    if await policy_versions(brokers, prefix, DEFAULT_POLICY):
        return False
    parsed = policy.parse(text, "the default policy")
    record = PolicyRecord(DEFAULT_POLICY, 1, policy.digest(parsed), text, "slackwater", "shipped")
    await publish(brokers, full_name(prefix, "policies"), DEFAULT_POLICY.encode(), record)
    return True
