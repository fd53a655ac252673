"""Said once more into a namespace of its own: all of it, in time, and nobody acts on it."""

from __future__ import annotations

from asyncio import to_thread
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from node_agent.inbox import said
from scheduler_bridge.evictions import inputs
from scheduler_bridge.evictions.budget import Budget, Limits
from scheduler_bridge.evictions.flights import Flights
from scheduler_bridge.evictions.queue import Queue
from scheduler_bridge.loop import Bridge
from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME, Settings
from scheduler_bridge.sinks.dry_run import DryRun
from schemas import codec, topics
from schemas.errors import BadRecord
from schemas.records import INSTALLATION_KEY, LEASE_KEY
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from streams.recording import Recording
from streams.recording.segment import Record
from streams.replay import Fold, start_of
from streams.replay.cli import app
from streams.replay.into import REPLAYED
from streams.replay.keys import SAID
from tests.scheduler_bridge.evictions.said import NODE, command
from tests.streams.fleet_kit import read_all

RUN = CliRunner()
NAMES = {*SAID, "samples", *topics.SIDE_TOPICS}


async def published(broker: DevBroker, prefix: str, partitions: int) -> dict[str, list[Any]]:
    return {
        name: await read_all(
            broker.bootstrap,
            full_name(prefix, name),
            topics.partitions_of(topics.BY_NAME[name], partitions),
        )
        for name in NAMES
    }


async def test_all_of_it_arrives_with_the_times_of_then(
    broker: DevBroker, path: Path, recording: Recording
) -> None:
    prefix = "replay.all."
    done = await to_thread(
        RUN.invoke, app, [str(path), "--into", broker.bootstrap, "--prefix", prefix]
    )
    assert done.exit_code == 0, done.output
    there = await published(broker, prefix, recording.manifest.partitions)
    for topic in ("samples", "inventory", "policies", "acks"):
        was = [r for t, p in recording.places if t == topic for r in recording.records(t, p)]
        assert Counter((r.partition, r.timestamp, r.key, r.value) for r in there[topic]) == Counter(
            (r.partition, r.timestamp, r.key, r.value) for r in was
        )
        for record in there[topic]:
            assert record.headers == was[0].headers or topic == "samples"
    decided = Counter(
        output.topic
        for partition in recording.partitions()
        for batch in Fold(recording, partition, start_of(recording, partition))
        for output in batch
    )
    for topic in SAID:
        ours = [r for r in there[topic] if r.headers == REPLAYED]
        assert len(ours) == decided[topic], topic
        if topic not in topics.SIDE_TOPICS:
            assert len(ours) == len(there[topic])
    assert not [r for r in there["fleet"] if r.key == INSTALLATION_KEY], "no worker starts there"
    again = await to_thread(
        RUN.invoke, app, [str(path), "--into", broker.bootstrap, "--prefix", prefix]
    )
    assert again.exit_code == 2
    assert "is there already" in again.stderr


def both(topic: str, key: bytes, record: Any) -> tuple[Record, Record]:
    """As a worker said it, and as a replay does."""
    value = codec.encode(record)
    said_then = Record(topic, 0, 5, 1_000, key, value, tuple(codec.JSON_HEADERS))
    return said_then, Record(topic, 0, 5, 1_000, key, value, REPLAYED)


def decided(recording: Recording, topic: str) -> list[tuple[bytes, Any]]:
    return [
        (output.key, output.record)
        for partition in recording.partitions()
        for batch in Fold(recording, partition, start_of(recording, partition))
        for output in batch
        if output.topic == topic
    ]


def test_no_node_reads_a_replayed_command(recording: Recording) -> None:
    found = decided(recording, "commands")
    assert {key for key, _ in found} > {LEASE_KEY}
    for key, record in found:
        then, now = both("commands", key, record)
        assert said("commands", then) == record
        with pytest.raises(BadRecord, match="unknown_encoding"):
            said("commands", now)


def test_no_bridge_reads_replayed_capacity(recording: Recording, tmp_path: Path) -> None:
    bridge = Bridge(Settings("none"), DryRun(tmp_path / "told", print, CPU_NAME, MEMORY_NAME))
    found = decided(recording, "capacity")
    for key, record in found:
        bridge._fold("capacity", both("capacity", key, record)[1])
    assert not bridge.view.desired
    bridge._fold("capacity", both("capacity", *found[0])[0])
    assert len(bridge.view.desired) == 1


def test_no_evictor_reads_a_replayed_eviction() -> None:
    then, now = both("commands", NODE.encode(), command(1, "a"))
    queue, budget, flights = Queue(), Budget(Limits()), Flights()
    with pytest.raises(BadRecord, match="unknown_encoding"):
        inputs.fold("commands", now, queue, budget, flights, inputs.unchecked)
    assert inputs.fold("commands", then, queue, budget, flights, inputs.unchecked) == "read"


@pytest.mark.parametrize("prefix", ["slackwater.", "replay.", "replay.a", "other.replay.a.", ""])
def test_only_a_replays_own_prefix_is_taken(path: Path, prefix: str) -> None:
    done = RUN.invoke(app, [str(path), "--into", "127.0.0.1:1", "--prefix", prefix])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "a prefix of its own" in done.stderr
