"""What is packed is what is read; what is damaged is named, and the rest opens."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.recording import BadRecording, open_recording
from streams.recording.manifest import NAME
from streams.recording.recording import Recording
from streams.recording.segment import Record, Writer, records_of
from tests.sim.broker import Broker
from tests.streams.recording import made

TOPICS = ("samples", "commands", "capacity", "decisions", "inventory", "policies", "images")


@pytest.fixture(scope="module")
def log() -> tuple[Broker, int]:
    return made.log_of(seconds=30)


@pytest.fixture(scope="module")
def path(log: tuple[Broker, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "incident.slack"
    made.bundle_of(*log, path)
    return path


def all_of(recording: Recording) -> dict[tuple[str, int], list[Record]]:
    return {place: list(recording.records(*place)) for place in recording.places}


def test_every_record_comes_back_byte_for_byte(log: tuple[Broker, int], path: Path) -> None:
    broker, partitions = log
    with open_recording(path) as bundle:
        assert {topic for topic, _ in bundle.places} >= set(TOPICS)
        assert bundle.manifest.partitions == partitions
        for (topic, partition), records in all_of(bundle).items():
            before = broker.whole(topic, partition)
            assert len(records) == len(before)
            for ours, theirs in zip(records, before, strict=True):
                assert (ours.offset, ours.timestamp) == (theirs.offset, theirs.timestamp)
                assert (ours.key, ours.value, ours.headers) == (
                    theirs.key, theirs.value, theirs.headers,
                )  # fmt: skip
        assert bundle.verify()


def test_a_range_of_offsets(path: Path) -> None:
    with open_recording(path) as bundle:
        found = [r.offset for r in bundle.records("samples", 0, above=9, upto=14)]
    assert found == [10, 11, 12, 13, 14]


def test_any_zip_tool_opens_it(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        assert file.namelist()[0] == NAME
        assert file.testzip() is None


def test_the_same_log_gives_the_same_file(log: tuple[Broker, int], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    made.bundle_of(*log, one)
    made.bundle_of(*log, two)
    assert one.read_bytes() == two.read_bytes()
    assert sorted(tmp_path.iterdir()) == [one, two], "something was left beside it"


def test_a_damaged_segment_is_named_and_the_rest_opens(path: Path, tmp_path: Path) -> None:
    raw = bytearray(path.read_bytes())
    with open_recording(path) as bundle:
        whole = all_of(bundle)
        victim = bundle.segments("commands", 0)[0]
    raw[raw.index(victim.name.encode()) + 200] ^= 0x40
    damaged = tmp_path / "damaged.slack"
    damaged.write_bytes(raw)
    with open_recording(damaged) as bundle:
        found = all_of(bundle)
        assert [problem.name for problem in bundle.problems] == [victim.name]
        assert "checksum" in bundle.problems[0].why
        assert found.pop(("commands", 0)) == []
    del whole["commands", 0]
    assert found == whole


def test_what_arrived_of_a_bundle_that_was_cut_short_opens(path: Path, tmp_path: Path) -> None:
    raw = path.read_bytes()
    short = tmp_path / "short.slack"
    short.write_bytes(raw[: len(raw) * 2 // 3])
    with open_recording(short) as bundle:
        found = all_of(bundle)
        assert bundle.problems
        assert not bundle.verify()
    assert any(found.values())


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no bundle"), (b"hello, world" * 9, "no bundle"), (None, "does not exist")],
)
def test_what_is_no_recording(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "thing"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadRecording, match=says):
        open_recording(path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadRecording, match="no recording"):
        open_recording(tmp_path / "folder")


HEADERS = st.lists(st.tuples(st.sampled_from(["enc", "v", "mac", ""]), st.binary(max_size=4)))
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=50), HEADERS.map(tuple),
        st.integers(1, 9),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@given(RECORDS)
def test_any_record_survives(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]],
) -> None:
    offset, records = 0, []
    for key, value, headers, more in drawn:
        offset += more
        records.append(Record("capacity", 3, offset, 1_000 + offset, key, value, headers))
    file = io.BytesIO()
    writer = Writer("capacity", 3, file)
    writer.write(records)
    segment = writer.close()
    assert (segment.first, segment.last) == (records[0].offset, records[-1].offset)
    assert segment.records == len(records)
    file.seek(0)
    back = [
        record
        for batch in pq.ParquetFile(file).iter_batches()
        for record in records_of(batch, "capacity", 3)
    ]
    assert back == records
