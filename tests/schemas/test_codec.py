"""Encoding and decoding: round trips of every record, headers, keys, limits, reasons."""

from __future__ import annotations

import dataclasses
from typing import Any
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, packed
from schemas.errors import BadRecord
from schemas.generate import record_types
from schemas.records import (
    FLEET_KEY,
    INSTALLATION_KEY,
    LEASE_KEY,
    FleetFacts,
    Installation,
    Lease,
    NodeSample,
    PartitionHealth,
    Tick,
)
from schemas.topics import MINUTES, TOPICS
from tests.schemas.examples import EXAMPLES, SAMPLE
from tests.schemas.strategies import records, samples

NODE = SAMPLE.node.encode()


def refusal(call: Any, *args: Any) -> BadRecord:
    with pytest.raises(BadRecord) as refused:
        call(*args)
    return refused.value


@given(st.sampled_from(record_types()).flatmap(records))
def test_every_record_survives_json(record: Any) -> None:
    raw = codec.encode(record)
    again = codec.decode(type(record), raw)
    assert again == record
    assert codec.encode(again) == raw


@given(samples())
def test_a_sample_says_the_same_packed_and_as_json(sample: NodeSample) -> None:
    raw = packed.encode(sample)
    assert packed.decode(raw) == sample
    assert codec.decode(NodeSample, codec.encode(sample)) == sample
    if len(codec.encode(sample)) <= packed.MAX_SAMPLE_BYTES:
        key = sample.node.encode()
        as_json = codec.parse_sample(codec.encode(sample), key, codec.ENC_JSON)
        as_packed = codec.parse_sample(raw, key, codec.ENC_PACKED)
        for name in packed.PackedSample.__slots__:
            assert getattr(as_json, name) == getattr(as_packed, name)


@given(samples(), st.data())
def test_columns_of_a_newer_agent_are_skipped(sample: NodeSample, data: st.DataObject) -> None:
    raw = packed.encode(sample)
    count = data.draw(st.integers(0, 5))
    place = data.draw(st.integers(0, len(sample.node_columns) + len(sample.pod_columns)))
    assert packed.decode(with_column(raw, place, 999, 0, [7] * count)) == sample


def with_column(raw: bytes, place: int, column_id: int, flags: int, values: list[int]) -> bytes:
    """Packed bytes with one more column at a place of the directory."""
    sample = packed.PackedSample(raw)
    rows = list(packed._ROW.iter_unpack(sample.layout))
    at = sum(count + ((count + 63) // 64 if has & 1 else 0) for _, has, count in rows[:place])
    rows.insert(place, (column_id, flags, len(values)))
    words = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    payload = sample.payload[: at * 8] + words + sample.payload[at * 8 :]
    body = len(raw) - len(sample.layout) - len(sample.payload)
    head = bytearray(raw[:body])
    head[84:88] = len(rows).to_bytes(4, "little")
    return sealed(bytes(head) + b"".join(packed._ROW.pack(*row) for row in rows) + payload)


def sealed(raw: bytes) -> bytes:
    """The bytes with length and checksum made right."""
    sized = raw[:4] + len(raw).to_bytes(4, "little") + raw[8:]
    return sized[:8] + crc32(sized[12:]).to_bytes(4, "little") + sized[12:]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "broken_json"),
        (b"", "broken_json"),
        (b"\xff\xfe", "broken_json"),
        (b"[" * 100_000, "broken_json"),
        (b'{"partition":NaN}', "broken_json"),
        (b'{"partition":Infinity}', "broken_json"),
        (b"[]", "wrong_type"),
        (b"null", "wrong_type"),
        (b'{"partition":1}', "missing_field"),
        (b'{"partition":1e308,"incarnation":1,"law_version":1,"side":{}}', "wrong_type"),
        (b'{"partition":1.0,"incarnation":1,"law_version":1,"side":{}}', "wrong_type"),
        (b'{"partition":true,"incarnation":1,"law_version":1,"side":{}}', "wrong_type"),
        (b'{"partition":"1","incarnation":1,"law_version":1,"side":{}}', "wrong_type"),
        (
            b'{"partition":9223372036854775808,"incarnation":1,"law_version":1,"side":{}}',
            "wrong_type",
        ),
        (b'{"partition":1,"incarnation":1,"law_version":1,"side":{"a/0":1e19}}', "wrong_type"),
        (b" " * (codec.MAX_RECORD_BYTES + 1), "too_large"),
        (b'{"a":"' + b"x" * 2 * 1024 * 1024 + b'"}', "too_large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_unusable_json_has_a_reason(raw: bytes, reason: str) -> None:
    assert refusal(codec.decode, Tick, raw).reason == reason


def edited(**changes: Any) -> bytes:
    return orjson.dumps(orjson.loads(codec.encode(SAMPLE)) | changes)


def without(name: str) -> bytes:
    whole = orjson.loads(codec.encode(SAMPLE))
    del whole[name]
    return orjson.dumps(whole)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (without("seq"), "missing_field"),
        (edited(boot="xyz"), "wrong_type"),
        (edited(boot="A" * 32), "wrong_type"),
        (edited(kernel_boot="0" * 31), "wrong_type"),
        (edited(seq=-1), "wrong_type"),
        (edited(mono_us=-1), "wrong_type"),
        (edited(mono_us=2**53 + 1), "wrong_type"),
        (edited(pods=2), "wrong_type"),
        (edited(pods=10**6, pod_columns={}), "too_large"),
        (edited(node_columns={"cpu_busy_us": 2**63}), "wrong_type"),
        (edited(pod_columns={"cpu_usage_us": [0.5, 1, 2]}), "wrong_type"),
        (edited(node="node-0002"), "key_mismatch"),
        (edited(node=""), "key_mismatch"),
        (b"x" * (packed.MAX_SAMPLE_BYTES + 1), "too_large"),
    ],
    ids=lambda value: repr(value)[-50:],
)
def test_unusable_json_samples_have_a_reason(raw: bytes, reason: str) -> None:
    assert refusal(codec.parse_sample, raw, NODE, codec.ENC_JSON).reason == reason


