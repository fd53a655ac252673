"""S1 on the running agent: what no worker signed has no effect, is named in an ack, and counted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord

from node_agent import authentic
from node_agent.authentic import Authentic
from node_agent.inbox import partition_of
from node_agent.journal import recall
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings
from node_agent.workbench.groups import Groups
from schemas import codec, keys
from schemas.codec import JSON_HEADERS, Headers
from schemas.errors import BadRecord
from schemas.keys import BadKeys
from schemas.records import LEASE_KEY, Cause, Command, Lease
from schemas.signing import Checker, WorkerSigner
from schemas.topics import full_name
from streams import keyring
from streams.dev_broker import DevBroker
from tests.node_agent.kernel import real_groups
from tests.node_agent.test_loop import (
    HALF_MILLI,
    NODE,
    POLICY,
    TTL_MS,
    Centre,
    quota_milli,
    settings_for,
    source_of,
    suppress,
)
from tests.node_agent.test_outbox import PARTITIONS, topics, until


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made


@pytest.fixture
def inventory(groups: Groups, tmp_path: Path) -> Path:
    groups.pod("online", "web")
    groups.pod("besteffort", "batch")
    path = tmp_path / "inventory.yaml"
    path.write_text(f"""
best_effort_root: {groups.be_root}
pods:
  - {{uid: web, name: web, qos: LS, cgroup: {groups.name}/online/web}}
  - {{uid: batch, name: batch, qos: BE, cgroup: {groups.be_root}/batch}}
