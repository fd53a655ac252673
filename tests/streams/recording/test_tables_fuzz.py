"""Records that say anything at all: tables leave them out, explain passes them over, SQL lives."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from schemas import codec
from schemas.topics import BY_NAME
from streams.explain.acts import every
from streams.explain.answers import not_scheduled
from streams.explain.capacity import Wish, compare
from streams.explain.line import standing, told
from streams.explain.read import Span
from streams.explain.recorded import of_recording
from streams.recording import open_recording
from streams.recording.manifest import Manifest
from streams.recording.pack import pack
from streams.recording.segment import Record
from streams.recording.sql import Database
from streams.recording.tables import TABLES
from tests.streams.recording import made

VALUES: tuple[Any, ...] = (
    None, 0, -1, 2**63 - 1, -(2**63), 2**70, "", "x\x00\x1b[2J", [], [1], {}, {"a": 1}, {"": ""},
    True, 1.5,
)  # fmt: skip


def twisted(value: bytes, dice: Random) -> bytes:
    """The record with one thing changed: a byte, a length, or a field of its JSON."""
    kind = dice.randrange(4)
    if kind == 0 and value:
        at = dice.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << dice.randrange(8)]) + value[at + 1 :]
    if kind == 1:
        return value[: dice.randrange(len(value) + 1)]
    try:
        said = orjson.loads(value)
    except orjson.JSONDecodeError:
        return dice.randbytes(dice.randrange(200))
    if isinstance(said, dict) and said:
        inner = said
        while True:
            name = dice.choice(sorted(inner))
            below = inner[name]
            if isinstance(below, dict) and below and dice.random() < 0.6:
                inner = below
                continue
            if isinstance(below, list) and below and dice.random() < 0.6:
                inner[name] = below[: dice.randrange(len(below))]
            else:
                inner[name] = dice.choice(VALUES)
            break
    return json.dumps(said).encode()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_a_record_says_breaks_what_looks_back(seed: int, tmp_path: Path) -> None:
    dice = Random(seed)
    broker, partitions = made.log_of(seed=made.SEED + seed, seconds=12)
    places: dict[tuple[str, int], list[Record]] = {}
    for topic in BY_NAME:
        for partition in range(partitions):
            for record in broker.whole(topic, partition):
                log = places.setdefault((topic, partition), [])
                said = [(record.key, record.value, record.headers)]
                if record.value is not None and topic != "images":
                    for _ in range(dice.choice((0, 1, 2))):
                        key = dice.choice((record.key, record.key, None, b"", b"\xff", b"~lease"))
                        headers = dice.choice((record.headers, (), (("enc", b"json"), ("v", b"1"))))
                        said.append((key, twisted(record.value, dice), headers))
                    if dice.random() < 0.05:
                        said.append((record.key, None, record.headers))
                for key, value, headers in said:
                    offset, at_ms = len(log), record.timestamp
                    log.append(Record(topic, partition, offset, at_ms, key, value, headers))
    path = tmp_path / "twisted.slack"
    pack(path, Manifest("bundle", "p.", 7, partitions, "t", codec.VERSION, 0), places)
    with open_recording(path) as recording:
        rows = {name: recording.table(name).num_rows for name in TABLES}
        assert all(rows[name] for name in ("samples", "pods", "decisions", "acks", "pod_facts"))
        past, acts = of_recording(recording, Span(1 << 60))
        lines = list(every(past, acts))
        for node in past.nodes():
            lines += standing(past, node)
            compare(past, node, 1 << 60, broker.now_ms - 5_000)
        assert all(told(line) for line in lines)
        not_scheduled(past, "x", Wish(), [])
        with Database(recording) as database:
            for view in ("pod_use", "decided", "evicted_pods", "capacity_changes"):
                database.table(f"select count(*) from {view}")
    assert past.unreadable
