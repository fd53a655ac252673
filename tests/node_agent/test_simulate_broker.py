"""The simulated fleet on a real broker: the closed loop by hand, load, the command."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from node_agent.inbox import partition_of
from node_agent.simulate.load import Load
from node_agent.simulate.loop import Simulation
from node_agent.simulate.settings import Settings
from schemas import codec, packed
from schemas.records import Ack, Capacity, Cause, Command, Inventory, Job, LedgerEntry, NodeSample
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.topics_admin import create

PARTITIONS = 4
POLICY = "rollout: {stage: expand}\n"
KINDS: dict[str, type[Any]] = {
    "inventory": Inventory,
    "ledger": LedgerEntry,
    "jobs": Job,
    "acks": Ack,
}


class Watcher:
    """Everything the simulation writes, by topic, as (partition, record)."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.samples: list[tuple[int, NodeSample]] = []
        self.said: dict[str, list[Any]] = {name: [] for name in KINDS}
        self._names = {full_name(prefix, name): name for name in ("samples", *KINDS)}
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")

    async def follow(self) -> None:
        await self._consumer.start()
        try:
            self._consumer.assign(
                [TopicPartition(name, p) for name in self._names for p in range(PARTITIONS)]
            )
            while True:
                for tp, records in (await self._consumer.getmany(timeout_ms=100)).items():
                    for record in records:
                        self._take(self._names[tp.topic], tp.partition, record)
        finally:
            await self._consumer.stop()

    def _take(self, topic: str, partition: int, record: Any) -> None:
        if topic == "samples":
            assert codec.encoding_of(record.headers) == codec.ENC_PACKED
            sample = packed.decode(record.value)
            assert record.key == sample.node.encode()
            self.samples.append((partition, sample))
        else:
            assert codec.encoding_of(record.headers) == codec.ENC_JSON
            self.said[topic].append(codec.decode(KINDS[topic], record.value))

    def newest(self, node: str) -> NodeSample:
        return [sample for _, sample in self.samples if sample.node == node][-1]


@asynccontextmanager
async def watching(bootstrap: str, prefix: str) -> AsyncIterator[Watcher]:
    watcher = Watcher(bootstrap, prefix)
    task = asyncio.create_task(watcher.follow())
    try:
        yield watcher
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], bool], what: str, deadline_s: float = 25) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not check():
        assert loop.time() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.02)


