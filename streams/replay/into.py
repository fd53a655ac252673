"""`slackwater replay --into`: what was recorded, said once more into a namespace of its own.

For subscribers that want to see an incident pass by: samples and side topics as they were, and
what is decided again from them. Nothing here can reach a machine: the prefix begins with
``replay.``, no installation record is written (no worker starts there), nothing is signed, and
every output carries the encoding `REPLAYED`, which no node, bridge or scheduler reads.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, for_code

from schemas import codec, topics
from schemas.records import INSTALLATION_KEY
from streams.recording.segment import Headers
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.fold import Fold
from streams.replay.keys import SAID
from streams.replay.run import Pace, Wanted, checked, offset_at
from streams.replay.start import start_of
from streams.topic_reader import CannotRun, admin, producer, started

REPLAYED: Headers = (("enc", b"replay"), ("v", b"1"))
"""Header ``enc`` of what is decided again; the value is the JSON of the record all the same."""
PREFIX = re.compile(r"replay\.[A-Za-z0-9_-]{1,60}\.")
RECORDED = ("samples", *topics.SIDE_TOPICS)
AT_ONCE = 500
"""Records read and folded between two turns of the loop."""
_EXISTS = 36  # TOPIC_ALREADY_EXISTS


class Said(NamedTuple):
    """One record to publish; the first five say what comes before what."""

    ms: int
    order: int  # what caused comes before what it caused
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def check_prefix(prefix: str) -> str:
    """Raises CannotReplay for a prefix that is not a replay's own."""
    if not PREFIX.fullmatch(prefix):
        raise CannotReplay(
            f"--prefix {prefix!r}: a replay has a prefix of its own that begins with replay. and "
            "ends with a dot, such as replay.tuesday."
        )
    return prefix


def into(
    source: Source, partitions: list[int], wanted: Wanted, brokers: str, prefix: str,
    told: Callable[[int, int], None],
) -> int:  # fmt: skip
    """Publish; returns how many records. ``told(records, log_ms)`` is called now and then.

    Raises CannotReplay, and CannotRun for a broker that does not answer or a prefix that is used.
    """
    return asyncio.run(_into(source, partitions, wanted, brokers, check_prefix(prefix), told))


async def _into(
    source: Source, partitions: list[int], wanted: Wanted, brokers: str, prefix: str,
    told: Callable[[int, int], None],
) -> int:  # fmt: skip
    await _create(brokers, prefix, source.manifest.partitions)
    count, pace = 0, None
    async with started(producer(brokers), brokers) as client:
        try:
            merged = heapq.merge(*_streams(source, partitions, wanted), key=_when)
            while some := await asyncio.to_thread(list, islice(merged, AT_ONCE)):
                pace = pace or Pace(wanted.speed, some[0].ms)
                for said in some:
                    if due_s := pace.due_s(said.ms):
                        await client.flush()
                        await asyncio.sleep(due_s)
                    await _send(client, prefix, said)
                count += len(some)
                told(count, some[-1].ms)
            await client.flush()
        except KafkaError as error:
            raise CannotRun(
                f"the broker at {brokers} took {count} records, then: {error!r}"
            ) from None
    return count


def _when(said: Said) -> tuple[int, int, str, int, int]:
    return said[:5]


async def _send(client: AIOKafkaProducer, prefix: str, said: Said) -> None:
    await client.send(
        topics.full_name(prefix, said.topic), said.value, key=said.key, partition=said.partition,
        timestamp_ms=said.ms, headers=list(said.headers),
    )  # fmt: skip


def _streams(source: Source, partitions: list[int], wanted: Wanted) -> Iterator[Iterator[Said]]:
    """One iterator a place, each in the order of time."""
    for partition in partitions:
        before = None if wanted.from_ms is None else offset_at(source, partition, wanted.from_ms)
        state = start_of(source, partition, before)
        upto = source.last("samples", partition)
        if wanted.to_ms is not None:
            upto = offset_at(source, partition, wanted.to_ms + 1) - 1
        began_at, side = state.at, dict(state.side)
        yield _recorded(source, "samples", partition, began_at, upto, None)
        for topic in topics.SIDE_TOPICS:
            number = partition if topics.BY_NAME[topic].partitioned else 0
            if number == partition or partition == partitions[0]:
                above = side.get(f"{topic}/{number}", -1)
                yield _recorded(source, topic, number, above, None, wanted.to_ms)
        fold = Fold(
            source, partition, state, upto=upto, check=checked(source, wanted), at_ticks=True
        )
        yield _decided(fold)


def _recorded(
    source: Source, topic: str, partition: int, above: int, upto: int | None, to_ms: int | None
) -> Iterator[Said]:
    newest_ms = 0  # append times may step back a little: order is the log's
    for record in source.records(topic, partition, above, upto):
        if to_ms is not None and record.timestamp > to_ms:
            return
        if (topic, record.key) == ("fleet", INSTALLATION_KEY):
            continue
        newest_ms = max(newest_ms, record.timestamp)
        yield Said(
            newest_ms, 0, topic, partition, record.offset, record.key, record.value, record.headers
        )


def _decided(fold: Fold) -> Iterator[Said]:
    number = 0
    for batch in fold:
        for output in batch:
            number += 1
            partitioned = topics.BY_NAME[output.topic].partitioned
            yield Said(
                fold.state.log_ms, 1, output.topic, fold.partition if partitioned else 0, number,
                output.key or None, codec.encode(output.record), REPLAYED,
            )  # fmt: skip


async def _create(brokers: str, prefix: str, partitions: int) -> None:
    """The topics of the namespace. Raises CannotRun when one is there already.

    Records keep their times of then, which lie beyond any retention: nothing expires by time.
    """
    names = {topics.full_name(prefix, name): name for name in {*RECORDED, *SAID}}
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": str(topics.MAX_MESSAGE_BYTES),
    }
    async with started(admin(brokers), brokers) as client:
        wanted = [
            NewTopic(
                name, topics.partitions_of(topics.BY_NAME[short], partitions), 1,
                topic_configs=configs,
            )
            for name, short in sorted(names.items())
        ]  # fmt: skip
        response = await client.create_topics(wanted)
        for name, code, *rest in response.topic_errors:
            if code == _EXISTS:
                raise CannotRun(
                    f"topic {name} is there already: take another --prefix, or delete {prefix}*"
                )
            if code:
                why = rest[0] if rest and rest[0] else for_code(code).__name__
                raise CannotRun(f"the broker refused topic {name}: {why}")
