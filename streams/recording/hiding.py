"""Records with other names: key, value and headers, so that the law says of them what it said.

Called by `streams.recording.pseudonyms`, twice for each record: first to collect names, then to
change them. What could not be read is replaced by what cannot be read either, for the same reason
where that is possible; signatures no longer hold and are dropped.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from schemas import codec, ledger, packed
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import published
from schemas.records import FLEET_KEY, INSTALLATION_KEY, LEASE_KEY, NodeSample, PolicyRecord
from schemas.topics import BY_NAME
from streams.recording.fields import hidden
from streams.recording.hidden_policy import SPECIAL
from streams.recording.naming import BOOT, CLAIM, ID, JOB, NODE, POLICY, SCHEDULER, Names, as_bytes
from streams.recording.segment import Headers, Record

SHORTEST = 96
"""Of a packed sample whose checksum is wrong."""
_PARTITION_KEY = re.compile(rb"partition/\d{1,6}", re.ASCII)
_ENCODINGS = (codec.ENC_JSON, codec.ENC_PACKED, codec.ENC_TICK, b"image")


class Hiding:
    """``letters``: what dead letters say instead, by offset; ``policies``: those that were met."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.letters: dict[int, bytes] = {}
        self.policies: list[PolicyRecord] = []

    def record(self, record: Record) -> Record:
        """The same record with other names; not of `images`."""
        key, topic = record.key, record.topic
        value = record.value and self._value(topic, key, record.value, record.headers)
        if topic == "dead-letters":
            value = self.letters.get(record.offset, b"{}")
        return Record(
            topic, record.partition, record.offset, record.timestamp,
            key and self.key(topic, key), value, headers_of(record.headers),
        )  # fmt: skip

    def key(self, topic: str, key: bytes) -> bytes:
        """A key of a topic, as the topic table describes it."""
        said = key.decode("utf-8", "surrogateescape")
        if topic == "dead-letters":
            return key if said in BY_NAME else b"withheld"
        if topic == "fleet":
            known = key in (FLEET_KEY, INSTALLATION_KEY) or _PARTITION_KEY.fullmatch(key)
            return key if known else as_bytes(self.names(ID, said))
        if topic == "ledger":
            return self._ledger_key(key, said)
        if topic == "commands" and key == LEASE_KEY:
            return key
        kind = {"policies": POLICY, "jobs": JOB}.get(topic, NODE)
        return as_bytes(self.names(kind, said))

    def _ledger_key(self, key: bytes, said: str) -> bytes:
        if key == ledger.REIGN_KEY:
            return key
        kinds = (NODE, SCHEDULER, CLAIM)
        parts = said.split("/")
        named = [self.names(kind, part) for kind, part in zip(kinds, parts, strict=False)]
        rest = [part if part == ledger.ANSWER else self.names(ID, part) for part in parts[3:]]
        return as_bytes("/".join([*named, *rest]))

    def _value(self, topic: str, key: bytes | None, raw: bytes, headers: Headers) -> bytes:
        if topic == "dead-letters":
            return raw  # replaced by the caller
        try:
            enc = codec.encoding_of(headers)
        except BadRecord:
            return b""
        try:
            if topic == "samples" and enc != codec.ENC_TICK:
                return self._sample(key, raw, enc)
            kind = codec.kind_of(topic, key, enc)
            if kind is None:
                return b""
            record = codec.decode(kind, raw)
        except BadRecord as error:
            return unreadable(error.reason, raw)
        if isinstance(record, PolicyRecord):
            self.policies.append(record)
        return codec.encode(hidden(record, self.names, SPECIAL))

    def _sample(self, key: bytes | None, raw: bytes, enc: bytes) -> bytes:
        try:
            codec.parse_sample(raw, key, enc)
        except BadRecord as error:
            if error.reason != "key_mismatch":
                raise
        if enc == codec.ENC_JSON:
            return codec.encode(hidden(codec.decode(NodeSample, raw), self.names, SPECIAL))
        sample = packed.PackedSample(raw)
        node = self.names(NODE, sample.node.decode("utf-8", "surrogateescape"))
        boots = (self.boot(boot) for boot in (sample.boot, sample.kernel_boot))
        return packed.renamed(raw, as_bytes(node), *boots)

    def boot(self, boot: bytes) -> bytes:
        """One start of an agent or of a kernel."""
        return bytes.fromhex(self.names(BOOT, boot.hex()))

    def digests(self) -> Iterable[tuple[str, str]]:
        """(digest then, digest now) of the policies that were met, where they may run."""
        for record in self.policies:
            new = hidden(record, self.names, SPECIAL)
            try:
                now = published(new).digest
                yield published(record).digest, now
                yield record.digest, now
            except BadPolicy:
                continue


def headers_of(headers: Headers) -> Headers:
    """The two headers that say how to read a record."""
    return tuple(
        (name, _said(name, value)) for name, value in headers if name in ("enc", "v")
    )  # fmt: skip


def _said(name: str, value: bytes) -> bytes:
    fine = value in _ENCODINGS if name == "enc" else bool(value) and value.isdigit()
    return value if fine else b"?"


def unreadable(reason: str, raw: bytes) -> bytes:
    """Bytes that tell nothing and are refused for ``reason``, or for one as good."""
    if reason == "too_large":
        return bytes(len(raw))
    if reason == "checksum":
        size = max(len(raw), SHORTEST)
        return packed.MAGIC + struct.pack("<I", size) + bytes(size - 8)
    return {"broken_json": b"{", "missing_field": b"{}", "wrong_type": b"[]"}.get(reason, b"\0")
