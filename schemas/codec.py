"""Bytes <-> records, for every topic: columnar JSON by orjson, samples packed or JSON.

The shells call this; nobody else builds or reads wire bytes. Two headers go with every record:
``enc`` names the encoding (``json``, ``packed``, ``tick``) and ``v`` the schema version in
decimal. Encoding is deterministic: one record, one byte string.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import orjson

from schemas import packed
from schemas.errors import BadRecord
from schemas.records import NodeSample, Tick

VERSION = 1
ENC_JSON, ENC_PACKED, ENC_TICK = b"json", b"packed", b"tick"
Headers = list[tuple[str, bytes]]
JSON_HEADERS: Headers = [("enc", ENC_JSON), ("v", b"1")]
PACKED_HEADERS: Headers = [("enc", ENC_PACKED), ("v", b"1")]
TICK_HEADERS: Headers = [("enc", ENC_TICK), ("v", b"1")]
R = TypeVar("R")


def encode(record: Any) -> bytes:
    """JSON bytes of any record of `schemas.records`; keys in field order, dicts as built."""
    return orjson.dumps(record)


def decode(kind: type[R], raw: bytes) -> R:
    """The record of ``raw``; unknown fields are ignored, missing ones take their default.

    Raises BadRecord with reason broken_json, missing_field or wrong_type.
    """
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


def encoding_of(headers: Headers | tuple[tuple[str, bytes], ...]) -> bytes:
    """The encoding a record's headers name. Raises BadRecord unknown_encoding, unknown_version."""
    enc, version = b"", b""
    for name, value in headers:
        if name == "enc":
            enc = value
        elif name == "v":
            version = value
    if enc not in (ENC_JSON, ENC_PACKED, ENC_TICK):
        raise BadRecord("unknown_encoding", f"header enc is {enc[:16]!r}")
    if not version.isdigit() or not 1 <= int(version[:6]) <= VERSION:
        raise BadRecord("unknown_version", f"header v is {version[:16]!r}, this reads {VERSION}")
    return enc


def parse_sample(raw: bytes, key: bytes | None, enc: bytes) -> packed.PackedSample:
    """A checked sample, whichever way it was encoded; ``key`` must be the node it speaks for."""
    if len(raw) > packed.MAX_SAMPLE_BYTES:
        raise BadRecord("too_large", f"{len(raw)} bytes, at most {packed.MAX_SAMPLE_BYTES}")
    if enc == ENC_JSON:
        raw = packed.encode(_whole(decode(NodeSample, raw)))
    sample = packed.PackedSample(raw)
    if not sample.node or sample.node != key:
        raise BadRecord("key_mismatch", f"key {key!r}, node {sample.node[:64]!r}")
    return sample


def parse_tick(raw: bytes, partition: int) -> Tick:
    """A tick of this partition; raises BadRecord otherwise."""
    tick = decode(Tick, raw)
    if tick.partition != partition:
        raise BadRecord("unknown_partition", f"tick of {tick.partition} in {partition}")
    return tick


def _whole(sample: NodeSample) -> NodeSample:
    """Refuse a JSON sample that packed columns could not say."""
    for name, width in (("boot", 32), ("kernel_boot", 32)):
        text = getattr(sample, name)
        if len(text) != width or any(c not in "0123456789abcdef" for c in text):
            raise BadRecord("wrong_type", f"{name} is not {width} hex digits")
    return sample
