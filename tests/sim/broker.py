"""The fake log: partitions with offsets and append time from the simulated clock.

What it keeps is what a broker keeps: bytes, keys and headers, in order, never changed. While it is
down every call raises `BrokerDown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.codec import JSON_HEADERS, Headers

START_MS = 1_700_000_000_000
Place = tuple[str, int]


class BrokerDown(Exception):
    """Nobody answers."""


@dataclass(slots=True)
class Record:
    """What a consumer gets; the names are those of aiokafka's ConsumerRecord."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Broker:
    """``now_ms`` is moved by the cluster; ``start`` is the log start after retention."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.up = True
        self.start: dict[Place, int] = defaultdict(int)
        self._logs: dict[Place, list[Record]] = defaultdict(list)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = JSON_HEADERS,
    ) -> Record:
        self._must_be_up()
        log = self._logs[topic, partition]
        record = Record(topic, partition, len(log), self.now_ms, key, value, tuple(headers))
        log.append(record)
        return record

    def read(self, topic: str, partition: int, offset: int, limit: int = 10_000) -> list[Record]:
        self._must_be_up()
        first = max(offset, self.start[topic, partition])
        return self._logs[topic, partition][first : first + limit]

    def end(self, topic: str, partition: int) -> int:
        self._must_be_up()
        return len(self._logs[topic, partition])

    def whole(self, topic: str, partition: int) -> Sequence[Record]:
        """Everything ever appended, for the checks: no outage and no retention hides it."""
        return self._logs[topic, partition]

    def first_since(self, topic: str, partition: int, since_ms: int) -> int:
        """The first offset appended at ``since_ms`` or later; the end when there is none."""
        self._must_be_up()
        log = self._logs[topic, partition]
        return next((r.offset for r in log if r.timestamp >= since_ms), len(log))

    def lose(self, topic: str, partition: int) -> None:
        """Retention takes all that is there."""
        self.start[topic, partition] = len(self._logs[topic, partition])

    def _must_be_up(self) -> None:
        if not self.up:
            raise BrokerDown
