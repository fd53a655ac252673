"""The bridge on a real broker: restart, pace, bad records, broker loss, SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from scheduler_bridge.loop import Bridge
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, Settings
from scheduler_bridge.sinks.dry_run import DryRun
from schemas import codec
from schemas.records import Capacity, Cause, DeadLetter, LedgerEntry
from streams.dev_broker import DevBroker

PARTITIONS = 3


async def make_topics(bootstrap: str, prefix: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(
                    prefix + name,
                    PARTITIONS if name != "dead-letters" else 1,
                    1,
                    topic_configs={"message.timestamp.type": "LogAppendTime"},
                )
                for name in ("capacity", "ledger", "dead-letters")
            ]
        )
    finally:
        await admin.close()


def capacity(node: str, offset: int, cpu: int, new_work: bool = True) -> Capacity:
    cause = Cause(1, 0, offset, offset, "abc", 1)
    return Capacity(node, cause, cpu, cpu << 20, "usage", new_work)


class Writer:
    """Writes records as their owners would."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._prefix = prefix
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def raw(self, topic: str, key: bytes, value: bytes) -> None:
        await self._producer.send_and_wait(
            self._prefix + topic, value, key=key, headers=codec.JSON_HEADERS
        )

    async def say(self, *records: Capacity | LedgerEntry) -> None:
        for record in records:
            topic = "capacity" if isinstance(record, Capacity) else "ledger"
            await self.raw(topic, record.node.encode(), codec.encode(record))


async def until(check: Callable[[], bool], what: str, deadline_s: float = 20) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not check():
        assert loop.time() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def running(
    bootstrap: str, prefix: str, record: Path, patches_per_s: int = 1000
) -> AsyncIterator[Bridge]:
    sink = DryRun(record, lambda _line: None, CPU_NAME, MEMORY_NAME, fsync="never")
    settings = Settings(bootstrap, prefix, patches_per_s=patches_per_s, metrics_port=0)
    bridge = Bridge(settings, sink)
    task = asyncio.create_task(bridge.run())
    try:
        yield bridge
        assert not task.done(), task
    finally:
        bridge.stop()
        await task
        sink.close()


def lines(record: Path) -> list[dict[str, Any]]:
    if not record.exists():
        return []
    return [orjson.loads(line) for line in record.read_bytes().splitlines()]