""")
    return path


class SigningCentre(Centre):
    """Says what it is told to, with the headers it is told to."""

    def __init__(self, broker: DevBroker, prefix: str, folder: Path) -> None:
        super().__init__(broker, prefix)
        self.worker = WorkerSigner(keyring.load(folder))

    async def told(
        self, record: Command | Lease, *, flip: bool = False, by: WorkerSigner | None = None
    ) -> None:
        """Signed; ``flip``: one bit of the signature changed on the way."""
        key = LEASE_KEY if isinstance(record, Lease) else NODE.encode()
        raw = codec.encode(record)
        topic = full_name(self.prefix, "commands")
        headers = (by or self.worker).sign(topic, key, JSON_HEADERS, raw)
        if flip:
            name, seal = headers[-1]
            headers[-1] = (name, seal[:-1] + bytes([seal[-1] ^ 1]))
        await self._put(key, headers, raw)

    async def unsigned(self, record: Command | Lease) -> None:
        key = LEASE_KEY if isinstance(record, Lease) else NODE.encode()
        await self._put(key, JSON_HEADERS, codec.encode(record))

    def reasons(self, command: Command) -> list[tuple[str, str]]:
        return [(ack.outcome, ack.reason) for ack in self.answers(command)]

    async def _put(self, key: bytes, headers: Headers, raw: bytes) -> None:
        place = partition_of(NODE, PARTITIONS)
        name = full_name(self.prefix, "commands")
        await self.producer.send_and_wait(name, raw, key=key, partition=place, headers=headers)


@pytest.mark.kernel
async def test_s1_only_what_a_worker_signed_has_effect(
    broker: DevBroker, prefix: str, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    held = keyring.make(tmp_path / "workers")
    keyring.for_node(tmp_path / "workers", NODE, tmp_path / "node")
    keyring.make(tmp_path / "strangers")
    stranger = WorkerSigner(keyring.load(tmp_path / "strangers"))
    await topics(broker, prefix, POLICY)
    centre = SigningCentre(broker, prefix, tmp_path / "workers")
    settings = replace(settings_for(centre, tmp_path, inventory), keys=tmp_path / "node")
    source = source_of(inventory, groups)
    agent = NodeAgent(settings, groups.layout, source, SystemClock())
    refused = agent.authentic.refused
    async with centre.at_work():
        life = asyncio.create_task(agent.run())
        try:
            await until(lambda: (agent.obey.lease.local_milli or 0) >= HALF_MILLI, 20, "law")
            await until(lambda: agent.readers["commands"].connected, 20, "the reader")
            wanted = suppress(5, 300)
            says: dict[str, Callable[[], Awaitable[None]]] = {
                "unsigned": lambda: centre.unsigned(wanted),
                "bad_signature": lambda: centre.told(wanted, flip=True),
                "unknown_key": lambda: centre.told(wanted, by=stranger),
            }
            for reason, say in says.items():
                last_us = agent.authentic._answered_us  # so that this one is answered
                due_us = last_us + authentic.ANSWER_EVERY_US
                await until(lambda due=due_us: agent.mono_us() > due, 5, "a second")  # type: ignore[misc]
                await say()
                answer = ("refused", reason)
                await until(lambda a=answer: a in centre.reasons(wanted), 5, reason)  # type: ignore[misc]
                assert refused[reason] == 1
            lease = Lease(Cause(1, 0, 9, 0, "", 1), 1 << 60)
            await centre.unsigned(lease)
            await until(lambda: refused["unsigned"] == 2, 5, "the lease's refusal")
            assert agent.obey.lease.standing is None
            assert quota_milli(groups) == 10
            assert recall(tmp_path / "state").commands == {}  # its id is not taken
            await centre.told(wanted)
            await until(lambda: quota_milli(groups) == 300, 5, "the signed command in force")
            for command, wants in (
                (wanted, ("duplicate", "")),
                (suppress(4, 900), ("refused", "stale_order")),
                (with_incarnation(suppress(7, 900), 0), ("refused", "stale_epoch")),
                (replace(suppress(8, 900), node="other"), ("refused", "wrong_node")),
                (expired(suppress(9, 900)), ("refused", "expired")),
            ):
                await centre.told(command)
                await until(
                    lambda c=command, w=wants: w in centre.reasons(c),  # type: ignore[misc]
                    5,
                    str(wants),
                )
            assert quota_milli(groups) == 300
            checker = Checker(prefix, held, lambda: None)
            await until(lambda: bool(centre.samples), 5, "a sample")
            for topic, record in centre.raw:
                checker.check(topic, record.key, record.headers, record.value)
            assert {topic for topic, _ in centre.raw} == {"samples", "acks", "inventory"}
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(life, 15) == 0


def with_incarnation(command: Command, incarnation: int) -> Command:
    return replace(command, cause=replace(command.cause, incarnation=incarnation))


def expired(command: Command) -> Command:
    """Said a minute ago."""
    ago = command.cause.log_ms - 2 * TTL_MS
    return replace(command, cause=replace(command.cause, log_ms=ago), expires_log_ms=ago + TTL_MS)


def record(key: bytes, headers: Headers, value: bytes) -> ConsumerRecord:
    return ConsumerRecord(
        "t.commands", 0, 7, 0, 1, key, value, None, len(key), len(value), tuple(headers)
    )


def test_a_flood_of_forgeries_is_counted_and_seldom_answered(tmp_path: Path) -> None:
    keyring.make(tmp_path / "workers")
    keyring.for_node(tmp_path / "workers", NODE, tmp_path / "node")
    now = [0]
    one = Authentic(tmp_path / "node", "t.", lambda: now[0])
    answered = 0
    for number in range(1000):
        forged = record(NODE.encode(), JSON_HEADERS, codec.encode(suppress(number, 10)))
        with pytest.raises(BadRecord):
            one.check("commands", forged)
        answered += one.answerable(forged) is not None
        now[0] += 10_000
    assert one.refused == {"unsigned": 1000}
    assert answered == 10
    now[0] += authentic.ANSWER_EVERY_US
    long = replace(suppress(1, 10), id="x" * 1000)
    for raw in (b"{", codec.encode(long)):
        assert one.answerable(record(NODE.encode(), JSON_HEADERS, raw)) is None


@pytest.mark.kernel
def test_a_node_without_keys_says_so_once_and_loudly(
    groups: Groups, inventory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(NODE, "127.0.0.1:1", "t.", tmp_path / "state", inventory=inventory)
    source = source_of(inventory, groups)
    with caplog.at_level(logging.WARNING):
        agent = NodeAgent(settings, groups.layout, source, SystemClock())
    agent.close()
    assert [r.message for r in caplog.records] == [authentic.NOBODY_CHECKED]
    agent.authentic.check("commands", record(b"n", JSON_HEADERS, b"{}"))
    assert agent.authentic.headers("samples", "n", JSON_HEADERS, b"") == JSON_HEADERS


def test_a_node_starts_with_its_own_keys_or_not_at_all(tmp_path: Path) -> None:
    keyring.make(tmp_path / "workers")
    folder = tmp_path / "node"
    keyring.for_node(tmp_path / "workers", "another", folder)
    one = Authentic(folder, "t.", lambda: 0)
    with pytest.raises(BadKeys, match="of node 'another', this is 'loop-node'"):
        one.headers("samples", NODE, [], b"")
    (folder / keys.NODE_KEY).chmod(0o644)
    with pytest.raises(BadKeys, match="chmod 600"):
        Authentic(folder, "t.", lambda: 0)
    (folder / keys.NODE_KEY).chmod(0o600)
    (folder / keys.WORKER_PUB).unlink()
    with pytest.raises(BadKeys, match=keys.WORKER_PUB):
        Authentic(folder, "t.", lambda: 0)
    with pytest.raises(BadKeys, match="keys node NAME"):
        Authentic(tmp_path / "nowhere", "t.", lambda: 0)


def test_new_public_keys_are_met_without_a_restart(tmp_path: Path) -> None:
    workers, folder = tmp_path / "workers", tmp_path / "node"
    keyring.make(workers)
    keyring.for_node(workers, NODE, folder)
    now = [0]
    one = Authentic(folder, "t.", lambda: now[0])
    fresh = keyring.make(workers).of(keys.WORKER_KEY)[1]
    keyring.use(workers, fresh.id)
    raw = codec.encode(suppress(1, 10))
    signed = WorkerSigner(keyring.load(workers)).sign("t.commands", b"n", JSON_HEADERS, raw)
    said = record(b"n", signed, raw)
    with pytest.raises(BadRecord, match="unknown_key"):
        one.check("commands", said)
    keyring.for_node(workers, NODE, folder)
    now[0] += authentic.LOOK_AGAIN_US
    one.check("commands", said)
