"""The whole agent: a real broker, this kernel's groups, a process of its own or one in the test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from node_agent import loop
from node_agent.discovery import Discovery
from node_agent.inbox import partition_of
from node_agent.inventory_file import InventoryFile
from node_agent.journal import NAME, recall
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups
from schemas import codec, packed
from schemas.records import (
    LEASE_KEY,
    Ack,
    Cause,
    Command,
    IsolationSettings,
    Lease,
    PolicyRecord,
)
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.dev_broker.process import free_port
from tests.node_agent.kernel import real_groups
from tests.node_agent.nri_runtime import CLASSES, listening
from tests.node_agent.test_outbox import PARTITIONS, topics, until
from tests.support import patient

NODE = "loop-node"
TTL_MS = 30_000
HALF_MILLI = (os.cpu_count() or 1) * 500
# The floor of half the machine makes the local law say at least that, whatever else runs here.
POLICY = """
name: default
rollout: {stage: expand}
suppress: {threshold_percent: 100, floor_percent: 50, raise_permille: 1000}
evict_memory: {threshold_percent: 99, lower_percent: 98}
memory_qos: {be: {enabled: true}}
"""

pytestmark = pytest.mark.kernel


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


def quota_milli(groups: Groups) -> int:
    directory = groups.directory("cpu", groups.be_root)
    v1 = directory / "cpu.cfs_quota_us"
    if v1.exists():
        quota, period = v1.read_text().strip(), (directory / "cpu.cfs_period_us").read_text()
    else:
        quota, period = (directory / "cpu.max").read_text().split()
    return -1 if quota in ("-1", "max") else int(quota) * 1000 // int(period)


def suppress(offset: int, allow_milli: int) -> Command:
    now_ms = time.time_ns() // 1_000_000  # the broker's clock is this machine's
    cause = Cause(1, partition_of(NODE, PARTITIONS), offset, now_ms, "digest", 1)
    name = f"1.{cause.partition}.{offset}.{NODE}.suppress"
    return Command(name, NODE, "suppress", cause, now_ms + TTL_MS, "lower", allow_milli)


def evict(offset: int, *pods: str) -> Command:
    command = suppress(offset, -1)
    return replace(command, id=f"{command.id}.evict", decider="evict_memory", pods=pods)


class Centre:
    """What a worker would say and hear: commands out, acks and samples in."""

    def __init__(self, broker: DevBroker, prefix: str) -> None:
        self.broker, self.prefix = broker, prefix
        self.acks: list[Ack] = []
        self.samples: list[packed.PackedSample] = []
        self.inventories = 0
        self.raw: list[tuple[str, ConsumerRecord]] = []  # table name of the topic, as received

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        own = partition_of(NODE, PARTITIONS)
        places = [
            TopicPartition(full_name(self.prefix, name), own)
            for name in ("acks", "samples", "inventory")
        ]
        self.producer = AIOKafkaProducer(bootstrap_servers=self.broker.bootstrap)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.broker.bootstrap, auto_offset_reset="earliest"
        )
        await self.producer.start()
        await consumer.start()
        consumer.assign(places)
        task = asyncio.create_task(self._hear(consumer))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await consumer.stop()
            await self.producer.stop()

    async def say(self, *records: Command | Lease) -> None:
        for record in records:
            key = LEASE_KEY if isinstance(record, Lease) else record.node.encode()
            await self.producer.send_and_wait(
                full_name(self.prefix, "commands"),
                codec.encode(record),
                key=key,
                partition=partition_of(NODE, PARTITIONS),
                headers=codec.JSON_HEADERS,
            )

    def answers(self, command: Command) -> list[Ack]:
        return [ack for ack in self.acks if ack.command_id == command.id]

    async def _hear(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            record = await consumer.getone()
            self.raw.append((record.topic.removeprefix(self.prefix), record))
            if record.topic.endswith("acks"):
                self.acks.append(codec.decode(Ack, record.value))
            elif record.topic.endswith("inventory"):
                self.inventories += 1
            else:
                encoding = codec.encoding_of(record.headers)
                self.samples.append(codec.parse_sample(record.value, record.key, encoding))


class LyingClock:
    """Monotonic time is true; the wall clock is an hour off and jumps back all the time."""

    def __init__(self) -> None:
        self.calls = 0

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wall_ms(self) -> int:
        self.calls += 1
        return time.time_ns() // 1_000_000 - 3_600_000 * (1 + self.calls % 2)


@pytest.fixture
def centre(broker: DevBroker, prefix: str) -> Centre:
    return Centre(broker, prefix)


def source_of(inventory: Path, groups: Groups) -> Discovery:
    """The machine as the file has it."""
    file = InventoryFile(str(inventory))
    return Discovery(NODE, groups.layout, first_rev=1, kubernetes=False, file=file)


def settings_for(centre: Centre, folder: Path, inventory: Path) -> Settings:
    return Settings(
        NODE,
        centre.broker.bootstrap,
        centre.prefix,
        folder / "state",
        period_ms=200,
        inventory=inventory,
    )


async def test_r13_clocks_may_lie_commands_are_obeyed_at_once_all_the_same(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    await topics(centre.broker, centre.prefix, POLICY)
    settings = settings_for(centre, tmp_path, inventory)
    source = source_of(inventory, groups)
    agent = NodeAgent(settings, groups.layout, source, LyingClock())
    async with centre.at_work():
        life = asyncio.create_task(agent.run())
        try:
            await until(lambda: quota_milli(groups) == 10, 20, "the floor")
            await until(lambda: (agent.obey.lease.local_milli or 0) >= HALF_MILLI, 20, "law")
            await until(lambda: agent.readers["commands"].connected, 20, "the reader")
            command = suppress(5, 300)
            began = time.monotonic()
            await centre.say(command)
            await until(lambda: quota_milli(groups) == 300, 5, "the command in force")
            assert time.monotonic() - began < 1.0  # it does not wait for a period of the law
            await until(lambda: bool(centre.answers(command)), 5, "its ack")
            (ack,) = centre.answers(command)
            assert (ack.outcome, ack.asked_milli, ack.in_force_milli) == ("applied", 300, 300)
            await centre.say(command, suppress(4, 900), replace(suppress(6, 900), node="other"))
            await until(lambda: len(centre.answers(command)) == 2, 5, "the duplicate's ack")
            assert centre.answers(command)[1].outcome == "duplicate"
            assert quota_milli(groups) == 300
            refused = {ack.reason for ack in centre.acks if ack.outcome == "refused"}
            await until(
                lambda: any(ack.reason == "stale_order" for ack in centre.acks), 5, "refusal"
            )
            assert refused <= {"stale_order", "wrong_node"}
            wall = [sample.wall_ms for sample in centre.samples]
            assert wall != sorted(wall)  # it lied, and was sent all the same
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(life, patient(15)) == 0
    assert quota_milli(groups) == -1
    assert [s.seq for s in centre.samples] == list(range(1, len(centre.samples) + 1))
    assert centre.inventories == 1


async def test_records_that_cannot_be_read_are_counted_by_cause_and_the_agent_lives(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    """What codec refuses of a text is in tests/schemas/test_codec.py."""
    await topics(centre.broker, centre.prefix, POLICY)
    settings = settings_for(centre, tmp_path, inventory)
    agent = NodeAgent(settings, groups.layout, source_of(inventory, groups), SystemClock())
    wild = orjson.loads(codec.encode(suppress(7, 900)))
    ours = {"key": NODE.encode(), "partition": partition_of(NODE, PARTITIONS)}
    newer = [("enc", codec.ENC_JSON), ("v", b"2")]
    good = codec.encode(suppress(8, 900))
    async with centre.at_work():
        life = asyncio.create_task(agent.run())
        try:
            await until(lambda: (agent.obey.lease.local_milli or 0) >= HALF_MILLI, 20, "law")
            policy = agent.obey.lease.policy
            for raw, headers in (
                (good[:-1], codec.JSON_HEADERS),
                (good.replace(b"900", b"NaN"), codec.JSON_HEADERS),
                (good.replace(b"900", b"1e308"), codec.JSON_HEADERS),
                (orjson.dumps({k: v for k, v in wild.items() if k != "cause"}), codec.JSON_HEADERS),
                (good, newer),
                (good, codec.PACKED_HEADERS),
                (good, []),
            ):
                name = full_name(centre.prefix, "commands")
                await centre.producer.send_and_wait(name, raw, headers=headers, **ours)
            rules = codec.encode(PolicyRecord("default", 2, "", "name: default\n"))
            for raw, headers in ((rules[:-1], codec.JSON_HEADERS), (rules, newer)):
                name = full_name(centre.prefix, "policies")
                await centre.producer.send_and_wait(name, raw, key=b"default", headers=headers)
            command = suppress(5, 300)
            await centre.say(command)
            await until(lambda: quota_milli(groups) == 300, 10, "the command after them")
            assert agent.readers["commands"].refused == {
                "broken_json": 2, "wrong_type": 1, "missing_field": 1, "unknown_version": 1,
                "unknown_encoding": 2,
            }  # fmt: skip
            policies = agent.readers["policies"]
            await until(lambda: policies.refused.total() == 2, 5, "both policies")
            assert policies.refused == {"broken_json": 1, "unknown_version": 1}
            assert agent.obey.lease.policy == policy
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(life, patient(15)) == 0


async def test_a_node_of_a_new_installation_only_observes(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    """Its first start, before it has read any policy, included: the journal knows of no write, and
    containers are made as they were asked for.
    """
    await topics(centre.broker, centre.prefix, "name: default\n")
    source = source_of(inventory, groups)
    settings = replace(settings_for(centre, tmp_path, inventory), nri=tmp_path / "nri.sock")
    agent = NodeAgent(settings, groups.layout, source, LyingClock())
    async with centre.at_work(), listening(tmp_path / "nri.sock") as runtime:
        life = asyncio.create_task(agent.run())
        try:
            await until(lambda: agent.readers["commands"].connected, 20, "the reader")
            command = suppress(5, 300)
            await centre.say(command)
            await until(lambda: bool(centre.answers(command)), 20, "its ack")
            assert centre.answers(command)[0].reason == "suppress_off"
            await asyncio.wait_for(runtime.ready.wait(), 20)
            assert await runtime.create("batch", "main") == CLASSES["LinuxResources"]()
            heard = len(centre.samples)
            await until(lambda: len(centre.samples) > heard + 5, 20, "samples")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(life, 15) == 0
    assert quota_milli(groups) == -1
    assert recall(tmp_path / "state").originals == {}
    journal = (tmp_path / "state" / NAME).read_bytes()
    assert b'"original"' not in journal


async def test_without_any_policy_the_floor_holds_after_a_while(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "POLICY_S", 2.0)
    await topics(centre.broker, centre.prefix, "{")
    source = source_of(inventory, groups)
    agent = NodeAgent(
        settings_for(centre, tmp_path, inventory), groups.layout, source, LyingClock()
    )
    life = asyncio.create_task(agent.run())
    try:
        await until(lambda: agent.outbox.sent > 0, 20, "a sample")
        await until(lambda: quota_milli(groups) == 10, 20, "the floor")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(life, 15) == 0
    assert quota_milli(groups) == -1


async def test_evictions_by_command_leave_online_pods_alone(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    await topics(centre.broker, centre.prefix, POLICY)
    web = Greedy(f"{groups.name}/online/web", 1, tmp_path / "web")
    batch = Greedy(f"{groups.be_root}/batch", 2, tmp_path / "batch")
    source = source_of(inventory, groups)
    settings = settings_for(centre, tmp_path, inventory)
    agent = NodeAgent(settings, groups.layout, source, LyingClock())
    async with centre.at_work():
        life = asyncio.create_task(agent.run())
        try:
            await until(lambda: agent.obey.lease.policy is not None, 20, "the policy")
            await until(lambda: agent.outbox.sent > 0, 20, "broker time")
            wrong, right = evict(5, "web"), evict(6, "batch")
            await centre.say(wrong, right)
            await until(lambda: bool(centre.answers(right)), 10, "the eviction's ack")
            assert centre.answers(wrong)[0].reason == "not_best_effort"
            ack = centre.answers(right)[0]
            assert (ack.outcome, ack.pods, ack.reason) == ("applied", ("batch",), "")
            assert batch.wait(patient(2)) == -9
            assert web.alive
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            assert await asyncio.wait_for(life, patient(15)) == 0
            web.stop()
            batch.stop()


class Process:
    """`python -m node_agent run` in a process of its own."""

    def __init__(self, centre: Centre, folder: Path, inventory: Path) -> None:
        self.folder, self.port = folder, free_port("127.0.0.1")
        options = {
            "--node": NODE,
            "--brokers": centre.broker.bootstrap,
            "--prefix": centre.prefix,
            "--period": "200ms",
            "--inventory": str(inventory),
            "--state-dir": str(folder / "state"),
            "--metrics-port": str(self.port),
        }
        command = [sys.executable, "-m", "node_agent", "run"]
        for name, value in options.items():
            command += [name, value]
        self.command = command
        self.log = (folder / "agent.log").open("ab")
        self.process = subprocess.Popen(command, stderr=self.log)

    def metric(self, name: str) -> float:
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=patient(5)) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"slackwater_node_{name} "):
                    return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(patient(20))
        self.log.close()
        return code


@pytest.mark.only_outside("starts and kills a broker of its own: no Java there")
async def test_r1_silent_brain_sampling_and_law_go_on_and_the_broker_finds_all_again(
    groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    own = DevBroker(data=tmp_path / "kafka")
    await asyncio.to_thread(own.start)
    centre = Centre(own, "t.")
    await topics(own, "t.", POLICY)
    agent = Process(centre, tmp_path, inventory)
    try:
        async with centre.at_work():
            await until(lambda: quota_milli(groups) == 10, 30, "the floor")
            await until(lambda: len(centre.samples) > 10, 20, "samples")
            await centre.say(suppress(5, 300))
            await until(lambda: quota_milli(groups) == 300, 10, "the command in force")
        heard = len(centre.samples)
        await asyncio.to_thread(own.kill)
        before = agent.metric("samples_total")
        await until(lambda: agent.metric("samples_total") >= before + 15, 20, "sampling goes on")
        assert quota_milli(groups) == 300  # the last ceiling, under the local law
        await asyncio.to_thread(own.start)
        again = Centre(own, "t.")
        async with again.at_work():
            await until(lambda: len(again.samples) > heard + 15, 40, "the samples of the gap")
            seqs = [sample.seq for sample in again.samples]
            assert sorted(set(seqs)) == list(range(1, max(seqs) + 1))  # nothing was lost
            await again.say(suppress(9, 200))
            await until(lambda: quota_milli(groups) == 200, 40, "a command after the return")
        assert agent.end(signal.SIGTERM) == 0
        assert quota_milli(groups) == -1
    finally:
        agent.process.kill()
        await asyncio.to_thread(own.close)


async def test_killed_agent_leaves_what_the_next_start_or_release_all_puts_right(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    await topics(centre.broker, centre.prefix, POLICY)
    agent = Process(centre, tmp_path, inventory)
    try:
        await until(lambda: quota_milli(groups) == 10, 30, "the floor")
        second = await asyncio.to_thread(
            subprocess.run, agent.command, capture_output=True, timeout=patient(30), check=False
        )
        assert second.returncode == 1
        assert b"one agent a node" in second.stderr
        assert agent.end(signal.SIGKILL) == -9
        assert quota_milli(groups) == 10
        state = ["--state-dir", str(tmp_path / "state"), "--json"]
        shown = await _node("show", *state)
        assert orjson.loads(shown)["in_force_milli"] == 10
        assert groups.be_root in orjson.loads(shown)["originals"]
        released = await _node("release-all", *state)
        assert orjson.loads(released) == {
            "released": [groups.be_root],
            "refused": {groups.be_root: []},
            "broken_lines": 0,
            "drills": [],
        }
        assert quota_milli(groups) == -1
        assert recall(tmp_path / "state").originals == {}
    finally:
        agent.process.kill()


async def test_isolation_outlives_a_kill_is_learnt_again_and_is_gone_after_an_uninstall(
    centre: Centre, groups: Groups, inventory: Path, tmp_path: Path
) -> None:
    await topics(centre.broker, centre.prefix, POLICY)
    settings = IsolationSettings(
        classes={"BE": {"cpu_shares": 20, "bvt": -1}, "LS": {"cpu_shares": 4096}},
        pods=("web",),
        pod_knobs={"memory_high_bytes": [1 << 20]},
    )
    command = replace(suppress(5, -1), id="isolate-5", decider="isolate", settings=settings)
    before, agent = shares(groups), Process(centre, tmp_path, inventory)
    try:
        async with centre.at_work():
            await centre.say(command)
            await until(lambda: bool(centre.answers(command)), 30, "the isolation's ack")
            (ack,) = centre.answers(command)
            assert ack.outcome == "applied"
            assert "bvt" in ack.reason.partition("no_actuator:")[2].partition(";")[0]
            assert "not_for_online:memory_high_bytes" in ack.reason
            held = shares(groups)
            assert held != before
            assert agent.end(signal.SIGKILL) == -9
            assert shares(groups) == held
            shares_file(groups, "online/web").write_text(
                before["online/web"]
            )  # drift, while nobody looks
            agent = Process(centre, tmp_path, inventory)
            await until(lambda: shares(groups) == held, 30, "the settings, from history")
            assert len(centre.answers(command)) == 1
            assert agent.end(signal.SIGKILL) == -9
        state = tmp_path / "state"
        await _node("uninstall", "--state-dir", str(state))
        assert shares(groups) == before
        assert quota_milli(groups) == -1
        assert not state.exists()
    finally:
        agent.process.kill()


def shares(groups: Groups) -> dict[str, str]:
    """What the pods' groups say of their share of the CPU."""
    return {
        place: shares_file(groups, place).read_text().strip()
        for place in ("online/web", "besteffort/batch")
    }


def shares_file(groups: Groups, place: str) -> Path:
    directory = groups.directory("cpu", f"{groups.name}/{place}")
    v1 = directory / "cpu.shares"
    return v1 if v1.exists() else directory / "cpu.weight"


async def _node(*arguments: str) -> bytes:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "node_agent", *arguments],
        capture_output=True,
        timeout=patient(30),
        check=True,
    )
    return bytes(done.stdout)