async def test_capacity_becomes_patches_and_a_restart_repeats_none(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    await make_topics(broker.bootstrap, prefix)
    record = tmp_path / "record"
    async with Writer(broker.bootstrap, prefix) as writer:
        await writer.say(capacity("a", 10, 4000), capacity("b", 11, 2000))
        await writer.say(LedgerEntry("a", "sim", 500, 1 << 30))
        async with running(broker.bootstrap, prefix, record) as bridge:
            await until(lambda: len(lines(record)) == 2, "two first patches")
            await writer.say(capacity("a", 9, 9000), capacity("b", 20, 500))
            await until(lambda: len(lines(record)) == 3, "the fall of b")
            assert bridge.view.desired["a"].amount.cpu_milli == 4000
            assert bridge.view.lent["a"].cpu_milli == 500
        assert [(x["node"], x["cpu_milli"], x["why"]) for x in lines(record)[2:]] == [
            ("b", 500, "fall")
        ]
        async with running(broker.bootstrap, prefix, record) as bridge:
            await until(lambda: bridge.ready, "caught up again")
            await writer.say(capacity("c", 30, 100))
            await until(lambda: len(lines(record)) == 4, "only the new node")
        assert lines(record)[3]["node"] == "c"


async def test_a_fall_overtakes_the_rises_that_wait_for_their_turn(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    await make_topics(broker.bootstrap, prefix)
    record = tmp_path / "record"
    async with Writer(broker.bootstrap, prefix) as writer:
        await writer.say(capacity("zz", 1, 8000))
        async with running(broker.bootstrap, prefix, record, patches_per_s=5) as bridge:
            await until(lambda: len(lines(record)) == 1, "the first patch")
            await writer.say(*(capacity(f"n{i:02}", 10 + i, 1000) for i in range(25)))
            await until(lambda: len(bridge.view.desired) == 26, "all nodes known")
            await until(lambda: len(lines(record)) >= 3, "the queue moves")
            await writer.say(capacity("zz", 90, 100))
            await until(lambda: any(x["why"] == "fall" for x in lines(record)), "the fall")
            waiting = 26 - len({x["node"] for x in lines(record)})
            assert waiting >= 10


async def test_a_bad_record_is_dead_lettered_and_its_neighbours_go_on(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    await make_topics(broker.bootstrap, prefix)
    record = tmp_path / "record"
    async with Writer(broker.bootstrap, prefix) as writer:
        await writer.raw("capacity", b"a", b'{"node": NaN')
        await writer.raw("ledger", b"a", codec.encode(LedgerEntry("other", "sim", 1, 1)))
        await writer.say(capacity("a", 10, 4000))
        letters = AIOKafkaConsumer(
            prefix + "dead-letters",
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
        )
        await letters.start()
        try:
            async with running(broker.bootstrap, prefix, record) as bridge:
                await until(lambda: len(lines(record)) == 1, "the good neighbour")
                got = [
                    codec.decode(DeadLetter, (await asyncio.wait_for(letters.getone(), 20)).value)
                    for _ in range(2)
                ]
                assert bridge.view.lent == {}
        finally:
            await letters.stop()
    assert sorted((x.topic, x.reason) for x in got) == [
        (prefix + "capacity", "broken_json"),
        (prefix + "ledger", "key_mismatch"),
    ]


@pytest.mark.slow
async def test_broker_away_at_the_start_and_later(tmp_path: Path, prefix: str) -> None:
    record = tmp_path / "record"
    with DevBroker(data=tmp_path / "kafka") as own:
        await make_topics(own.bootstrap, prefix)
        async with Writer(own.bootstrap, prefix) as writer:
            await writer.say(capacity("a", 10, 4000))
        bootstrap = own.bootstrap
        await asyncio.to_thread(own.stop)
        async with running(bootstrap, prefix, record) as bridge:
            await asyncio.to_thread(own.restart)
            await until(lambda: len(lines(record)) == 1, "the first patch", 40)
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.restart)
            async with Writer(bootstrap, prefix) as writer:
                await writer.say(capacity("a", 50, 1000))
            await until(lambda: len(lines(record)) == 2, "the fall after the loss", 40)
            assert bridge.alive
            assert bridge.ready


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_the_command_serves_health_and_ends_cleanly_on_sigterm(
    broker: DevBroker, prefix: str, tmp_path: Path
) -> None:
    await make_topics(broker.bootstrap, prefix)
    record = tmp_path / "record"
    async with Writer(broker.bootstrap, prefix) as writer:
        await writer.say(capacity("a", 10, 4000))
    command = ["run", "--brokers", broker.bootstrap, "--prefix", prefix, "--record", str(record)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from scheduler_bridge.cli import app; app()",
        *command,
        *("--sink", "dry-run", "--metrics-port", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        said = await asyncio.wait_for(process.stdout.readline(), 20)
        assert b"would patch a: kubernetes.io/batch-cpu none -> 4000m" in said
        log = await asyncio.wait_for(process.stderr.readline(), 20)
        base = log.decode().split("metrics on ")[1].strip().removesuffix("/metrics")
        assert await asyncio.to_thread(_get, base + "/readyz") == (200, "ok\n")
        assert await asyncio.to_thread(_get, base + "/healthz") == (200, "ok\n")
        status, text = await asyncio.to_thread(_get, base + "/metrics")
        assert status == 200
        assert 'slackwater_bridge_patches_total{why="first"} 1.0' in text
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors
    assert b"1 patches told" in errors
    assert b"Traceback" not in errors
