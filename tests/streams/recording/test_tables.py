"""Decoded tables say what the records say, row by row, and count what they cannot read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from schemas import codec, packed
from schemas.codec import JSON_HEADERS, PACKED_HEADERS, TICK_HEADERS
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.records import (
    Capacity,
    Cause,
    Decision,
    Inventory,
    LedgerEntry,
    NodeSample,
    PodFact,
    Tick,
)
from schemas.signing import HEADER
from streams.recording import BadRecording, open_recording
from streams.recording.manifest import Manifest
from streams.recording.pack import pack
from streams.recording.recording import Recording
from streams.recording.segment import Record
from streams.recording.tables import TABLES, Found, batches
from streams.recording.tables.column import INT, UNITS
from tests.sim.broker import Broker
from tests.streams.recording import made

CAUSE = Cause(7, 0, 5, 1_000, "digest", 6)


@pytest.fixture(scope="module")
def log() -> tuple[Broker, int]:
    return made.log_of(seconds=30)


@pytest.fixture(scope="module")
def bundle(log: tuple[Broker, int], tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("bundle") / "incident.slack"
    made.bundle_of(*log, path)
    with open_recording(path) as opened:
        yield opened


class Hand:
    """A bundle written by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[tuple[str, int], list[Record]] = {}

    def say(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Any = JSON_HEADERS,
        at_ms: int = 1_000,
    ) -> None:  # fmt: skip
        log = self.records.setdefault((topic, 0), [])
        log.append(Record(topic, 0, len(log), at_ms, key, value, tuple(headers)))

    def open(self) -> Recording:
        manifest = Manifest("bundle", "p.", 7, 1, "test", codec.VERSION, 0)
        pack(self.path, manifest, self.records)
        return open_recording(self.path)


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path / "hand.slack")


def left_out(table: pa.Table) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(table.schema.metadata[b"slackwater"])
    return said


def test_every_column_is_told_and_ends_in_its_unit() -> None:
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert table.row
        for column in table.columns:
            assert column.meaning
            assert not column.unit or column.type in (INT, pa.list_(INT))
    assert {column.unit for column in TABLES["pods"].columns} <= {"", *UNITS.values()}


def test_every_record_of_the_log_has_its_rows(log: tuple[Broker, int], bundle: Recording) -> None:
    broker, partitions = log
    for table in TABLES.values():
        rows = 0
        for partition in range(partitions):
            for record in broker.whole(table.topic, partition):
                enc = codec.encoding_of(record.headers)
                if (
                    record.value is None
                    or codec.kind_of(table.topic, record.key, enc) != table.kind
                ):
                    continue
                one = codec.read(table.topic, record.key, record.value, record.headers)
                parts = one.pods if table.name == "pods" else 1
                rows += parts if table.parts is None else len(tuple(table.parts(one)))
        found = bundle.table(table.name)
        assert found.num_rows == rows, table.name
        assert left_out(found)["undecodable"] == 0
    for name in ("pods", "commands", "decisions", "capacity", "acks", "ledger", "signals"):
        assert bundle.table(name).num_rows


def test_rows_say_what_the_records_say(log: tuple[Broker, int], bundle: Recording) -> None:
    broker, partitions = log
    said = [
        codec.read("capacity", record.key, record.value or b"", record.headers)
        for partition in range(partitions)
        for record in broker.whole("capacity", partition)
    ]
    rows = bundle.table("capacity").to_pylist()
    for record, row in zip(said, rows, strict=True):
        assert (row["node"], row["reason"]) == (record.node, record.reason)
        assert row["batch_cpu_milli"] == record.batch_cpu_milli
        assert row["cpu_need_milli"] == record.cpu_terms["need"]
        assert row["mid_memory_long_bytes"] == record.mid_memory_terms["long"]
        assert row["cause_offset"] == record.cause.offset
    lines = bundle.table("decisions").to_pylist()
    by_id = {row["id"]: row for row in bundle.table("commands").to_pylist()}
    assert by_id
    for line in lines:
        if line["command_id"]:
            command = by_id[line["command_id"]]
            assert (command["node"], command["decider"]) == (line["node"], line["decider"])
            assert dict(command["terms"]).items() <= dict(line["terms"]).items()


def test_samples_are_spread_whatever_their_columns(hand: Hand) -> None:
    dice = Random(5)
    sent: list[NodeSample] = []
    for number in range(60):
        pods = dice.choice((0, 1, 3, 70))
        columns = {
            name: dice.choice((dice.getrandbits(62), None, -1))
            for name in NODE_COLUMNS if dice.random() < 0.5
        }  # fmt: skip
        pod_columns: dict[str, list[int | None]] = {
            name: [dice.choice((number, dice.getrandbits(40), None)) for _ in range(pods)]
            for name in POD_COLUMNS if dice.random() < 0.5
        }  # fmt: skip
        sample = NodeSample("n1", "ab" * 16, "cd" * 16, number + 1, number, 9, 1_000, pods, pods,
                            columns, pod_columns)  # fmt: skip
        sent.append(sample)
        as_json = dice.random() < 0.3
        value = codec.encode(sample) if as_json else packed.encode(sample)
        hand.say("samples", b"n1", value, JSON_HEADERS if as_json else PACKED_HEADERS)
    facts = Inventory("n1", 3, 8_000, 1 << 33, pods=tuple(
        PodFact(f"u{i}", f"name{i}", "ns", f"w{i % 2}", "BE") for i in range(3)
    ))  # fmt: skip
    hand.say("inventory", b"n1", codec.encode(facts))
    with hand.open() as opened:
        samples, pods = opened.table("samples").to_pylist(), opened.table("pods").to_pylist()
    for sample, row in zip(sent, samples, strict=True):
        assert {name: row[name] for name in NODE_COLUMNS} == dict.fromkeys(
            NODE_COLUMNS
        ) | sample.node_columns
        assert (row["seq"], row["boot"], row["pods"]) == (sample.seq, sample.boot, sample.pods)
    rows = iter(pods)
    for sample in sent:
        for place in range(sample.pods):
            row = next(rows)
            assert (row["place"], row["pods_rev"]) == (place, sample.pods_rev)
            assert row["uid"] == (f"u{place}" if sample.pods == 3 else None)
            assert row["workload"] == (f"w{place % 2}" if sample.pods == 3 else None)
            for name in POD_COLUMNS:
                told = sample.pod_columns.get(name)
                assert row[name] == (None if told is None else told[place])
    assert next(rows, None) is None


