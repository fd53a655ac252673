"""What tells one output from another: (topic, partition, offset of the cause, key, decider).

Called for outputs that were recorded and for those that are folded again; the rule is DESIGN 4.6:
what a crash says again has the same key and the same bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from agents.log import Output
from streams.intake import Record

SAID = (
    "commands", "capacity", "reservations", "signals", "decisions", "fleet", "dead-letters",
)  # fmt: skip
"""The topics that the law speaks on."""


class OutputKey(NamedTuple):
    """``offset``: of the record of `samples` that caused it."""

    topic: str
    partition: int
    offset: int
    key: bytes
    decider: str

    @property
    def short(self) -> bytes:
        """Eight bytes that stand for it."""
        head = f"{self.topic}\0{self.partition}\0{self.offset}\0{self.decider}\0".encode()
        return blake2b(head + self.key, digest_size=8).digest()


class _Cause(msgspec.Struct):
    partition: int
    offset: int


class _Said(msgspec.Struct):
    cause: _Cause
    decider: str = ""


class _Letter(msgspec.Struct):
    topic: str
    partition: int
    offset: int


_SAID = msgspec.json.Decoder(_Said)  # of a decision with a thousand columns only this is built
_LETTER = msgspec.json.Decoder(_Letter)


def key_of_record(topic: str, record: Record) -> OutputKey | None:
    """The key of a record of one of `SAID`; None when no law can have said it."""
    if record.value is None:
        return None
    try:
        if topic == "dead-letters":
            letter = _LETTER.decode(record.value)
            if letter.topic != "samples":
                return None  # of a side topic: not the law's
            return OutputKey(topic, letter.partition, letter.offset, b"samples", "intake")
        said = _SAID.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return OutputKey(
        topic, said.cause.partition, said.cause.offset, record.key or b"", said.decider
    )


def key_of_output(output: Output, partition: int) -> OutputKey:
    """The key that the record of this output has on its topic."""
    if output.topic == "dead-letters":
        return OutputKey(output.topic, partition, output.offset, b"samples", "intake")
    decider = getattr(output.record, "decider", "")
    return OutputKey(output.topic, partition, output.offset, output.key, decider)


def digest_of(value: bytes) -> bytes:
    """Sixteen bytes that stand for a record's value."""
    return blake2b(value, digest_size=16).digest()