async def test_the_loop_is_closed(broker: DevBroker, prefix: str) -> None:
    await create(broker.bootstrap, prefix, PARTITIONS, 1, POLICY)
    settings = Settings(broker.bootstrap, prefix, nodes=4, pods=20, period_ms=200, local_law=False)
    simulation = Simulation(settings)
    node = "sim-00001"
    where = partition_of(node, PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()

    async def say(topic: str, record: Any) -> None:
        await producer.send_and_wait(
            full_name(prefix, topic),
            codec.encode(record),
            key=record.node.encode(),
            headers=codec.JSON_HEADERS,
        )

    def cause(offset: int, log_ms: int) -> Cause:
        return Cause(1, where, offset, log_ms, "abc", 1)

    async with watching(broker.bootstrap, prefix) as seen:
        run = asyncio.create_task(simulation.run())
        try:
            await until(lambda: len(seen.samples) >= 12, "samples")
            assert all(p == partition_of(s.node, PARTITIONS) for p, s in seen.samples)
            await until(lambda: len(seen.said["inventory"]) >= 4, "inventory")
            await say("capacity", Capacity(node, cause(1, 1), 6000, 32 << 30, "usage"))
            await until(lambda: any(e.cpu_milli > 0 for e in seen.said["ledger"]), "a loan")
            await until(lambda: seen.newest(node).pods > 16, "batch pods in the samples")
            lent = [e for e in seen.said["ledger"] if e.node == node][-1]
            assert 0 < lent.cpu_milli <= 6000
            assert all(e.cpu_milli == 0 for e in seen.said["ledger"] if e.node != node)

            broker_ms = await _broker_ms(broker.bootstrap, full_name(prefix, "samples"))
            command = Command(
                id="1.0.50.suppress",
                node=node,
                decider="suppress",
                cause=cause(50, broker_ms),
                expires_log_ms=broker_ms + 30_000,
                reason="online",
                allow_milli=300,
            )
            await say("commands", command)
            await until(lambda: _acked(seen, "1.0.50.suppress") == "applied", "the ack")
            await until(
                lambda: seen.newest(node).node_columns["be_cpu_quota_milli"] == 300,
                "quota read back",
            )
            held = seen.newest(node)
            await until(lambda: seen.newest(node).seq >= held.seq + 5, "five more samples")
            now = seen.newest(node)
            used_us = _node(now, "be_cpu_usage_us") - _node(held, "be_cpu_usage_us")
            rate_milli = used_us * 1000 / (now.mono_us - held.mono_us)
            assert 0 < rate_milli <= 301

            victim = lent.pods[0]
            evict = replace(
                command, id="e", decider="evict_memory", pods=(victim,), cause=cause(60, broker_ms)
            )
            await say("commands", evict)
            await until(lambda: _acked(seen, "e") == "applied", "the eviction's ack")
            await until(
                lambda: any(j.state == "evicted" for j in seen.said["jobs"]), "the job says so"
            )
            await until(
                lambda: victim not in [e for e in seen.said["ledger"] if e.node == node][-1].pods,
                "the loan is released",
            )
            assert simulation.world.retries == 1
        finally:
            simulation.stop()
            summary = await run
            await producer.stop()
        await until(
            lambda: [e for e in seen.said["ledger"] if e.node == node][-1].cpu_milli == 0,
            "nothing is lent at the end",
        )
    assert summary.evictions == 1
    assert summary.samples == simulation.world.sampler.seq.sum()
    assert summary.samples_dropped == 0
    assert summary.batch_core_s > 0
    known: dict[str, set[int]] = {}
    for inventory in seen.said["inventory"]:
        known.setdefault(inventory.node, set()).add(inventory.pods_rev)
    assert all(sample.pods_rev in known[sample.node] for _, sample in seen.samples)


def _acked(seen: Watcher, command_id: str) -> str | None:
    found = [ack.outcome for ack in seen.said["acks"] if ack.command_id == command_id]
    return found[0] if found else None


def _node(sample: NodeSample, column: str) -> int:
    value = sample.node_columns[column]
    assert value is not None
    return value


async def _broker_ms(bootstrap: str, topic: str) -> int:
    """Broker time of the newest record."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        newest = 0
        places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(places)
        for place, end in (await consumer.end_offsets(places)).items():
            if end:
                consumer.seek(place, end - 1)
                newest = max(newest, (await consumer.getone(place)).timestamp)
        return newest
    finally:
        await consumer.stop()


async def _load(bootstrap: str, prefix: str, **changes: Any) -> tuple[Load, list[NodeSample]]:
    await create(bootstrap, prefix, PARTITIONS, 1, POLICY)
    settings = Settings(bootstrap, prefix, nodes=30, pods=20, **changes)
    load = Load(settings)
    async with watching(bootstrap, prefix) as seen:
        summary = await load.run()
        await until(lambda: len(seen.samples) >= summary.samples, "all samples")
        await until(lambda: len(seen.said["inventory"]) == 30, "inventory")
        assert all(p == partition_of(s.node, PARTITIONS) for p, s in seen.samples)
        assert {len(i.pods) for i in seen.said["inventory"]} == {20}
    assert summary.samples == len(seen.samples)
    assert summary.samples_dropped == 0
    return load, [sample for _, sample in seen.samples]


async def test_load_is_whole_and_repeatable(broker: DevBroker, prefix: str) -> None:
    _, once = await _load(broker.bootstrap, prefix + "a.", rate=0, total=1000)
    _, again = await _load(broker.bootstrap, prefix + "b.", rate=0, total=1000)
    assert len(once) == 1000

    def order(sample: NodeSample) -> tuple[str, int]:
        return sample.node, sample.seq

    assert sorted(once, key=order) == sorted(again, key=order)
    by_node: dict[str, list[int]] = {}
    for sample in once:
        by_node.setdefault(sample.node, []).append(sample.seq)
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_node.values())
    assert {len(seqs) for seqs in by_node.values()} == {33, 34}


async def test_load_keeps_its_pace(broker: DevBroker, prefix: str) -> None:
    load, samples = await _load(broker.bootstrap, prefix, rate=300, total=900)
    assert load.summary.seconds == pytest.approx(3.0, abs=0.5)
    assert {sample.period_ms for sample in samples} == {100}


@pytest.mark.slow
async def test_nodes_live_on_while_the_broker_is_away(tmp_path: Path, prefix: str) -> None:
    with DevBroker(data=tmp_path / "kafka") as own:
        await create(own.bootstrap, prefix, PARTITIONS, 1, POLICY)
        settings = Settings(own.bootstrap, prefix, nodes=4, pods=20, period_ms=100)
        simulation = Simulation(settings)
        summary = simulation.summary
        run = asyncio.create_task(simulation.run())
        try:
            await until(lambda: simulation.law.policy("sim-00000") is not None, "the policy")
            sampled = int(summary.samples)
            await asyncio.to_thread(own.kill)
            await until(lambda: summary.samples > sampled + 40, "samples go on")
            assert simulation.law.policy("sim-00000") is not None
            assert not run.done()
            await asyncio.to_thread(own.restart)
            async with watching(own.bootstrap, prefix) as seen:
                reached = int(simulation.world.sampler.seq.min())
                await until(
                    lambda: (
                        {s.node for _, s in seen.samples if s.seq > reached}
                        == set(simulation.world.fleet.names)
                    ),
                    "every node's new samples arrive",
                    40,
                )
                seqs: dict[str, set[int]] = {}
                for _, sample in seen.samples:
                    seqs.setdefault(sample.node, set()).add(sample.seq)
                assert all(found >= set(range(1, reached)) for found in seqs.values())
        finally:
            simulation.stop()
            await run
        assert summary.samples_dropped == 0
        assert summary.law_failures == 0


async def test_the_command_ends_cleanly_on_ctrl_c(broker: DevBroker, prefix: str) -> None:
    await create(broker.bootstrap, prefix, PARTITIONS, 1, POLICY)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from node_agent.simulate.cli import app; app()",
        *("--brokers", broker.bootstrap, "--prefix", prefix, "--nodes", "3", "--json"),
        *("--period", "100ms", "--metrics-port", "0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = await asyncio.wait_for(process.stderr.readline(), 20)
        assert b"metrics on http://127.0.0.1:" in said
        async with watching(broker.bootstrap, prefix) as seen:
            await until(lambda: len(seen.samples) > 10, "samples")
        process.send_signal(signal.SIGINT)
        out, errors = await asyncio.wait_for(process.communicate(), 15)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors
    summary = orjson.loads(out)
    assert summary["nodes"] == 3
    assert summary["samples"] > 10


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--nodes", "0"], "allowed"),
        (["--period", "1h"], "period"),
        (["--total", "5"], "needs a rate"),
        (["--for", "soon"], "--for"),
        (["--rate", "5", "--nodes", "2", "--brokers", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
async def test_what_cannot_be_is_one_line(options: list[str], word: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from node_agent.simulate.cli import app; app()",
        *options,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 2
    assert word in errors.decode()
    assert errors.count(b"\n") == 1