def test_what_cannot_be_read_is_left_out_and_counted(hand: Hand) -> None:
    record = Capacity("n1", CAUSE, 5, 6, "first")
    hand.say("capacity", b"n1", codec.encode(record))
    hand.say("capacity", b"n1", b"{")
    hand.say("capacity", b"n1", codec.encode(record), [("enc", b"riddle"), ("v", b"1")])
    hand.say("capacity", b"n1", codec.encode(dataclasses.replace(record, batch_cpu_milli=7)))
    hand.say("capacity", b"n1", None)
    hand.say("samples", b"n1", b"noise", PACKED_HEADERS)
    hand.say("samples", None, codec.encode(Tick(0, 7, 6, {"acks/0": 4})), TICK_HEADERS)
    with hand.open() as opened:
        table, samples = opened.table("capacity"), opened.table("samples")
        ticks = opened.table("ticks")
    assert table.column("batch_cpu_milli").to_pylist() == [5, 7]
    assert left_out(table)["undecodable"] == 2
    assert "capacity/0 offset 1: broken_json" in left_out(table)["examples"][0]
    assert (samples.num_rows, left_out(samples)["undecodable"]) == (0, 1)
    assert ticks.column("side").to_pylist() == [[("acks/0", 4)]]


def test_what_a_crash_says_again_counts_once(hand: Hand) -> None:
    one = codec.encode(Capacity("n1", CAUSE, 5, 6, "first"))
    later = codec.encode(Capacity("n1", dataclasses.replace(CAUSE, offset=9), 5, 6, "first"))
    for value in (one, later, one, later):
        hand.say("capacity", b"n1", value)
    with hand.open() as opened:
        table = opened.table("capacity")
    assert table.column("cause_offset").to_pylist() == [5, 9]
    assert left_out(table)["repeated"] == 2


def test_a_decision_about_many_nodes_has_a_row_each_and_says_who_signed(hand: Hand) -> None:
    decision = Decision("capacity", CAUSE, ("n1", "n2"), ("raise", "fall"), {"a": [1, 2]})
    hand.say("decisions", None, codec.encode(decision), [*JSON_HEADERS, (HEADER, b"12345678seal")])
    with hand.open() as opened:
        rows = opened.table("decisions").to_pylist()
        only = opened.table("decisions", nodes=["n2"]).to_pylist()
        terms = opened.table("decision_terms").to_pylist()
    assert [(r["node"], r["reason"], r["terms"]) for r in rows] == [
        ("n1", "raise", [("a", 1)]), ("n2", "fall", [("a", 2)]),
    ]  # fmt: skip
    assert {row["signer"] for row in rows} == {b"12345678".hex()}
    assert only == rows[1:]
    assert [(r["node"], r["term"], r["value"]) for r in terms] == [("n1", "a", 1), ("n2", "a", 2)]


def test_a_tombstone_of_the_ledger_gives_all_back(hand: Hand) -> None:
    hand.say("ledger", b"n1/yarn", codec.encode(LedgerEntry("n1", "yarn", 500, 9)))
    hand.say("ledger", b"n1/yarn", None)
    with hand.open() as opened:
        rows = opened.table("ledger", columns=["node", "scheduler", "cpu_milli"]).to_pylist()
    assert rows == [
        {"node": "n1", "scheduler": "yarn", "cpu_milli": 500},
        {"node": "n1", "scheduler": "yarn", "cpu_milli": 0},
    ]


def test_a_span_of_time_and_nodes(bundle: Recording) -> None:
    whole = bundle.table("pods").to_pylist()
    first = min(row["log_ms"] for row in whole)
    some = bundle.table(
        "pods", from_ms=first + 5_000, to_ms=first + 9_000, nodes=["n0"]
    ).to_pylist()
    assert some == [
        row for row in whole
        if row["node"] == "n0" and first + 5_000 <= row["log_ms"] < first + 9_000
    ]  # fmt: skip
    assert some


def test_batches_are_what_the_table_is(bundle: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.recording.tables.read.CHUNK", 7)
    for name in ("pods", "acks", "pod_reservations"):
        found = Found()
        several = list(batches(bundle, name, found=found))
        assert len(several) > 1
        assert found.undecodable == 0
        again = pa.Table.from_batches(several).to_pylist()
        assert again == bundle.table(name).to_pylist()


def test_names_that_are_none_are_refused(bundle: Recording) -> None:
    with pytest.raises(BadRecording, match=r"no table 'podz': want one of samples, pods"):
        bundle.table("podz")
    with pytest.raises(BadRecording, match="table pods has no column 'cpu'"):
        bundle.table("pods", columns=["cpu"])
