"""The second stage: a Faust app that computes fleet facts and keeps the public windowed tables.

Run by `slackwater fleet`. Two agents, both fed raw bytes and letting no exception out:

- ``facts`` reads what every partition says of its nodes on `fleet` and publishes `FleetFacts`.
  All of its state is on that topic: at start the newest record of each key is read, and older
  ones are not folded again. After each rebalance it speaks only for records beyond the end of the
  topic as it then is, so that revisions grow across owners. The arithmetic is `agents.fleet`.
- ``minutes`` counts reservations, signals and capacity into `streams.tables`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import faust
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents.fleet import Fleet, due
from schemas import codec, policy
from schemas.errors import BadPolicy, BadRecord
from schemas.records import (
    FLEET_KEY,
    INSTALLATION_KEY,
    DeadLetter,
    FleetFacts,
    PartitionHealth,
    PolicyRecord,
)
from schemas.topics import PREFIX, full_name
from streams.faust_app import DisklessApp
from streams.installation import find
from streams.metrics import Metrics
from streams.settings import WorkerSettings
from streams.tables import SOURCES, MinuteTable, read_source
from streams.topic_reader import (
    POLL_MS,
    CannotRun,
    consumer,
    newest_by_key,
    partitions_of,
    producer,
    started,
)
from streams.topics_admin import DEFAULT_POLICY
from streams.watchdog import Sight, Watchdog

log = logging.getLogger(__name__)

PRUNE_S = 30.0
LOOK_S = 5.0
STALL_AFTER_S = 60.0
STALL_GRACE_S = 30.0
RETRY_S = 1.0
HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where the second stage finds its broker, and how fast it notices a lost member."""

    brokers: str
    prefix: str = PREFIX
    session_timeout_s: float = 10.0
    heartbeat_s: float = 2.0

    def topic(self, name: str) -> str:
        """The broker's name of a topic of the table."""
        return full_name(self.prefix, name)


