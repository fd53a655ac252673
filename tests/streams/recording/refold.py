"""A bundle folded again by the live engine, from its start; and what it says was said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from agents.log import Output
from agents.state import PartitionState
from schemas import codec, topics
from schemas.errors import BadRecord
from streams.checker import SAID, LoggedSide, _key_of
from streams.engine import PartitionEngine, Ports
from streams.images import Chunk, read_chunk, unpack
from streams.metrics import Metrics
from streams.recording import Recording
from streams.side_inputs import SideLog, decode
from tests.sim.worker import drive

Said = dict[tuple[Any, ...], tuple[bytes, bytes]]


def start_of(bundle: Recording, partition: int) -> PartitionState:
    """The state of the bundle's image, or none yet."""
    chunks: dict[int, Chunk] = {}
    for record in bundle.records("images", partition):
        chunk = read_chunk(record.value or b"")
        chunks[chunk.i] = chunk
    if chunks:
        return unpack([chunks[i] for i in sorted(chunks)])
    return PartitionState(partition, bundle.manifest.incarnation)


def refolded(bundle: Recording, partition: int) -> Said:
    """Every output of the law, by key."""
    said: Said = {}

    async def collect(_: int, outputs: Iterable[Output]) -> None:
        for output in outputs:
            value = codec.encode(output.record)
            said[_key_of(output.topic, output.key, orjson.loads(value))] = (output.key, value)

    async def begins(_: int) -> int:
        return 0

    logs = {}
    for topic in topics.SIDE_TOPICS:
        number = partition if topics.BY_NAME[topic].partitioned else 0
        side = logs[f"{topic}/{number}"] = SideLog(topic, number)
        for record in bundle.records(topic, number):
            try:
                decoded = decode(topic, record)
            except BadRecord:
                continue
            if decoded is not None:
                side.put(decoded)
    ports = Ports(
        publish=collect, seek=lambda *_: None, recover=lambda _: None, log_start=begins,
        side=LoggedSide(logs), metrics=Metrics(), held_records=1 << 40,
    )  # fmt: skip
    engine = PartitionEngine(partition, ports)
    engine.begin(start_of(bundle, partition))
    records = list(bundle.records("samples", partition, engine.at))
    drive(engine.deliver(records))
    assert not engine.broken and engine.at == records[-1].offset
    return said


def recorded(bundle: Recording, partition: int, above: int) -> Said:
    """Every output in the bundle that a record above an offset caused, by key."""
    said: Said = {}
    for topic in SAID:
        number = partition if topics.BY_NAME[topic].partitioned else 0
        for record in bundle.records(topic, number):
            try:
                key = _key_of(topic, record.key or b"", orjson.loads(record.value or b""))
            except (KeyError, orjson.JSONDecodeError):
                continue  # nobody's output
            if topic == "dead-letters" and key[3] != b"samples":
                continue
            if key[1] == partition and key[2] > above:
                said[key] = (record.key or b"", record.value or b"")
    return said
