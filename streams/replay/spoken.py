"""What was said of one partition then: an index of keys and digests, 56 bytes an output.

Built by `streams.replay.compare` from the recorded topics; records themselves are not held.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

import numpy as np

from schemas.topics import BY_NAME
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.replay.keys import SAID, OutputKey, digest_of, key_of_record

_ROW = Struct("<8s16s4q")
ROW = np.dtype(
    [
        ("key", "<u8"), ("high", "<u8"), ("low", "<u8"), ("cause", "<i8"), ("offset", "<i8"),
        ("ms", "<i8"), ("topic", "<i8"),
    ]
)  # fmt: skip
"""``cause``: offset in samples; ``offset``, ``ms``: where and when it was said; ``topic``: number
in `SAID`."""
Rows = np.ndarray[Any, np.dtype[Any]]


def row(key: OutputKey, value: bytes, offset: int = -1, ms: int = -1) -> bytes:
    """One row of a table of `ROW`."""
    topic = SAID.index(key.topic)
    return _ROW.pack(key.short, digest_of(value), key.offset, offset, ms, topic)


def rows(packed: bytes | bytearray) -> Rows:
    """Rows from their bytes."""
    return np.frombuffer(packed, dtype=ROW)


class Spoken:
    """``first``: the first saying of each key, sorted by key. ``repeated``, ``otherwise``: said
    again with the same bytes, with others. ``newest``: highest cause by topic.
    """

    def __init__(self, source: Source, partition: int, above: int, since_ms: int) -> None:
        """Reads every output whose cause lies above ``above``, from log time ``since_ms`` on."""
        self._source, self._partition = source, partition
        packed = bytearray()
        for topic, number in places_of(partition).items():
            begin = source.since(topic, number, since_ms) - 1
            for record in source.records(topic, number, begin):
                key = key_of_record(topic, record)
                if key is not None and key.partition == partition and key.offset > above:
                    packed += row(key, record.value or b"", record.offset, record.timestamp)
        every = rows(bytes(packed))
        self.in_order = every
        ordered = every[np.lexsort((every["offset"], every["key"]))]
        again = np.zeros(len(ordered), dtype=bool)
        again[1:] = ordered["key"][1:] == ordered["key"][:-1]
        self.first = ordered[~again]
        back = self.first[np.searchsorted(self.first["key"], ordered["key"][again])]
        same = (back["high"] == ordered["high"][again]) & (back["low"] == ordered["low"][again])
        self.said = len(ordered)
        self.repeated = int(np.count_nonzero(same))
        self.otherwise = ordered[again][~same]
        self.newest = {
            topic: int(np.max(every["cause"][every["topic"] == number], initial=-1))
            for number, topic in enumerate(SAID)
        }

    def at(self, place: int) -> Record:
        """The record of a row of ``first``."""
        return self.record(self.first[place])

    def record(self, one: Any) -> Record:
        """The record of a row."""
        topic = SAID[int(one["topic"])]
        number = places_of(self._partition)[topic]
        offset = int(one["offset"])
        return next(self._source.records(topic, number, offset - 1, offset))

    def next_ms(self, topic: str, cause: int) -> int | None:
        """When the first output on a topic with a later cause was said; None: there is none."""
        there = self.in_order
        later = (there["topic"] == SAID.index(topic)) & (there["cause"] > cause)
        return int(there["ms"][np.argmax(later)]) if later.any() else None


def places_of(partition: int) -> Mapping[str, int]:
    """Topic -> partition on which outputs of this partition of samples are said."""
    return {topic: partition if BY_NAME[topic].partitioned else 0 for topic in SAID}