class FleetStage:
    """One process of the second stage; `run` until told to stop."""

    def __init__(self, settings: FleetSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.policy: policy.Policy | None = None
        self.fleet = Fleet(0, 0)
        self.said: FleetFacts | None = None
        self.said_ms = 0
        self._producer: Any = None
        self._speak_from: int | None = None  # offset in `fleet`; None: until the end is known
        self._running = False
        self._next: dict[tuple[str, int], int] = {}
        self._dogs = {topic: Watchdog(STALL_AFTER_S, float("inf")) for topic in ("fleet", *SOURCES)}
        self._warned: set[tuple[str, str]] = set()
        self.app = self._build()
        self.minutes = MinuteTable(self.app)

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set. Raises CannotRun when the engine died or stalls for good, and
        NotInstalled when topics are missing.
        """
        await self._prepare()
        brokers = self.settings.brokers
        async with (
            started(producer(brokers), brokers) as self._producer,
            started(consumer(brokers), brokers) as reader,
        ):
            watch = asyncio.create_task(self._watch(reader))
            await self.app.start()
            self._running = True  # Faust says so before its consumer can be asked
            log.info("fleet runs: %d partitions", self.fleet.partitions)
            try:
                await self.app.wait_first(stop.wait(), watch)
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
                await self.app.stop()
        if not stop.is_set():
            raise CannotRun(f"the second stage ended by itself: {self.live() or 'see the log'}")

    def live(self) -> str:
        """What stands still; empty when nothing does."""
        return next((f"{topic}: {dog.why}" for topic, dog in self._dogs.items() if dog.why), "")

    def ready(self) -> str:
        """What is not done yet; empty when all is."""
        if not self._running:
            return "starting"
        if self.app.rebalancing or self.app.in_recovery:
            return "rebalancing or restoring the table"
        return "" if self.app.consumer.assignment() else "no partition assigned"

    def _build(self) -> faust.App:
        settings = self.settings
        app = DisklessApp(
            f"{settings.prefix}fleet",
            broker=[f"kafka://{broker.strip()}" for broker in settings.brokers.split(",")],
            autodiscover=False,
            store="memory://",
            broker_session_timeout=settings.session_timeout_s,
            broker_heartbeat_interval=settings.heartbeat_s,
            broker_request_timeout=30.0,
            broker_commit_interval=1.0,
            consumer_auto_offset_reset="earliest",
            stream_buffer_maxsize=1024,
            stream_wait_empty=False,
            producer_linger=0.02,
            producer_request_timeout=30.0,
            table_standby_replicas=0,
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            loghandlers=[],
        )
        self._connect(app)
        return app

    def _connect(self, app: faust.App) -> None:
        settings = self.settings
        raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes}
        raw |= {"key_serializer": "raw", "value_serializer": "raw"}
        sources = {settings.topic(name): name for name in SOURCES}

        async def facts(stream: Any) -> None:
            async for event in stream.events():
                await self._guarded("fleet", event, self._on_health)

        async def minutes(stream: Any) -> None:
            async for event in stream.events():
                await self._guarded(sources[event.message.topic], event, self._on_source)

        async def prune() -> None:
            gone = self.minutes.prune()
            self.metrics.add("fleet_pruned_total", by=gone)
            self.metrics.put("fleet_minutes_rows", value=len(self.minutes))

        async def on_rebalance(*_: Any, **__: Any) -> None:
            self._speak_from = None

        app.on_partitions_revoked.connect(on_rebalance)
        app.on_partitions_assigned.connect(on_rebalance)
        app.agent(app.topic(settings.topic("fleet"), **raw), name="facts")(facts)
        app.agent(app.topic(*sources, **raw), name="minutes")(minutes)
        app.timer(PRUNE_S)(prune)

    async def _guarded(self, topic: str, event: Any, handle: Any) -> None:
        """Handle one record; a bad one becomes a dead letter, and nothing is raised."""
        message = event.message
        try:
            outcome = "tombstone" if message.value is None else await handle(topic, message)
        except BadRecord as error:
            await self._dead_letter(topic, message, error)
            outcome = "bad"
        except Exception:
            # Faust would skip the record without a word, or end the agent.
            log.exception("a bug: %s/%d at %d", topic, message.partition, message.offset)
            self.metrics.add("bugs_total", topic)
            outcome = "bug"
        self._next[topic, message.partition] = message.offset + 1
        self.metrics.add("fleet_records_total", topic, outcome)

    async def _on_health(self, topic: str, message: Any) -> str:
        if message.key in (FLEET_KEY, INSTALLATION_KEY):
            return "own"
        health = codec.read(topic, message.key, message.value, message.headers)
        at_ms = _log_ms(message)
        if not self.fleet.fold(_partition_of(message.key, health), at_ms, message.offset, health):
            return "repeat"
        facts = self.fleet.facts(self.policy)
        self._show(facts)
        # A predecessor may have read on beyond what it committed: what it said is said.
        if self._speak_from is not None and message.offset >= self._speak_from:
            await self._say(facts)
        return "folded"

    async def _say(self, facts: FleetFacts) -> None:
        now_ms = self.fleet.now_ms
        if not due(facts, now_ms, self.said, self.said_ms):
            return
        value, name = codec.encode(facts), self.settings.topic("fleet")
        try:
            await self._producer.send_and_wait(
                name, value=value, key=FLEET_KEY, headers=codec.JSON_HEADERS
            )
        except KafkaError as error:  # the next record says it again; silence means no evictions
            log.warning("fleet facts not published: %s", error)
            return
        self.said, self.said_ms = facts, now_ms
        self.metrics.add("fleet_facts_total")

    async def _on_source(self, topic: str, message: Any) -> str:
        said = read_source(topic, message.key, message.value, message.headers, _log_ms(message))
        return self.minutes.count(topic, said, message.partition)

    async def _dead_letter(self, topic: str, message: Any, error: BadRecord) -> None:
        """Write a dead letter and wait for it; while the broker is away this record waits."""
        first = (topic, error.reason) not in self._warned
        self._warned.add((topic, error.reason))
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "%s/%d at %d: %s", topic, message.partition, message.offset, error)
        self.metrics.add("dead_letters_total", topic, error.reason)
        value = message.value or b""
        letter = DeadLetter(
            topic=topic,
            partition=message.partition,
            offset=message.offset,
            reason=error.reason,
            detail=error.detail[:200],
            key_hex=(message.key or b"")[:HEAD_BYTES].hex(),
            head_hex=value[:HEAD_BYTES].hex(),
            size_bytes=len(value),
        )
        name = self.settings.topic("dead-letters")
        while True:
            try:
                await self._producer.send_and_wait(
                    name,
                    value=codec.encode(letter),
                    key=topic.encode(),
                    headers=codec.JSON_HEADERS,
                )
            except KafkaError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _prepare(self) -> None:
        """Check the topics, and read the state that `fleet` and `policies` keep."""
        settings = self.settings
        installation = await find(WorkerSettings(settings.brokers, settings.prefix))
        newest = await newest_by_key(settings.brokers, settings.topic("fleet"))
        newest.pop(INSTALLATION_KEY, None)
        self.fleet = Fleet(installation.partitions, installation.incarnation)
        for known in (await newest_by_key(settings.brokers, settings.topic("policies"))).values():
            self._on_policy(known)
        self._resume(newest.pop(FLEET_KEY, None), newest)

    def _resume(self, facts: Any, healths: dict[bytes | None, Any]) -> None:
        """Fold the newest health of each partition, and keep the shares that facts gave out."""
        for one in sorted(healths.values(), key=lambda one: one.offset):
            try:
                health = codec.decode(PartitionHealth, one.value)
                self.fleet.fold(_partition_of(one.key, health), one.timestamp, one.offset, health)
            except BadRecord as error:
                log.warning("fleet at %d: %s", one.offset, error)
        if facts is not None:
            self._resume_shares(facts)

    def _resume_shares(self, record: Any) -> None:
        try:
            facts = codec.decode(FleetFacts, record.value)
        except BadRecord as error:
            log.warning("fleet at %d: %s", record.offset, error)
            return
        if self.policy is not None and len(facts.budgets) == self.fleet.partitions:
            self.fleet.slot = record.timestamp // self.policy.evict_memory.cooldown_ms
            self.fleet.shares = facts.budgets

    async def _watch(self, reader: Any) -> None:
        """Follow policies, and watch progress; ends when something stands still for too long."""
        reader.assign(await partitions_of(reader, self.settings.topic("policies")))
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while not any(dog.failing_s(loop.time()) > STALL_GRACE_S for dog in self._dogs.values()):
            try:
                batches = await reader.getmany(timeout_ms=POLL_MS)
            except KafkaError as error:
                log.warning("policies cannot be read: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            for records in batches.values():
                for record in records:
                    self._on_policy(record)
            if self._running and self._speak_from is None:
                await self._find_end(reader)
            if self._running and loop.time() - looked >= LOOK_S:
                looked = loop.time()
                await self._look(reader, looked)

    async def _find_end(self, reader: Any) -> None:
        part = TopicPartition(self.settings.topic("fleet"), 0)
        try:
            self._speak_from = (await reader.end_offsets([part]))[part]
        except KafkaError as error:
            log.warning("the end of fleet is not known: %s", error)

    async def _look(self, reader: Any, now: float) -> None:
        owned = self.app.consumer.assignment()
        for topic, dog in self._dogs.items():
            name = self.settings.topic(topic)
            parts = [tp for tp in owned if tp.topic == name]
            try:
                ends = await reader.end_offsets([TopicPartition(*tp) for tp in parts])
            except KafkaError:
                dog.pause(now)
                continue
            sights = {}
            for part, end in ends.items():
                after = self._next.get((topic, part.partition), 0)
                sights[part.partition] = Sight(after, end, after - 1)
            dog.look(now, sights)

    def _on_policy(self, record: Any) -> None:
        if record.key != DEFAULT_POLICY.encode() or record.value is None:
            return
        try:
            self.policy = policy.published(codec.decode(PolicyRecord, record.value)).policy
        except (BadRecord, BadPolicy) as error:
            log.warning("policy ignored: %s", error)

    def _show(self, facts: FleetFacts) -> None:
        put = self.metrics.put
        put("fleet_revision", value=facts.revision)
        put("fleet_nodes", value=facts.nodes)
        put("fleet_silent_nodes", value=facts.silent)
        put("fleet_ill_permille", value=facts.ill_permille)
        put("fleet_partitions_missing", value=self.fleet.partitions - facts.partitions_seen)
        put("fleet_eviction_budget", value=sum(facts.budgets))


def _log_ms(message: Any) -> int:
    """Append time; Faust keeps it in seconds."""
    seconds: float = message.timestamp
    return round(seconds * 1000)


def _partition_of(key: bytes | None, health: PartitionHealth) -> int:
    """The partition a health record speaks for; its key must say the same."""
    partition = health.cause.partition
    if key != f"partition/{partition}".encode():
        raise BadRecord("key_mismatch", f"key {key!r:.80}, partition {partition}")
    return partition
