"""Recordings for `make bench NAME=replay`: one partition, any number of machines and seconds.

What machines say goes through `agents.step` once; samples, side records and what was decided are
written as the recorder writes them. Memory: a segment a topic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agents.log import LAW_VERSION, Output, SideRecord, TickEntry
from agents.state import PartitionState
from agents.step import step
from schemas import codec
from schemas.topics import PREFIX
from streams.recording import store
from streams.recording.manifest import Manifest
from streams.recording.segment import Record, Writer
from tests.bench.common import say
from tests.bench.step import Log, Machine, obey, parse

SEGMENT_RECORDS = 50_000
INCARNATION = 1


class Folder:
    """A recording in the making; `close` finishes every segment."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        manifest = Manifest(
            kind="recording", prefix=PREFIX, incarnation=INCARNATION, partitions=1,
            software="bench", schema_version=codec.VERSION, made_ms=0, law_versions=(LAW_VERSION,),
        )  # fmt: skip
        store.write_manifest(root, manifest)
        self._root = root
        self._next: Counter[str] = Counter()
        self._open: dict[str, tuple[Path, Writer]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for topic in tuple(self._open):
            self._finish(topic)

    def put(
        self, topic: str, ms: int, key: bytes | None, value: bytes, headers: codec.Headers
    ) -> None:
        """Append one record."""
        offset = self._next[topic]
        self._next[topic] += 1
        if topic not in self._open:
            path = self._root / topic / "0" / f"{offset:020d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[topic] = path, Writer(topic, 0, path.open("w+b"))
        record = Record(topic, 0, offset, ms, key, value, tuple(headers))
        writer = self._open[topic][1]
        writer.write((record,))
        if (offset + 1) % SEGMENT_RECORDS == 0:
            self._finish(topic)

    def _finish(self, topic: str) -> None:
        _, writer = self._open.pop(topic)
        store.append_line(self._root, writer.close())


def make(root: Path, nodes: int, seconds: int) -> int:
    """A recording of so many machines with fifty pods; returns how many outputs it holds."""
    machines = [Machine(number, seed=3) for number in range(nodes)]
    log, state = Log(machines), PartitionState(0, INCARNATION)
    said = 0
    with Folder(root) as folder:
        first = _upto_last(log.first_tick())
        for side in first.side:
            _side(folder, side, first.log_ms)
        said += _decided(folder, step(state, [_tick(folder, first)]), first.log_ms)
        for second in range(seconds):
            rows = log.second()
            for (_, log_ms, raw), machine in zip(rows, machines, strict=True):
                folder.put("samples", log_ms, machine.name.encode(), raw, codec.PACKED_HEADERS)
            outputs = step(state, parse(rows))
            outputs += step(state, [_tick(folder, log.tick())])
            said += _decided(folder, outputs, log.log_ms)
            obey(machines, outputs)
            if second % 60 == 59:
                say(f"made {second + 1} of {seconds} s")
    return said


def _upto_last(entry: TickEntry) -> TickEntry:
    """A tick that admits no more than there is."""
    vector = {f"{side.topic}/{side.partition}": side.offset for side in entry.side}
    return replace(entry, tick=replace(entry.tick, side=vector))


def _tick(folder: Folder, entry: TickEntry) -> TickEntry:
    folder.put("samples", entry.log_ms, None, codec.encode(entry.tick), codec.TICK_HEADERS)
    return entry


def _side(folder: Folder, side: SideRecord, log_ms: int) -> None:
    folder.put(side.topic, log_ms, side.key, codec.encode(side.record), codec.JSON_HEADERS)


def _decided(folder: Folder, outputs: list[Output], log_ms: int) -> int:
    for output in outputs:
        value = codec.encode(output.record)
        folder.put(output.topic, log_ms, output.key or None, value, codec.JSON_HEADERS)
    return len(outputs)
