"""Damaged and evil bundles: a fixed few hundred; `make bench NAME=fuzz_bundles` opens 10,000."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from streams import images
from streams.recording import BadRecording, open_recording
from streams.recording.manifest import NAME
from streams.recording.pages import implausible
from tests.bench.fuzz_bundles import good_bundle
from tests.streams.recording import damage
from tests.streams.recording.damage import Good
from tests.streams.recording.fuzzing import fuzz

BUNDLES = 132


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "good.slack"
    good_bundle(path)
    return path


def test_damaged_bundles_are_refused_clearly_or_open_with_what_is_damaged_named(
    path: Path, tmp_path: Path
) -> None:
    found = fuzz(path, tmp_path, 0, BUNDLES)
    assert not found.bugs, found.bugs[0]
    assert found.bundles == BUNDLES and len(found.kinds) >= len(damage.KINDS)
    assert found.refused and found.harmed


@pytest.mark.parametrize("kind", range(3))
def test_a_segment_that_unpacks_to_gigabytes_is_named_before_it_does(
    path: Path, tmp_path: Path, kind: int
) -> None:
    good = Good.read(path)
    name = next(each for each in good.members if each.startswith("acks"))
    rows, body = damage.page_bomb(kind, 0)
    evil = tmp_path / "evil.slack"
    evil.write_bytes(damage.with_segment(good, name, body, records=rows, last=rows - 1))
    with open_recording(evil) as bundle:
        assert not bundle.verify()
        assert [each.name for each in bundle.problems] == [name]
        says = ("more than|page of encoding|page of kind|dictionary", "page of", "values in")[kind]
        assert any(word in bundle.problems[0].why for word in says.split("|"))
        assert not list(bundle.records("acks", int(name.split("/")[1])))


def test_what_our_writer_writes_is_plausible(path: Path) -> None:
    good = Good.read(path)
    with open_recording(path) as bundle:
        for segment in bundle.manifest.segments:
            raw = good.members[segment.name]
            file = io.BytesIO(raw)
            found = implausible(file, pq.ParquetFile(file).metadata, segment, len(raw))  # type: ignore[arg-type]
            assert found == ""


def test_an_image_that_unpacks_to_gigabytes_is_refused(path: Path) -> None:
    good = Good.read(path)
    name = next(each for each in good.members if each.startswith("images/"))
    chunk = images.read_chunk(damage.records_in(good, name)[0].value or b"")
    bomb = damage.zeros(images.MAX_STATE_BYTES // damage.MIB + 1)
    evil = images.Chunk(chunk.cut, 0, 1, chunk.at, 7, chunk.law_version, "", bomb)
    with pytest.raises(ValueError, match="more than"):
        images.unpack([evil])


def test_nothing_is_written_and_no_link_is_followed(path: Path, tmp_path: Path) -> None:
    good = Good.read(path)
    seen = set()
    for seed in range(30):
        root, outside = tmp_path / f"in{seed}", tmp_path / f"out{seed}"
        root.mkdir()
        outside.mkdir()
        kind = damage.folder(good, root, Random(seed), outside)
        seen.add(kind)
        before = sorted(str(each) for each in tmp_path.rglob("*"))
        if kind == "manifest":
            with pytest.raises(BadRecording, match=NAME):
                open_recording(root)
        else:
            with open_recording(root) as bundle:
                assert not bundle.verify(), kind
        assert sorted(str(each) for each in tmp_path.rglob("*")) == before
    assert len(seen) == 7
