"""Reading what a question needs, from the topics of a cluster; which records those are.

`streams.explain.recorded` reads the same from a recording, and both end in one `Past`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.partitioner import DefaultPartitioner

from schemas.topics import BY_NAME, full_name
from streams import topic_reader
from streams.explain.acts import Folded
from streams.explain.past import DECIDED, DONE, KNOWN, Past
from streams.intake import Check

TOPICS = (*KNOWN, *DECIDED, *DONE)
LATE_MS = 60_000
"""Records are appended so much later than the log time they carry, at most."""
BEFORE_MS = 15_000
"""A sample that an act follows from is so much older than its ack, at most."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a question is about: one node ("": all), one partition (None: all), and when.

    ``from_ms`` None: from the beginning. What holds until it is said anew (policies, inventory,
    ledger) is read from its beginning whatever the span.
    """

    at_ms: int
    from_ms: int | None = None
    node: str = ""
    partition: int | None = None

    def begin_ms(self, topic: str) -> int | None:
        return None if topic in KNOWN else self.from_ms

    def wants(self, topic: str, key: bytes | None) -> bool:
        """Whether a record can be about the node, by its key."""
        if not self.node or topic not in (*DECIDED, *DONE) or key is None:
            return True
        return key in (self.node.encode(), b"")


async def of_cluster(
    brokers: str,
    prefix: str,
    span: Span,
    topics: Iterable[str] = TOPICS,
    check: Check | None = None,
) -> tuple[Past, Folded]:
    """What the topics of a cluster hold of it. Raises CannotRun."""
    past = Past(span.at_ms, check)
    async with topic_reader.started(topic_reader.consumer(brokers), brokers) as client:
        parts = {
            topic: await topic_reader.partitions_of(client, full_name(prefix, topic))
            for topic in (*topics, "samples")  # before anything is assigned: then others are unseen
        }
        for topic in topics:
            mine = _mine(parts[topic], topic, span)
            async for record in _said(client, mine, span, span.begin_ms(topic)):
                if span.wants(topic, record.key):
                    past.note(topic, record)
        acts = Folded(past)
        if acts.nodes:
            mine = _mine(parts["samples"], "samples", span)
            async for record in _said(client, mine, span, before(span.from_ms)):
                acts.note(record)
        acts.settle()
    return past, acts


def before(from_ms: int | None) -> int | None:
    """From when samples are read for acts of a span."""
    return None if from_ms is None else from_ms - BEFORE_MS


async def _said(
    client: Any, parts: list[TopicPartition], span: Span, from_ms: int | None
) -> AsyncIterator[Any]:
    """Records of these partitions within the span, in order within each."""
    client.assign(parts)
    await client.seek_to_beginning(*parts)
    if from_ms is not None:
        starts = await client.offsets_for_times(dict.fromkeys(parts, max(from_ms, 0)))
        parts = [part for part in parts if starts[part] is not None]
        for part in parts:
            client.seek(part, starts[part].offset)
    if parts:
        async for record in topic_reader.to_end(client, parts):
            if record.timestamp <= span.at_ms + LATE_MS:
                yield record


def _mine(parts: list[TopicPartition], topic: str, span: Span) -> list[TopicPartition]:
    """Of a node its partition, of a partition that one; what is known of others, too."""
    if not BY_NAME[topic].partitioned:
        return parts
    only = None if topic in KNOWN else span.partition
    if span.node:
        choose: Callable[..., int] = DefaultPartitioner()
        only = choose(span.node.encode(), [part.partition for part in parts], [])
    return [part for part in parts if only in (None, part.partition)]