@pytest.mark.parametrize("node", ["", "~lease", " a", "a b", "a\nb", "é", "a/b", "x" * 254])
def test_r6_a_name_that_is_no_node_name_is_refused(node: str) -> None:
    raw = packed.encode(dataclasses.replace(SAMPLE, node=node))
    assert (
        refusal(codec.parse_sample, raw, node.encode(), codec.ENC_PACKED).reason == "key_mismatch"
    )


@pytest.mark.parametrize("key", [None, b"", b"node-0002", b"node-0001 "])
def test_a_node_speaks_for_itself_only(key: bytes | None) -> None:
    raw = packed.encode(SAMPLE)
    assert refusal(codec.parse_sample, raw, key, codec.ENC_PACKED).reason == "key_mismatch"


def test_encode_refuses_what_cannot_be_said() -> None:
    for change in (
        {"boot": "0" * 31},
        {"kernel_boot": "g" * 32},
        {"node": "\ud800"},
        {"period_ms": -1},
        {"pods_rev": 2**32},
        {"seq": 2**64},
        {"pod_columns": {"cpu_usage_us": [1, 2]}},
        {"node_columns": {"cpu_busy_us": 2**63}},
    ):
        bad = dataclasses.replace(SAMPLE, **change)
        assert refusal(packed.encode, bad).reason == "wrong_type"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, "unknown_encoding"),
        ([], "unknown_encoding"),
        ([("enc", None), ("v", b"1")], "unknown_encoding"),
        ([("enc", b"avro"), ("v", b"1")], "unknown_encoding"),
        ([("enc", b"json")], "unknown_version"),
        ([("enc", b"json"), ("v", None)], "unknown_version"),
        ([("enc", b"json"), ("v", b"0")], "unknown_version"),
        ([("enc", b"json"), ("v", b"2")], "unknown_version"),
        ([("enc", b"json"), ("v", b"-1")], "unknown_version"),
        ([("enc", b"json"), ("v", "²".encode())], "unknown_version"),
        ([("enc", b"json"), ("v", b"0000011")], "unknown_version"),
        ([("enc", b"json"), ("v", b"1" * 10_000)], "unknown_version"),
    ],
)
def test_headers_name_encoding_and_version(headers: Any, reason: str) -> None:
    assert refusal(codec.encoding_of, headers).reason == reason


@pytest.mark.parametrize("enc", [codec.ENC_JSON, codec.ENC_PACKED, codec.ENC_TICK])
def test_known_headers_among_others(enc: bytes) -> None:
    headers = [("trace", b"\xff"), ("enc", enc), ("v", b"1"), ("more", None)]
    assert codec.encoding_of(headers) == enc


def test_the_headers_we_send_are_those_we_read() -> None:
    for headers in (codec.JSON_HEADERS, codec.PACKED_HEADERS, codec.TICK_HEADERS):
        assert codec.encoding_of(headers) == headers[0][1]


def test_a_tick_speaks_for_its_partition() -> None:
    raw = codec.encode(Tick(3, 1, 1, {}))
    assert codec.parse_tick(raw, 3) == Tick(3, 1, 1, {})
    assert refusal(codec.parse_tick, raw, 4).reason == "unknown_partition"


@pytest.mark.parametrize(
    ("topic", "key", "enc", "kind"),
    [
        ("fleet", FLEET_KEY, codec.ENC_JSON, FleetFacts),
        ("fleet", INSTALLATION_KEY, codec.ENC_JSON, Installation),
        ("fleet", b"partition/3", codec.ENC_JSON, PartitionHealth),
        ("samples", None, codec.ENC_TICK, Tick),
        ("samples", NODE, codec.ENC_PACKED, NodeSample),
        ("commands", LEASE_KEY, codec.ENC_JSON, Lease),
        ("images", b"1/1", codec.ENC_JSON, None),
    ],
)
def test_key_and_encoding_tell_the_kind(
    topic: str, key: bytes | None, enc: bytes, kind: type[Any] | None
) -> None:
    assert codec.kind_of(topic, key, enc) is kind


def test_every_kind_of_every_topic_can_be_read() -> None:
    keys = {
        "FleetFacts": FLEET_KEY,
        "Installation": INSTALLATION_KEY,
        "PartitionHealth": b"partition/3",
        "Lease": LEASE_KEY,
        "LedgerClaim": b"node-0001/yarn/share",
        "LedgerGrant": b"node-0001/yarn/share/answer",
        "LedgerReign": b"~reign",
    }
    by_kind = {type(example): example for example in EXAMPLES}
    for topic in TOPICS:
        for kind in topic.records:
            headers = codec.TICK_HEADERS if kind is Tick else codec.JSON_HEADERS
            sent = None if topic.name == MINUTES else headers
            key = keys.get(kind.__name__, b"any")
            raw = codec.encode(by_kind[kind])
            assert codec.read(topic.name, key, raw, sent) == by_kind[kind]
    packed_raw = packed.encode(SAMPLE)
    assert codec.read("samples", NODE, packed_raw, codec.PACKED_HEADERS) == SAMPLE


def test_reading_what_a_topic_cannot_carry_is_refused() -> None:
    raw = packed.encode(SAMPLE)
    for topic in ("acks", "images"):
        bad = refusal(codec.read, topic, NODE, raw, codec.PACKED_HEADERS)
        assert bad.reason == "unknown_encoding"
