"""`slackwater topics` on a real broker: create, list, cat, doc, acls, and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import socket
import threading
import time
from typing import Any

import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from schemas import codec, packed
from schemas.records import LEASE_KEY, Cause, Lease, Tick
from schemas.topics import BY_NAME, MINUTES, TOPICS, configs_of, full_name, partitions_of
from streams.dev_broker import DevBroker
from streams.topic_reader import admin, started, whole
from streams.topics_admin import Created, create, installation_of, states
from tests.schemas.examples import SAMPLE
from tests.streams.fleet_kit import until
from tests.streams.stage_kit import Slackwater, opened, teller

PARTITIONS = 3
POLICY = "name: default\n"


@pytest.fixture
def sw(broker: DevBroker, prefix: str) -> Slackwater:
    return Slackwater(broker.bootstrap, prefix)


async def made(broker: DevBroker, prefix: str, partitions: int = PARTITIONS) -> Created:
    return await create(broker.bootstrap, prefix, partitions, None, POLICY)


async def ask(broker: DevBroker, method: str, *arguments: Any) -> Any:
    async with started(admin(broker.bootstrap), broker.bootstrap) as client:
        assert isinstance(client, AIOKafkaAdminClient)
        return await getattr(client, method)(*arguments)


async def test_create_makes_the_table_with_its_settings(broker: DevBroker, prefix: str) -> None:
    done = await made(broker, prefix)
    assert set(done.created) == {full_name(prefix, topic.name) for topic in TOPICS}
    assert (done.replication, done.policy_written) == (1, True)
    found = {state.name: state for state in await states(broker.bootstrap, prefix)}
    for topic in TOPICS:
        state = found[full_name(prefix, topic.name)]
        assert state.exists
        assert state.partitions == partitions_of(topic, PARTITIONS) == state.expected_partitions
        assert state.differs == {}
    names = [ConfigResource(ConfigResourceType.TOPIC, full_name(prefix, "inventory"))]
    (answer,) = await ask(broker, "describe_configs", names)
    configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert configs_of(BY_NAME["inventory"], 1).items() <= configs.items()
    assert configs["min.compaction.lag.ms"] == "21600000"


async def test_create_twice_keeps_the_first_installation(broker: DevBroker, prefix: str) -> None:
    first = await made(broker, prefix)
    again = await made(broker, prefix)
    assert again == dataclasses.replace(first, created=(), policy_written=False)
    kept = [record async for record in whole(broker.bootstrap, full_name(prefix, "fleet"))]
    assert len(kept) == 1


async def test_many_who_create_at_once_agree(broker: DevBroker, prefix: str) -> None:
    done = await asyncio.gather(*(made(broker, prefix) for _ in range(4)))
    assert len({one.installation for one in done}) == 1
    names = [name for one in done for name in one.created]
    assert sorted(names) == sorted(full_name(prefix, topic.name) for topic in TOPICS)


async def test_what_is_missing_is_added_and_new_samples_are_a_new_incarnation(
    broker: DevBroker, prefix: str, sw: Slackwater
) -> None:
    first = await made(broker, prefix)
    acks, samples = full_name(prefix, "acks"), full_name(prefix, "samples")

    async def drop(name: str) -> None:
        await ask(broker, "delete_topics", [name])

        async def gone() -> bool:
            return name not in await ask(broker, "list_topics")

        await until(gone, 10, f"deleted {name}")

    await drop(acks)
    listed = await asyncio.to_thread(sw, "topics", "list")
    assert listed.returncode == 1
    assert f"MISSING  {acks}: `slackwater topics create`" in listed.stdout
    second = await made(broker, prefix)
    assert (second.created, second.installation) == ((acks,), first.installation)
    await drop(samples)
    third = await made(broker, prefix)
    assert third.created == (samples,)
    assert third.installation.incarnation > first.installation.incarnation
    assert await installation_of(broker.bootstrap, prefix) == third.installation


async def test_another_partition_count_is_refused_and_nothing_is_made(
    broker: DevBroker, prefix: str, sw: Slackwater
) -> None:
    await made(broker, prefix)
    await ask(broker, "delete_topics", [full_name(prefix, "slis")])
    line = await asyncio.to_thread(sw.refused, "topics", "create", "--partitions", "5")
    assert f"{prefix}samples exists with 3 partitions, asked for 5: use --partitions 3" in line
    assert full_name(prefix, "slis") not in await ask(broker, "list_topics")


def test_more_replicas_than_brokers_are_refused(sw: Slackwater) -> None:
    line = sw.refused("topics", "create", "--replication", "2")
    assert "replication 2 needs as many brokers; here are 1" in line


async def test_list_tells_what_differs(broker: DevBroker, prefix: str, sw: Slackwater) -> None:
    await made(broker, prefix)
    assert (await asyncio.to_thread(sw.good, "topics", "list")).count("ok ") == len(TOPICS)
    name = full_name(prefix, "jobs")
    configs = configs_of(BY_NAME["jobs"], 1) | {"retention.ms": "1000"}
    changed = ConfigResource(ConfigResourceType.TOPIC, name, configs)
    await ask(broker, "alter_configs", [changed])
    listed = await asyncio.to_thread(sw, "topics", "list", "--json")
    assert listed.returncode == 1
    off = {row["name"]: row["differs"] for row in json.loads(listed.stdout) if row["differs"]}
    assert off == {name: {"retention.ms": ["1000", "86400000"]}}
    told = await asyncio.to_thread(sw, "topics", "list")
    assert f"DIFFERS  {name}: 3 partitions; retention.ms is 1000, EXPECTED 86400000" in told.stdout


async def said(broker: DevBroker, prefix: str) -> None:
    """Fill topics with a record of each sort."""
    installation = (await made(broker, prefix)).installation
    async with teller(broker.bootstrap, prefix, installation.incarnation, PARTITIONS) as tell:
        node = SAMPLE.node.encode()
        raw = packed.encode(SAMPLE)
        await tell.send("samples", node, raw, 1, codec.PACKED_HEADERS)
        await tell.send("samples", node, codec.encode(SAMPLE), 1)
        tick = codec.encode(Tick(1, installation.incarnation, 1, {"fleet/0": 3}))
        await tell.send("samples", b"", tick, 1, codec.TICK_HEADERS)
        await tell.send("samples", b"node-0002", raw[:-1], 1, codec.PACKED_HEADERS)
        await tell.send("samples", b"\xff", b"?", 2, [("enc", b"avro"), ("v", b"1")])
        lease = Lease(Cause(installation.incarnation, 1, 9, 10, "", 1), 30_010)
        await tell.send("commands", LEASE_KEY, codec.encode(lease), 1)
        await tell.send("inventory", b"node-0003", None, 0)
        await tell.send("images", b"1/1", b"\x00\x01chunk", 0)
        await tell.send(MINUTES, b'["node-0001",[60.0,119.9]]', b'{"node":"n","start_ms":1}', 0, [])
        await tell.send(MINUTES, b'["node-00012",[60.0,119.9]]', b'{"node":"n"}', 0, [])


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_cat_prints_every_sort_of_record(
    broker: DevBroker, prefix: str, sw: Slackwater
) -> None:
    await said(broker, prefix)

    async def cat(*arguments: str) -> list[dict[str, Any]]:
        return lines(await asyncio.to_thread(sw.good, "topics", "cat", *arguments))

    samples = await cat("samples", "--from-beginning")
    assert len(samples) == 5
    by_place = {(one["partition"], one["offset"]): one for one in samples}
    assert by_place[1, 0]["record"] == by_place[1, 1]["record"] == dataclasses.asdict(SAMPLE)
    assert (by_place[1, 0]["kind"], by_place[1, 0]["key"]) == ("NodeSample", "node-0001")
    assert by_place[1, 2]["kind"] == "Tick"
    assert by_place[1, 2]["record"]["side"] == {"fleet/0": 3}
    assert by_place[1, 3]["unreadable"]["reason"] == "broken_packed"
    assert by_place[2, 0]["unreadable"]["reason"] == "unknown_encoding"
    assert by_place[2, 0]["key"] == "\\xff"
    assert [one["kind"] for one in await cat("commands")] == ["Lease"]
    assert [one["record"] for one in await cat("inventory")] == [None]
    (image,) = await cat("images")
    assert (image["size_bytes"], image["head_hex"]) == (7, "00016368756e6b")
    minutes = await cat(MINUTES, "--node", "node-0001")
    assert [one["record"]["start_ms"] for one in minutes] == [1]
    assert {one["kind"] for one in await cat("fleet")} == {"Installation"}
    assert {one["kind"] for one in await cat("policies")} == {"PolicyRecord"}
    assert await cat("jobs") == []


async def test_cat_takes_the_newest_or_from_the_beginning_of_a_node(
    broker: DevBroker, prefix: str, sw: Slackwater
) -> None:
    installation = (await made(broker, prefix)).installation
    async with teller(broker.bootstrap, prefix, installation.incarnation, PARTITIONS) as tell:
        for offset in range(25):
            await tell.capacity(f"n{offset % 5}", offset, 1_000, 100 * offset)

    async def offsets(*arguments: str) -> list[int]:
        text = await asyncio.to_thread(sw.good, "topics", "cat", "capacity", *arguments)
        return [one["record"]["cause"]["offset"] for one in lines(text)]

    # Newest by append time; records that share one stand by partition and offset.
    whole = await asyncio.to_thread(sw.good, "topics", "cat", "capacity", "--from-beginning")
    every = sorted(lines(whole), key=lambda one: (one["log_ms"], one["partition"], one["offset"]))
    newest = [one["record"]["cause"]["offset"] for one in every]
    assert await offsets() == newest[-10:]
    assert await offsets("--limit", "3") == newest[-3:]
    assert await offsets("--node", "n2") == [2, 7, 12, 17, 22]
    assert await offsets("--node", "n2", "--limit", "2") == [17, 22]
    assert await offsets("--node", "n2", "--from-beginning", "--limit", "2") == [2, 7]
    assert sorted(await offsets("--from-beginning")) == list(range(25))
    assert await offsets("--node", "nobody") == []


async def test_cat_follows_until_interrupted(broker: DevBroker, prefix: str) -> None:
    installation = (await made(broker, prefix)).installation
    process = opened(
        broker.bootstrap, prefix, "topics", "cat", "capacity", "--follow", "--from-beginning"
    )
    assert process.stdout is not None
    async with teller(broker.bootstrap, prefix, installation.incarnation, PARTITIONS) as tell:
        for offset in range(3):
            await tell.capacity("n1", offset, 1_000, 5)
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 20)
            assert json.loads(line)["record"]["cause"]["offset"] == offset
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


async def test_cat_into_a_closed_pipe_ends_quietly(broker: DevBroker, prefix: str) -> None:
    installation = (await made(broker, prefix)).installation
    async with teller(broker.bootstrap, prefix, installation.incarnation, PARTITIONS) as tell:
        await asyncio.gather(*(tell.capacity("n1", at, 1_000, 5) for at in range(2_000)))
    process = opened(broker.bootstrap, prefix, "topics", "cat", "capacity", "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    assert await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    assert await asyncio.to_thread(process.wait, 20) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_cat_of_no_topic_names_those_there_are(sw: Slackwater) -> None:
    line = sw.refused("topics", "cat", "sample")
    assert "no topic 'sample' in the table; there are: samples, inventory" in line
    assert "run `slackwater topics create`" in sw.refused("topics", "cat", "samples")


def test_doc_and_acls_need_no_broker() -> None:
    nowhere = Slackwater("127.0.0.1:1", "mine.")
    document = yaml.safe_load(nowhere.good("topics", "doc"))
    assert set(document["channels"]) == set(BY_NAME)
    rows = json.loads(nowhere.good("topics", "acls"))
    assert {row["name"].partition(".")[0] for row in rows} == {"mine"}


@pytest.mark.parametrize("arguments", [("create",), ("list",), ("cat", "samples")])
def test_a_broker_that_is_not_there_is_one_line(arguments: tuple[str, ...]) -> None:
    line = Slackwater("127.0.0.1:1", "x.").refused("topics", *arguments)
    assert "no Kafka broker answers at 127.0.0.1:1" in line
    assert "slackwater dev-broker" in line


def test_a_broker_that_does_not_answer_is_one_line_within_ten_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        began = time.monotonic()
        line = Slackwater(f"127.0.0.1:{server.getsockname()[1]}", "x.").refused("topics", "list")
        took = time.monotonic() - began
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in held:
        connection.close()
    assert "no Kafka broker answers" in line
    assert took < 10
