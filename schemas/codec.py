"""Bytes <-> records, for every topic: columnar JSON by orjson, samples packed or JSON.

The shells call this; nobody else builds or reads wire bytes. Two headers go with every record:
``enc`` names the encoding (``json``, ``packed``, ``tick``) and ``v`` the schema version in
decimal. Encoding is deterministic: one record, one byte string. A new optional field keeps the
version: readers ignore what they do not know and default what is missing. Only a change that an
older reader would misunderstand raises it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import orjson

from schemas import ledger, packed
from schemas.errors import BadRecord
from schemas.names import NODE_NAME
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
from schemas.topics import BY_NAME, MINUTES

VERSION = 1
MAX_RECORD_BYTES = 1024 * 1024
ENC_JSON, ENC_PACKED, ENC_TICK = b"json", b"packed", b"tick"
Headers = list[tuple[str, bytes]]
JSON_HEADERS: Headers = [("enc", ENC_JSON), ("v", b"1")]
PACKED_HEADERS: Headers = [("enc", ENC_PACKED), ("v", b"1")]
TICK_HEADERS: Headers = [("enc", ENC_TICK), ("v", b"1")]
R = TypeVar("R")
_NODE_NAME = re.compile(NODE_NAME.pattern.encode())


def encode(record: Any) -> bytes:
    """JSON bytes of any record of `schemas.records`; keys in field order, dicts as built."""
    return orjson.dumps(record)


def decode(kind: type[R], raw: bytes) -> R:
    """The record of ``raw``; unknown fields are ignored, missing ones take their default.

    Raises BadRecord with reason too_large, broken_json, missing_field or wrong_type.
    """
    if len(raw) > MAX_RECORD_BYTES:
        raise BadRecord("too_large", f"{len(raw)} bytes, at most {MAX_RECORD_BYTES}")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRecord("broken_json", str(error)) from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        reason = "missing_field" if "missing required field" in text else "wrong_type"
        raise BadRecord(reason, text) from None


def encoding_of(headers: Iterable[tuple[str, bytes | None]] | None) -> bytes:
    """The encoding a record's headers name. Raises BadRecord unknown_encoding, unknown_version."""
    enc, version = b"", b""
    for name, value in headers or ():
        if name == "enc":
            enc = value or b""
        elif name == "v":
            version = value or b""
    if enc not in (ENC_JSON, ENC_PACKED, ENC_TICK):
        raise BadRecord("unknown_encoding", f"header enc is {enc[:16]!r}")
    if not version.isdigit() or len(version) > 6 or not 1 <= int(version) <= VERSION:
        raise BadRecord("unknown_version", f"header v is {version[:16]!r}, this reads {VERSION}")
    return enc


def parse_sample(raw: bytes, key: bytes | None, enc: bytes) -> packed.PackedSample:
    """A checked sample, whichever way it was encoded; ``key`` must be the node it speaks for."""
    if len(raw) > packed.MAX_SAMPLE_BYTES:
        raise BadRecord("too_large", f"{len(raw)} bytes, at most {packed.MAX_SAMPLE_BYTES}")
    if enc == ENC_JSON:
        raw = packed.encode(decode(NodeSample, raw))
    sample = packed.PackedSample(raw)
    if sample.node != key or not _NODE_NAME.fullmatch(sample.node):
        raise BadRecord("key_mismatch", f"key {key!r:.80}, node {sample.node[:64]!r}")
    return sample


def parse_tick(raw: bytes, partition: int) -> Tick:
    """A tick of this partition; raises BadRecord otherwise."""
    tick = decode(Tick, raw)
    if tick.partition != partition:
        raise BadRecord("unknown_partition", f"tick of {tick.partition} in {partition}")
    return tick


def kind_of(topic: str, key: bytes | None, enc: bytes = ENC_JSON) -> type[Any] | None:
    """Which record a topic carries under a key; None for `images`, which carry no record.

    ``topic`` is the name in the table, without prefix. Topics with several kinds tell them by key.
    """
    if topic == "fleet":
        by_key: dict[bytes | None, type[Any]] = {
            FLEET_KEY: FleetFacts,
            INSTALLATION_KEY: Installation,
        }
        return by_key.get(key, PartitionHealth)
    if topic == "ledger":
        return ledger.kind_of(key)
    if topic == "samples":
        return Tick if enc == ENC_TICK else NodeSample
    if topic == "commands" and key == LEASE_KEY:
        return Lease
    kinds = BY_NAME[topic].records
    return kinds[0] if kinds else None


def read(
    topic: str, key: bytes | None, raw: bytes, headers: Iterable[tuple[str, bytes | None]] | None
) -> Any:
    """The record of any topic as its dataclass, for tools that read one at a time.

    Raises BadRecord; a record of a topic that carries none (`images`) is unknown_encoding.
    """
    enc = ENC_JSON if topic == MINUTES else encoding_of(headers)  # Faust writes no headers
    kind = kind_of(topic, key, enc)
    if kind is None:
        raise BadRecord("unknown_encoding", f"topic {topic} carries no records")
    if enc == ENC_PACKED:
        if kind is not NodeSample:
            raise BadRecord("unknown_encoding", f"topic {topic} has no packed records")
        return packed.decode(raw)
    return decode(kind, raw)
