"""Rule 7 on the real broker: each malformed record gets its dead letter, and harms nothing else."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from zlib import crc32

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from schemas import codec, packed
from schemas.errors import BadRecord
from schemas.topics import full_name
from streams.checker import check
from streams.dev_broker import DevBroker
from streams.worker import Worker
from tests.streams.fleet_kit import Fleet, Node, fleet, read_all, until
from tests.streams.test_worker_rules import running, settings_of

TWO_MIB = 2 << 20


def as_json(node: Node, **changed: object) -> bytes:
    said = orjson.loads(codec.encode(node.sample()))
    said.update(changed)
    return orjson.dumps({name: value for name, value in said.items() if value != "DROP"})


def packed_version(raw: bytes, version: int) -> bytes:
    body = raw[:12] + struct.pack("<H", version) + raw[14:]
    return body[:8] + struct.pack("<I", crc32(body[12:])) + body[12:]


def malformed(node: Node) -> dict[str, tuple[bytes, codec.Headers, str]]:
    """Case -> (value, headers, expected reason); the key is always the node's own name."""
    good = packed.encode(node.sample())
    text = as_json(node)
    json = codec.JSON_HEADERS
    newer: codec.Headers = [("enc", b"packed"), ("v", b"99")]
    other = packed.encode(replace(node.sample(), node="someone-else"))
    return {
        "broken JSON": (text[: len(text) // 2], json, "broken_json"),
        "missing seq": (as_json(node, seq="DROP"), json, "missing_field"),
        "NaN": (text.replace(b'"mono_us":', b'"mono_us":NaN,"x":', 1), json, "broken_json"),
        "1e308": (text.replace(b'"mono_us":', b'"mono_us":1e308,"x":', 1), json, "wrong_type"),
        "900 KB payload": (b"x" * 900_000, codec.PACKED_HEADERS, "too_large"),
        "2 MiB payload": (b"x" * TWO_MIB, codec.PACKED_HEADERS, "too_large"),
        "unknown schema version": (good, newer, "unknown_version"),
        "unknown packed version": (
            packed_version(good, 99),
            codec.PACKED_HEADERS,
            "unknown_version",
        ),
        "key is not the node": (other, codec.PACKED_HEADERS, "key_mismatch"),
        "one bit flipped": (good[:-1] + bytes([good[-1] ^ 1]), codec.PACKED_HEADERS, "checksum"),
        "cut short": (good[:-8], codec.PACKED_HEADERS, "broken_packed"),
        "no headers": (good, [], "unknown_encoding"),
    }


@pytest.mark.parametrize("size", [packed.MAX_SAMPLE_BYTES + 1, TWO_MIB])
def test_the_parser_refuses_by_size_before_it_looks(size: int) -> None:
    with pytest.raises(BadRecord) as refused:
        codec.parse_sample(b"x" * size, b"n", codec.ENC_PACKED)
    assert refused.value.reason == "too_large"


async def allow_large_samples(one: Fleet) -> None:
    """So that 2 MiB can be produced at all; the topic's own limit would stop it."""
    client = AIOKafkaAdminClient(bootstrap_servers=one.bootstrap)
    await client.start()
    try:
        await client.alter_configs(
            [
                ConfigResource(
                    ConfigResourceType.TOPIC,
                    full_name(one.prefix, "samples"),
                    configs={
                        "max.message.bytes": str(4 << 20),
                        "message.timestamp.type": "LogAppendTime",
                    },
                )
            ]
        )
    finally:
        await client.close()


async def test_rule7_malformed_records(broker: DevBroker, prefix: str) -> None:
    async with fleet(broker.bootstrap, prefix, partitions=2, nodes=6) as one:
        await allow_large_samples(one)
        node = one.nodes[0]
        home = one.partition_of(node.name)
        cases = malformed(node)
        producer = AIOKafkaProducer(bootstrap_servers=one.bootstrap, max_request_size=4 << 20)
        await producer.start()
        worker = Worker(settings_of(one))
        where: dict[int, str] = {}
        try:
            async with running(worker):
                await until(lambda: worker.port > 0 and not worker.why_not_ready(), 20, "ready")
                await one.round()
                for name, (value, headers, _) in cases.items():
                    sent = await producer.send_and_wait(
                        full_name(prefix, "samples"),
                        value,
                        key=node.name.encode(),
                        partition=home,
                        headers=headers,
                    )
                    where[sent.offset] = name
                    await one.round()  # the neighbours, between every two of them
                await until(
                    lambda: all(e.at >= one.acknowledged[p] for p, e in worker.engines.items()),
                    15,
                    "all folded",
                )
                assert worker.why_not_live() == ""
                assert all(engine.open for engine in worker.engines.values())
                reasons = Counter(reason for _, _, reason in cases.values())
                for reason, count in reasons.items():
                    counted = worker.metrics.value(
                        "dead_letters_total", topic="samples", reason=reason
                    )
                    assert counted == count, reason
                rounds = len(cases) + 1
                for partition, engine in worker.engines.items():
                    assert engine.state is not None
                    for neighbour in one.nodes[1:]:
                        if one.partition_of(neighbour.name) == partition:
                            seat = engine.state.seats[neighbour.name.encode()]
                            assert seat.seq == rounds, "an unmoved neighbour"
        finally:
            await producer.stop()
        letters = {
            letter["offset"]: letter
            for record in await read_all(one.bootstrap, full_name(prefix, "dead-letters"), 1)
            for letter in [orjson.loads(record.value)]
            if letter["topic"] == "samples"
        }
        print(f"\n{'case':26} {'reason':18} {'bytes':>8}  detail")
        for offset, name in where.items():
            letter = letters[offset]
            size, detail = letter["size_bytes"], letter["detail"][:60]
            print(f"{name:26} {letter['reason']:18} {size:>8}  {detail}")
            assert letter["reason"] == cases[name][2], name
            assert letter["partition"] == home
            assert letter["key_hex"] == node.name.encode().hex()
        assert letters.keys() == where.keys()
        verdict = await check(one.bootstrap, one.prefix)
        assert verdict.ok, verdict.as_json()
