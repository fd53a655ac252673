"""Folding a recording gives the outputs that were published then, from wherever it begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from agents.log import SampleEntry
from agents.state import PartitionState
from schemas import codec
from schemas.records import DeadLetter, PolicyRecord
from streams.images import read_chunk, unpack
from streams.recording import Recording, open_recording
from streams.recording.segment import Record
from streams.replay import CannotReplay, Fold, start_of
from streams.replay.start import images_of
from tests.streams.replay.changing import Change, changed

SAID = ("commands", "capacity", "reservations", "signals", "decisions")
Said = dict[tuple[str, int, bytes, str], bytes]


def said_then(recording: Recording, partition: int) -> Said:
    found = {}
    for topic in SAID:
        for record in recording.records(topic, partition):
            value = orjson.loads(record.value or b"")
            key = topic, value["cause"]["offset"], record.key or b"", value.get("decider", "")
            found[key] = record.value or b""
    return found


def said_now(fold: Fold) -> Said:
    return {
        (o.topic, o.offset, o.key, getattr(o.record, "decider", "")): codec.encode(o.record)
        for batch in fold
        for o in batch
        if o.topic in SAID
    }


@pytest.mark.parametrize("batch", [1, 37, 4_000])
def test_from_the_beginning(recording: Recording, batch: int) -> None:
    for partition in recording.partitions():
        start = start_of(recording, partition)
        assert start.at == -1
        ours = said_now(Fold(recording, partition, start, batch=batch))
        theirs = said_then(recording, partition)
        assert len(theirs) > 200
        assert theirs.items() <= ours.items()
        beyond = {key[1] for key in ours.keys() - theirs.keys()}
        assert all(offset >= recording.last("samples", partition) for offset in beyond)


def test_from_an_image(recording: Recording) -> None:
    for partition in recording.partitions():
        middle = recording.last("samples", partition) // 2
        start = start_of(recording, partition, middle)
        assert 0 < start.at < middle
        at = start.at
        ours, theirs = said_now(Fold(recording, partition, start)), said_then(recording, partition)
        later = {key: value for key, value in theirs.items() if key[1] > at}
        assert len(later) > 100
        assert later.items() <= ours.items()
        assert all(key[1] > at for key in ours)


def test_the_states_on_the_way_are_the_images(recording: Recording) -> None:
    images = {chunks[0].at: chunks for chunks in images_of(recording, 0)}
    fold = Fold(recording, 0, start_of(recording, 0), stops=sorted(images))
    seen = 0
    for _ in fold:
        if fold.at in images:
            assert unpack(images[fold.at]).digest() == fold.state.digest()
            seen += 1
    assert seen == len(images) > 3


def test_it_ends_where_it_is_told_and_behind_ticks(recording: Recording) -> None:
    fold = Fold(recording, 0, start_of(recording, 0), upto=50, at_ticks=True)
    ends = []
    for _ in fold:
        ends.append(fold.at)  # noqa: PERF401
    ticks = [r.offset for r in recording.records("samples", 0, -1, 50) if r.key is None]
    assert ends == ([*ticks, 50] if ticks[-1] != 50 else ticks)
    assert (fold.records, fold.ended) == (51, "")


def test_a_hole_is_named(recording: Recording, tmp_path: Path) -> None:
    def torn_out(records: list[Record]) -> list[Record]:
        return [record for record in records if not 50 <= record.offset < 60]

    with open_recording(
        changed(recording, tmp_path / "b", {("samples", 0): torn_out})
    ) as torn:  # fmt: skip
        with pytest.raises(CannotReplay, match="samples behind offset 49 are not recorded"):
            list(Fold(torn, 0, start_of(torn, 0)))
        behind = start_of(torn, 0, recording.last("samples", 0))
        assert behind.at >= 59
        assert list(Fold(torn, 0, behind))


def test_a_damaged_segment_is_named(recording: Recording, path: Path, tmp_path: Path) -> None:
    raw = path.read_bytes()
    name = b"inventory/0/00000000000000000000.parquet"
    at = raw.index(name, raw.index(b"PK\x03\x04", 4)) + len(name) + 100
    (tmp_path / "b").write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    with (
        open_recording(tmp_path / "b") as torn,
        pytest.raises(CannotReplay, match=r"inventory/0 up to .*is damaged \(checksum\)"),
    ):
        list(Fold(torn, 0, start_of(torn, 0)))


def test_side_records_that_were_not_recorded_any_more_end_it(
    recording: Recording, tmp_path: Path
) -> None:
    changed(recording, tmp_path / "b", {("inventory", 0): lambda records: records[:4]})
    with open_recording(tmp_path / "b") as short:
        fold = Fold(short, 0, start_of(short, 0))
        ours = said_now(fold)
        assert "a tick admits inventory/0 up to" in fold.ended
        assert fold.at < recording.last("samples", 0)
        theirs = said_then(recording, 0)
        assert ours
        assert ours.items() <= theirs.items()


def test_no_place_to_begin_is_an_error(recording: Recording, tmp_path: Path) -> None:
    changes: dict[tuple[str, int], Change] = {
        ("samples", 0): lambda records: records[10:],
        ("images", 0): lambda _: [],
    }
    changed(recording, tmp_path / "b", changes)
    with open_recording(tmp_path / "b") as blind:
        with pytest.raises(CannotReplay, match="begins at offset 10 and has no whole image"):
            start_of(blind, 0)
        with pytest.raises(CannotReplay, match="no samples of partition 9"):
            start_of(blind, 9)


def test_images_of_another_law_are_passed_over(recording: Recording) -> None:
    first = next(iter(recording.records("images", 0)))
    chunk = read_chunk(first.value or b"")
    assert start_of(recording, 0, chunk.at + 1).at == chunk.at
    assert start_of(recording, 0, chunk.at).at == -1


def test_who_was_refused_then_is_refused_now(recording: Recording, tmp_path: Path) -> None:
    sample = next(r for r in recording.records("samples", 0, 20) if r.key is not None)
    letter = DeadLetter("samples", 0, sample.offset, "unsigned", "samples: no header")
    last = recording.last("dead-letters", 0) + 1
    written = Record(
        "dead-letters", 0, last, 1, b"samples", codec.encode(letter), tuple(codec.JSON_HEADERS)
    )
    changes: dict[tuple[str, int], Change] = {("dead-letters", 0): lambda old: [*old, written]}
    with open_recording(changed(recording, tmp_path / "b", changes)) as told:
        letters = [
            o
            for batch in Fold(told, 0, start_of(told, 0))
            for o in batch
            if o.topic == "dead-letters" and o.offset == sample.offset
        ]
        assert [o.record.reason for o in letters] == ["unsigned"]
        believing = Fold(told, 0, start_of(told, 0), check=lambda *_: None)
        assert not [
            o
            for b in believing
            for o in b
            if o.topic == "dead-letters" and o.offset == sample.offset
        ]


def test_another_policy_holds_from_the_first_tick_on(recording: Recording) -> None:
    other = PolicyRecord("default", 99, "", "rollout: {stage: observe}\n")
    start = start_of(recording, 0, recording.last("samples", 0) // 2)
    before, at = start.policy_digest, start.at
    first = next(r.offset for r in recording.records("samples", 0, at) if r.key is None)
    fold = Fold(recording, 0, start, policy=other, at_ticks=True)
    reasons = {
        o.record.reason
        for batch in fold
        for o in batch
        if o.decider == "suppress" and o.topic == "commands" and o.offset > first
    }
    assert reasons == {"disabled"}, "what is only observed is let go"
    assert fold.state.policy_digest != before


def test_a_sample_may_be_changed_before_it_is_folded(recording: Recording) -> None:
    seen: list[int] = []

    def later(entry: SampleEntry) -> SampleEntry:
        seen.append(entry.offset)
        return replace(entry, log_ms=entry.log_ms + 1)

    fold = Fold(recording, 0, PartitionState(0, recording.manifest.incarnation), reshape=later)
    assert said_now(fold) != said_then(recording, 0)
    assert seen == [r.offset for r in recording.records("samples", 0) if r.key is not None]
