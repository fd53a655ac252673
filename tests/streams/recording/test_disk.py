"""A recording on disk: whole after a kill at any moment, within its bound, through a full disk."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import INSTALLATION_KEY, Installation, PolicyRecord, Tick
from streams.recording import BadRecording, open_recording, store
from streams.recording.asking import finish_now
from streams.recording.disk import Sizes
from streams.recording.folder import opened as opened_folder
from streams.recording.manifest import Gap
from streams.recording.segment import Record
from streams.recording.store import Place
from tests.streams.recording.writing import (
    HEADERS,
    MANIFEST,
    Killed,
    Log,
    feed,
    killed_at,
    let_go,
    log_of,
    opened,
    read,
)
from tests.support import unavailable

PLACES: dict[Place, int] = {
    ("samples", 0): 60,
    ("samples", 1): 60,
    ("images", 0): 20,
    ("inventory", 0): 60,
    ("policies", 0): 9,
    ("decisions", 1): 40,
}
WIDE = Sizes(max_bytes=1 << 40, segment_bytes=4_000, age_s=60.0)


def test_what_goes_in_is_what_is_read(tmp_path: Path) -> None:
    log = log_of(PLACES)
    disk = opened(tmp_path, log, WIDE)
    feed(disk, log, 7)
    found, manifest = read(tmp_path)
    assert found == log
    assert len(manifest.segments) > 2 * len(PLACES)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_kill_at_any_moment_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of({("samples", 0): 20, ("policies", 0): 3}, value_bytes=2_000)
    moment, over = 0, False
    while not over:
        moment += 1
        root = tmp_path / str(moment)
        disk = opened(root, log, WIDE)
        with killed_at(moment, monkeypatch):
            try:
                feed(disk, log, 3)
            except Killed:
                let_go(disk)
            else:
                over = True
        again = opened(root, log, WIDE)
        feed(again, log, 5)
        found, _ = read(root)
        assert found == log, f"killed at {moment}"
    assert moment > 35, "the moments were not met"


def test_a_kill_at_any_moment_of_making_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(PLACES, value_bytes=1_000, every_ms=60_000)
    sizes = Sizes(max_bytes=80_000, segment_bytes=4_000, age_s=60.0)
    moment, over = 0, False
    while not over:
        moment += 131  # all of them take minutes; a prime step meets each kind
        root = tmp_path / str(moment)
        disk = opened(root, log, sizes)
        with killed_at(moment, monkeypatch):
            try:
                feed(disk, log, 4)
            except Killed:
                let_go(disk)
            else:
                over = True
        again = opened(root, log, sizes)
        feed(again, log, 4)
        found, _ = read(root)
        _is_the_end_of(found, log)
    assert moment > 300


def _is_the_end_of(found: dict[Place, list[Record]], log: Log) -> None:
    """Each place ends where the log ends; policies are whole, of facts every key is there."""
    assert found.keys() == log.keys()
    assert found["policies", 0] == log["policies", 0]
    for place, records in found.items():
        everything = log[place]
        if place[0] == "inventory":
            assert {r.key for r in records} == {r.key for r in everything}
            assert records[-1] == everything[-1]
        else:
            assert records == everything[-len(records) :], place


def test_the_bound_is_kept(tmp_path: Path) -> None:
    log = log_of(PLACES | {("samples", 0): 600}, value_bytes=1_000, every_ms=60_000)
    sizes = Sizes(max_bytes=200_000, segment_bytes=4_000, age_s=60.0)
    disk = opened(tmp_path, log, sizes)
    feed(disk, log, 4)
    assert disk.removed > 50
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk <= sizes.max_bytes + 20_000
    found, manifest = read(tmp_path)
    _is_the_end_of(found, log)
    assert not manifest.gaps


def test_a_kill_before_the_first_segment_does_not_begin_anew(tmp_path: Path) -> None:
    place = ("samples", 0)
    log = log_of({place: 30})
    disk = opened(tmp_path, {}, WIDE)
    disk.begin({place: (12, 15)})
    disk.take({place: log[place][12:14]})
    let_go(disk)
    disk = opened(tmp_path, log, WIDE)
    assert (disk.next(place), disk.owed[place]) == (12, 15)
    feed(disk, log, 5)
    assert read(tmp_path)[0] == {place: log[place][12:]}


def test_a_resumed_recording_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = log_of(PLACES)
    half = {place: records[: len(records) // 2] for place, records in log.items()}
    feed(opened(tmp_path, log, WIDE), half, 7)
    disk = opened(tmp_path, log, WIDE)
    assert disk.nexts() == {place: len(records) for place, records in half.items()}
    feed(disk, log, 7)
    assert read(tmp_path)[0] == log


def test_a_damaged_journal_is_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of({("samples", 0): 60})
    feed(opened(tmp_path, log, WIDE), log, 7)
    journal = store.journal_of(tmp_path, ("samples", 0))
    lines = journal.read_bytes().splitlines()
    lines[1] = lines[1].replace(b'"records":', b'"rec%rds":')
    journal.write_bytes(b"\n".join(lines) + b'\n{"topic":"sam')
    with open_recording(tmp_path) as recording:
        assert [each.name for each in recording.problems] == ["samples/0/segments.jsonl line 2"]
    opened(tmp_path, log, WIDE)
    assert "written anew" in caplog.text
    assert read(tmp_path)[0] == log


def test_what_is_no_segment_is_removed(tmp_path: Path) -> None:
    log = log_of({("samples", 0): 60})
    feed(opened(tmp_path, log, WIDE), log, 7)
    folder = tmp_path / "samples" / "0"
    (folder / f"{60:020d}.parquet").write_bytes(b"PAR1 and no more")
    (folder / f"{3:020d}.parquet").write_bytes((folder / f"{0:020d}.parquet").read_bytes())
    (folder / "open.partial").write_bytes(b"torn")
    disk = opened(tmp_path, log, WIDE)
    assert disk.next(("samples", 0)) == 60
    assert read(tmp_path)[0] == log
    assert not (folder / "open.partial").exists()


def test_holes_are_gaps_once(tmp_path: Path) -> None:
    place = ("capacity", 0)
    log = log_of({place: 90})
    left = {place: [r for r in log[place] if not (20 <= r.offset < 25 or r.offset == 70)]}
    for _ in range(2):
        disk = opened(tmp_path, log, WIDE)
        if disk.next(place) == 0:
            disk.begin({place: (0, 10)})
        for i in range(0, len(left[place]), 6):
            disk.take({place: left[place][i : i + 6]})
        disk.finish_all()
    found, manifest = read(tmp_path)
    assert found == left
    (gap,) = manifest.gaps
    assert (gap.first, gap.last) == (20, 70)


def test_what_retention_took_is_a_gap_before_what_follows(tmp_path: Path) -> None:
    log = log_of({("samples", 0): 60})
    disk = opened(tmp_path, log, WIDE)
    disk.take({("samples", 0): log["samples", 0][:10]})
    disk.skip(("samples", 0), 30, "retention")
    disk.take({("samples", 0): log["samples", 0][30:]})
    disk.finish_all()
    found, manifest = read(tmp_path)
    assert manifest.gaps == (Gap("samples", 0, 10, 29, "retention"),)
    assert [r.offset for r in found["samples", 0]] == [*range(10), *range(30, 60)]


def test_it_says_what_it_has_seen(tmp_path: Path) -> None:
    def record(topic: str, offset: int, key: bytes | None, value: object) -> Record:
        return Record(topic, 0, offset, 1_000, key, codec.encode(value), HEADERS)

    places: dict[Place, int] = {("samples", 0): 0, ("policies", 0): 0, ("fleet", 0): 0}
    disk = opened(tmp_path, log_of(places), WIDE)
    policy = PolicyRecord("default", 1, "d1", "name: default\n", "me", "why")
    disk.take(
        {
            ("samples", 0): [record("samples", i, None, Tick(0, 7, 5 + i, {})) for i in range(2)],
            ("policies", 0): [record("policies", 0, b"default", policy)],
            ("fleet", 0): [record("fleet", 0, INSTALLATION_KEY, Installation(7, 2))],
        }
    )
    disk.finish_all()
    manifest = read(tmp_path)[1]
    assert (manifest.law_versions, manifest.policies) == ((5, 6), ("d1",))
    with pytest.raises(BadRecording, match="made anew"):
        disk.take({("fleet", 0): [record("fleet", 1, INSTALLATION_KEY, Installation(8, 2))]})


def test_whoever_asks_need_not_wait_for_a_segment(tmp_path: Path) -> None:
    log = log_of({("samples", 0): 5})
    assert not finish_now(tmp_path), "nobody is at work"
    disk = opened(tmp_path, log, WIDE)
    disk.take({("samples", 0): log["samples", 0]})
    held = store.lock(tmp_path)
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(finish_now(tmp_path, 20)))
    asking.start()
    while asking.is_alive():
        disk.answer()
    asking.join()
    os.close(held)
    assert answers == [True]
    assert read(tmp_path)[0] == log


def test_one_folder_one_recorder_one_installation(tmp_path: Path) -> None:
    root = tmp_path / "recording"
    manifest, held = opened_folder(root, "slackwater.", Installation(7, 2))
    assert (manifest.kind, manifest.incarnation) == ("recording", 7)
    with pytest.raises(BadRecording, match=r"recorded into by process \d+"):
        opened_folder(root, "slackwater.", Installation(7, 2))
    os.close(held)
    with pytest.raises(BadRecording, match="made anew"):
        opened_folder(root, "slackwater.", Installation(8, 2))
    with pytest.raises(BadRecording, match=r"recording of 'slackwater\.', not of 'other\.'"):
        opened_folder(root, "other.", Installation(7, 2))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters").touch()
    with pytest.raises(BadRecording, match="name an empty folder"):
        opened_folder(tmp_path / "full", "slackwater.", Installation(7, 2))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    root = tmp_path / "small"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(root)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        unavailable("a file system of one's own needs root")
    try:
        yield root
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def test_a_full_disk_makes_room_and_goes_on(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(PLACES | {("samples", 0): 600}, value_bytes=2_000, every_ms=60_000)
    disk = opened(small_disk, log, Sizes(1 << 40, 16_000, 60.0))
    feed(disk, log, 4)
    assert disk.fulls > 0
    assert disk.removed > 0
    assert "no room" in caplog.text
    _is_the_end_of(read(small_disk)[0], log)


def test_a_disk_that_somebody_else_fills(small_disk: Path) -> None:
    log = log_of({("samples", 0): 50}, value_bytes=2_000)
    disk = opened(small_disk, log, WIDE)
    disk.take({("samples", 0): log["samples", 0][:10]})
    disk.finish_all()
    with (small_disk / "theirs").open("wb", buffering=0) as theirs:
        while True:
            try:
                theirs.write(bytes(4_096))
            except OSError:
                break
    for _ in range(3):
        again = disk.take({("samples", 0): log["samples", 0][10:40]})
        assert again == {("samples", 0)}
    assert disk.next(("samples", 0)) == 10, "what could not be written is to be read again"
    (small_disk / "theirs").unlink()
    feed(disk, log, 10)
    found, manifest = read(small_disk)
    assert (found, manifest.gaps) == (log, ())
    assert MANIFEST.prefix == manifest.prefix
