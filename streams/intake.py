"""Raw records of `samples` into entries for `step`; what cannot be read becomes a dead letter.

Called by `streams.engine` for every record. Never raises for bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from agents.log import Output, SampleEntry
from schemas import codec
from schemas.errors import BadRecord
from schemas.records import DeadLetter, Tick

Check = Callable[[str, bytes | None, Iterable[tuple[str, bytes | None]] | None, bytes | None], None]
"""`schemas.signing.Checker.check`: raises BadRecord for what was not said by who may say it."""
HEAD_BYTES = 64
DETAIL_CHARS = 200


class Record(Protocol):
    """What is needed of a consumed record; aiokafka's ConsumerRecord has it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def unchecked(*_: object) -> None:
    """Without keys everybody is believed."""


def read(record: Record, check: Check = unchecked) -> SampleEntry | Tick:
    """A sample entry, or a tick still without its side records. Raises BadRecord.

    Who said it is asked before anything is parsed.
    """
    value = record.value
    check("samples", record.key, record.headers, value)
    if value is None:
        raise BadRecord("missing_field", "a record without value")
    enc = codec.encoding_of(record.headers)
    if enc == codec.ENC_TICK:
        return codec.parse_tick(value, record.partition)
    sample = codec.parse_sample(value, record.key, enc)
    return SampleEntry(record.offset, record.timestamp, sample)


def dead_letter(topic: str, record: Record, error: BadRecord) -> Output:
    """The dead letter of a record of ``topic`` (its name in the table)."""
    letter = DeadLetter(
        topic=topic,
        partition=record.partition,
        offset=record.offset,
        reason=error.reason,
        detail=error.detail[:DETAIL_CHARS],
        key_hex=(record.key or b"")[:HEAD_BYTES].hex(),
        head_hex=(record.value or b"")[:HEAD_BYTES].hex(),
        size_bytes=len(record.value or b""),
    )
    return Output("dead-letters", topic.encode(), letter, record.offset, "", "intake")
