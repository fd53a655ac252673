"""`slackwater fleet` as a process on a real broker: facts, table, restart, kill -9, bad records."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from schemas import codec, policy
from schemas.records import (
    FLEET_KEY,
    Capacity,
    DeadLetter,
    FleetFacts,
    NodeMinute,
    PartitionHealth,
    PolicyRecord,
)
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.tables import MINUTE_MS, read_minutes
from streams.topic_reader import whole
from streams.topics_admin import create, publish
from tests.streams.fleet_kit import end, is_ready, metric, until
from tests.streams.stage_kit import Slackwater, StageProcess, Teller, teller

PARTITIONS = 3
READY_S = 90.0  # a group whose member was killed, while other brokers start beside it
SOON_S = 20.0
STALE_MS = 2_000
POLICY = f"""
evict_memory: {{cooldown_ms: 1000}}
blast: {{evictions_permille: 100, stop_ill_permille: 500, facts_stale_ms: {STALE_MS}}}
"""


class Stage:
    """Topics, one who tells, and the processes of the second stage."""

    def __init__(self, bootstrap: str, prefix: str, tell: Teller, log: Path) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.tell = tell
        self._log = log
        self._started: list[StageProcess] = []

    async def start(self) -> StageProcess:
        log = self._log / f"fleet-{len(self._started)}.log"
        process = StageProcess(self.bootstrap, self.prefix, log)
        self._started.append(process)
        await until(lambda: is_ready(process), READY_S, "ready")
        return process

    def kill_all(self) -> None:
        for process in self._started:
            process.kill()

    async def facts(self) -> list[tuple[int, FleetFacts]]:
        """(log time, facts), oldest first."""
        name = full_name(self.prefix, "fleet")
        return [
            (record.timestamp, codec.decode(FleetFacts, record.value))
            async for record in whole(self.bootstrap, name)
            if record.key == FLEET_KEY
        ]

    async def newest(self) -> FleetFacts | None:
        facts = await self.facts()
        return facts[-1][1] if facts else None

    async def rows(self, node: str) -> list[NodeMinute]:
        return await read_minutes(self.bootstrap, self.prefix, node, 60)

    async def letters(self) -> list[DeadLetter]:
        name = full_name(self.prefix, "dead-letters")
        return [
            codec.decode(DeadLetter, record.value) async for record in whole(self.bootstrap, name)
        ]

    async def policy(self, text: str, version: int) -> None:
        digest = policy.digest(policy.parse(text, "test"))
        record = PolicyRecord("default", version, digest, text)
        await publish(self.bootstrap, full_name(self.prefix, "policies"), b"default", record)


@asynccontextmanager
async def stage_on(bootstrap: str, prefix: str, log: Path) -> AsyncIterator[Stage]:
    done = await create(bootstrap, prefix, PARTITIONS, None, POLICY)
    async with teller(bootstrap, prefix, done.installation.incarnation, PARTITIONS) as tell:
        one = Stage(bootstrap, prefix, tell, log)
        try:
            yield one
        finally:
            await asyncio.to_thread(one.kill_all)


@pytest.fixture
async def stage(broker: DevBroker, prefix: str, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_on(broker.bootstrap, prefix, tmp_path) as one:
        yield one


@asynccontextmanager
async def healthy(tell: Teller, *partitions: int, ill: int = 0) -> AsyncIterator[None]:
    """Partitions that say ten nodes each, while the block runs."""

    async def say() -> None:
        while True:
            for partition in partitions:
                await tell.health(partition, nodes=10, ill=ill)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(say())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reason_is(stage: Stage, reason: str) -> bool:
    facts = await stage.newest()
    return facts is not None and facts.reason == reason


async def test_facts_follow_health_policy_and_silence(stage: Stage) -> None:
    process = await stage.start()
    async with healthy(stage.tell, 0, 1, 2):
        await until(lambda: reason_is(stage, ""), SOON_S, "facts of all partitions")
        facts = await stage.newest()
        assert facts is not None
        assert (facts.nodes, facts.partitions_seen, facts.stale_after_ms) == (30, 3, STALE_MS)

        async def shared() -> bool:
            newest = await stage.newest()
            return newest is not None and sum(newest.budgets) == 3

        await until(shared, SOON_S, "a budget of 100 permille of 30 nodes")
        await stage.policy(POLICY.replace("evictions_permille: 100", "evictions_permille: 0"), 2)
        await until(lambda: reason_is(stage, "none_allowed"), SOON_S, "the new policy")
        await stage.policy(POLICY, 3)
        await until(lambda: reason_is(stage, ""), SOON_S, "the old policy again")
    async with healthy(stage.tell, 0, 2):
        await until(lambda: reason_is(stage, "partitions_missing"), SOON_S, "a silent partition")
        facts = await stage.newest()
        assert facts is not None
        assert (facts.partitions_seen, sum(facts.budgets)) == (2, 0)
    async with healthy(stage.tell, 0, 1, 2, ill=5):
        await until(lambda: reason_is(stage, "too_many_ill"), SOON_S, "too many ill nodes")

    told = await stage.facts()
    revisions = [facts.revision for _, facts in told]
    assert revisions == sorted(set(revisions))
    per_second: dict[int, int] = {}
    for log_ms, _ in told:
        per_second[log_ms // 1000] = per_second.get(log_ms // 1000, 0) + 1
    assert max(per_second.values()) <= 3  # one, and a fall of the budget at once
    assert await metric(process, "fleet_revision") >= revisions[-1]
    assert await end(process) == 0


async def test_rows_count_each_record_once_over_kill_and_restart(stage: Stage) -> None:
    first = await stage.start()
    minute_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    total = 40

    async def say(begin: int, stop: int) -> None:
        for offset in range(begin, stop):
            for node in ("n1", "n2"):
                await stage.tell.reservation(node, offset, minute_ms + offset, 1_000 + offset)
                await stage.tell.signal(node, offset, minute_ms + offset, 100 * offset)
                await stage.tell.capacity(node, offset, minute_ms + offset, 50 * offset)

    async def counted(reservations: int) -> bool:
        rows = await stage.rows("n1") + await stage.rows("n2")
        return [row.reservations for row in rows] == [reservations] * 2 == [
            row.capacities for row in rows
        ] and [row.signals for row in rows] == [reservations] * 2

    await say(0, 20)
    await until(lambda: counted(20), SOON_S, "rows of the first records")
    await asyncio.to_thread(first.kill)  # acknowledged or not: some will come again
    await say(20, 30)
    second = await stage.start()
    await say(30, total)
    await until(lambda: counted(total), READY_S, "rows of all records, each once")
    (row,) = await stage.rows("n1")
    assert (row.start_ms, row.cpu_usage_max_milli) == (minute_ms, 1_039)
    assert (row.cpu_short_max_milli, row.cpu_long_max_milli) == (1_049, 1_059)
    assert (row.score_max_permille, row.ill_signals) == (3_900, 0)
    assert (row.batch_cpu_milli, row.new_work) == (1_950, True)
    await stage.tell.reservation("n1", 39, minute_ms + 39, 9_999)  # a worker that came back
    await until(
        lambda: seen(second, topic="reservations", outcome="repeat"), SOON_S, "a repeat noticed"
    )
    assert (await stage.rows("n1")) == [row]
    assert await end(second) == 0


async def seen(process: StageProcess, **labels: str) -> bool:
    return await metric(process, "fleet_records_total", **labels) > 0


async def test_minutes_are_those_of_the_cause_not_of_the_record(stage: Stage) -> None:
    await stage.start()
    now_ms = int(time.time() * 1000)
    minutes = [now_ms // MINUTE_MS * MINUTE_MS - back * MINUTE_MS for back in (3, 2, 0)]
    for offset, start_ms in enumerate(minutes):
        await stage.tell.capacity("n1", offset, start_ms, offset)

    async def there() -> bool:
        return [row.start_ms for row in await stage.rows("n1")] == minutes

    await until(there, SOON_S, "a row a minute")
    show = Slackwater(stage.bootstrap, stage.prefix)
    shown = await asyncio.to_thread(show.good, "fleet", "show", "n1", "--minutes", "2")
    assert [codec.decode(NodeMinute, line.encode()).start_ms for line in shown.splitlines()] == (
        minutes[1:]
    )
    line = await asyncio.to_thread(show.refused, "fleet", "show", "nobody")
    assert "no row for node 'nobody'" in line


async def test_r8_bad_records_are_dead_letters_and_their_neighbours_count(stage: Stage) -> None:
    process = await stage.start()
    tell, node = stage.tell, "n1"
    where, key, now_ms = tell.partition_of(node), node.encode(), int(time.time() * 1000)
    future = codec.encode(tell_capacity(tell, node, now_ms + 10 * MINUTE_MS))
    other = codec.encode(tell_capacity(tell, "n2", now_ms))
    await tell.send("capacity", key, b'{"node":', where)
    await tell.send("capacity", key, b'{"node":"n1"}', where)
    await tell.send("capacity", key, other, where)
    await tell.send("capacity", key, future, where)
    await tell.send("signals", key, b"{}", where, [])
    await tell.send("capacity", key, None, where)  # a tombstone is no fault
    await tell.send("fleet", b"partition/77", b'{"nodes":NaN}')
    await tell.send("fleet", b"partition/1", codec.encode(wrong_health(tell)))
    await tell.capacity(node, 9, now_ms, 77)
    async with healthy(tell, 0, 1, 2):
        await until(lambda: reason_is(stage, ""), SOON_S, "facts in spite of bad records")

        async def counted() -> bool:
            return [row.capacities for row in await stage.rows(node)] == [1]

        await until(counted, SOON_S, "the good record counted")
    letters = [(letter.topic, letter.reason) for letter in await stage.letters()]
    assert sorted(letters) == [
        ("capacity", "broken_json"),
        ("capacity", "future_clock"),
        ("capacity", "key_mismatch"),
        ("capacity", "missing_field"),
        ("fleet", "broken_json"),
        ("fleet", "key_mismatch"),
        ("signals", "unknown_encoding"),
    ]
    assert await metric(process, "dead_letters_total") == len(letters)
    assert await metric(process, "bugs_total") == 0
    assert await end(process) == 0


def tell_capacity(tell: Teller, node: str, log_ms: int) -> Any:
    return Capacity(node, tell.cause(0, 1, log_ms), 1, 1, "")


def wrong_health(tell: Teller) -> Any:
    return PartitionHealth(tell.cause(2, 0, 0), 10, 0, 0, 0)


async def test_another_takes_over_and_revisions_go_on(stage: Stage) -> None:
    first = await stage.start()
    async with healthy(stage.tell, 0, 1, 2):
        await until(lambda: reason_is(stage, ""), SOON_S, "facts of the first")
        second = await stage.start()
        before = await stage.newest()
        assert before is not None
        await asyncio.to_thread(first.kill)

        async def further() -> bool:
            newest = await stage.newest()
            return newest is not None and newest.revision > before.revision + 100

        await until(further, READY_S, "facts of the second")
        await until(lambda: reason_is(stage, ""), SOON_S, "all partitions known to the second")
    revisions = [facts.revision for _, facts in await stage.facts()]
    assert revisions == sorted(set(revisions))
    assert await end(second) == 0


async def test_it_survives_a_broker_that_dies(prefix: str, tmp_path: Path) -> None:
    async with DevBroker() as own, stage_on(own.bootstrap, prefix, tmp_path) as stage:
        process = await stage.start()
        async with healthy(stage.tell, 0, 1, 2):
            await until(lambda: reason_is(stage, ""), SOON_S, "facts before")
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.restart)
        before = await stage.newest()
        assert before is not None
        async with healthy(stage.tell, 0, 1, 2):

            async def further() -> bool:
                newest = await stage.newest()
                return newest is not None and newest.revision > before.revision

            await until(further, READY_S, "facts after")
            now_ms = int(time.time() * 1000)
            await stage.tell.capacity("n1", 5, now_ms, 5)

            async def counted() -> bool:
                return [row.capacities for row in await stage.rows("n1")] == [1]

            await until(counted, READY_S, "rows after")
        assert process.process.poll() is None
        assert await end(process) == 0


def test_without_topics_it_says_which_command_makes_them(broker: DevBroker, prefix: str) -> None:
    line = Slackwater(broker.bootstrap, prefix)("fleet").stderr.splitlines()[-1]
    assert line.startswith("slackwater: topics are missing")
    assert "slackwater topics create" in line


def test_without_a_broker_it_ends_with_one_line() -> None:
    done = Slackwater("127.0.0.1:1", "x.")("fleet")
    assert done.returncode == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in done.stderr.splitlines()[-1]


async def test_sigint_is_clean(stage: Stage) -> None:
    process = await stage.start()
    process.signal(signal.SIGINT)
    assert await asyncio.to_thread(process.process.wait, 15) == 0
    assert "Traceback" not in process.text
