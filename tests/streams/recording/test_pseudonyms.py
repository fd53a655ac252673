"""Names are hidden everywhere, and a replay of the hidden says what was said."""

from __future__ import annotations

import io
import types
import typing
import zipfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.errors import BadRecord
from schemas.names import NODE_NAME
from schemas.records import Inventory
from schemas.topics import TOPICS
from streams.images import read_chunk
from streams.recording import BadRecording, Recording, open_recording
from streams.recording.cut import choose, write
from streams.recording.fields import FIELDS
from streams.recording.naming import NODE, UID, Pseudonyms, remainder_of
from streams.recording.pseudonyms import pseudonymised, read_key
from tests.streams.recording import made, zebra
from tests.streams.recording.refold import Said, recorded, refolded
from tests.streams.recording.test_cut import some


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zebra") / "whole.slack"
    made.bundle_of(*zebra.log(), path)
    return path


@pytest.fixture(scope="module", params=[(0.0, 1.0), (0.45, 0.7)], ids=["all", "from an image"])
def pair(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, Path]:
    """A cut, and the same pseudonymised."""
    folder = tmp_path_factory.mktemp("pair")
    plain, hidden = folder / "plain.slack", folder / "hidden.slack"
    with open_recording(whole) as source:
        chosen = choose(source, some(source, *request.param, nodes=(f"{zebra.NAME}-n0",)))
        write(chosen, plain)
        other = pseudonymised(source, chosen)
        write(other, hidden)
        assert not other.notes
    return plain, hidden


def inside(path: Path) -> Iterator[bytes]:
    """All bytes of a bundle, after every decompression."""
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            raw = file.read(name)
            yield name.encode()
            if not name.endswith(".parquet"):
                yield raw
                continue
            table = pq.read_table(io.BytesIO(raw))
            for column in ("key", "value", "enc", "v"):
                yield from (each for each in table[column].to_pylist() if each is not None)
            yield repr(table["headers"].to_pylist()).encode()
    with open_recording(path) as bundle:
        for partition in bundle.partitions("images"):
            chunks = [read_chunk(r.value or b"") for r in bundle.records("images", partition)]
            yield zstd.decompress(b"".join(chunk.payload for chunk in chunks))


def said_by(bundle: Recording, topic: str) -> dict[tuple[int, int], Any]:
    found = {}
    for partition in bundle.partitions(topic):
        for record in bundle.records(topic, partition):
            if record.value is not None and record.key != b"~reign":
                try:
                    said = codec.read(topic, record.key, record.value, record.headers)
                except BadRecord:
                    continue
                found[partition, record.offset] = said
    return found


def test_s9_no_name_is_left_anywhere_in_the_file(pair: tuple[Path, Path]) -> None:
    plain, hidden = pair
    name = zebra.NAME.encode()
    signs = (name, name.hex().encode(), name.upper())
    assert sum(name in each for each in inside(plain)) > 500, "there is nothing to hide"
    for each in inside(hidden):
        for sign in signs:
            assert sign not in each, each[:500]
    with open_recording(plain) as bundle:
        boots = {said.boot for said in said_by(bundle, "acks").values()}
    assert boots
    for each in inside(hidden):
        assert not any(b.encode() in each or bytes.fromhex(b) in each for b in boots)


def test_s9_the_same_name_is_the_same_pseudonym_everywhere(pair: tuple[Path, Path]) -> None:
    """Record by record, whatever topic: node and uid are always hidden as the same."""
    plain, hidden = pair
    known: dict[str, str] = {}
    pairs = 0
    with open_recording(plain) as one, open_recording(hidden) as two:
        assert two.manifest.pseudonymised and two.verify()
        for topic in ("samples", "inventory", "commands", "acks", "capacity", "decisions", "slis"):
            before, after = said_by(one, topic), said_by(two, topic)
            assert before.keys() == after.keys()
            for key, said in before.items():
                for name, other in zip(names_in(said), names_in(after[key]), strict=True):
                    assert known.setdefault(name, other) == other
                    pairs += 1
        named = [said.node for said in said_by(one, "samples").values() if hasattr(said, "node")]
        assert one.manifest.cut is not None and two.manifest.cut is not None
        assert two.manifest.cut.nodes == tuple(known[n] for n in one.manifest.cut.nodes)
    assert pairs > 200 and named
    assert len(set(known.values())) == len(known), "two names became one"


def test_the_log_of_the_test_has_all_that_is_hard_to_hide(whole: Path) -> None:
    with open_recording(whole) as bundle:
        commands = said_by(bundle, "commands").values()
        columns = [name for d in said_by(bundle, "decisions").values() for name in d.columns]
        letters = said_by(bundle, "dead-letters").values()
    assert any(getattr(c, "settings", None) and c.settings.pods for c in commands)
    assert any(name.startswith("for zebra/") for name in columns)
    assert {"samples", "acks"} <= {letter.topic for letter in letters}


def names_in(said: Any) -> list[str]:
    found = [said.node] if hasattr(said, "node") else []
    found += getattr(said, "nodes", ())
    if isinstance(said, Inventory):
        return found + [pod.uid for pod in said.pods]
    return found + list(getattr(said, "pods", ()) if hasattr(said, "cause") else ())


def test_s9_a_replay_of_the_hidden_says_what_was_said(pair: tuple[Path, Path]) -> None:
    """Every output, byte for byte; and as many, of the same causes and kinds, as in the open."""
    plain, hidden = pair
    outputs = 0
    with open_recording(plain) as open_, open_recording(hidden) as other:
        assert other.manifest.cut is not None
        for start in other.manifest.cut.starts:
            number = start.partition
            law, topics = refolded(other, number), recorded(other, number, start.at)
            assert within(law, topics) == topics
            assert kinds(topics) == kinds(recorded(open_, number, start.at))
            outputs += len(topics)
    assert outputs > 100


def within(law: Said, topics: Said) -> Said:
    """What the law says of the records that the outputs are about."""
    upto = max(key[2] for key in topics)
    return {key: value for key, value in law.items() if key[2] <= upto}


def kinds(said: Said) -> list[tuple[Any, ...]]:
    return sorted((key[0], key[2], key[4]) for key in said)


def test_the_order_of_names_is_kept_and_the_moments_of_nodes() -> None:
    names = {"b", "a", "node-10", "node-9", "ünode", "zz", "no/name"}
    given = Pseudonyms({NODE: names, UID: names}, {10_000})
    for kind in (NODE, UID):
        hidden = [given(kind, name) for name in sorted(names)]
        assert hidden == sorted(hidden) and len(set(hidden)) == len(names)
    for name in names:
        one, two = crc32(name.encode()), crc32(given(NODE, name).encode())
        assert one % 300_000 == two % 300_000 and one % 10_000 == two % 10_000
        valid = NODE_NAME.fullmatch(name) is not None
        assert (NODE_NAME.fullmatch(given(NODE, name)) is not None) == valid


@settings(max_examples=30)
@given(st.sets(st.text(min_size=1, max_size=20), min_size=1, max_size=30), st.integers(100, 10**8))
def test_checksums_agree_within_any_period(names: set[str], period_ms: int) -> None:
    names = {n for n in names if n.encode("utf-8", "ignore").decode() == n}
    given = Pseudonyms({NODE: names}, {period_ms})
    by = remainder_of({period_ms})
    for name in names:
        assert crc32(name.encode()) % by == crc32(given(NODE, name).encode()) % by


def test_with_a_key_names_are_recognised_across_bundles_and_without_they_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"too short")
    with pytest.raises(BadRecording, match="9 bytes"):
        read_key(path)
    path.write_bytes(b"0123456789abcdef\n")
    key = read_key(path)
    one = Pseudonyms({UID: {"x", "y"}}, set(), key)(UID, "y")
    two = Pseudonyms({UID: {"w", "y", "z"}}, set(), key)(UID, "y")
    assert one.rpartition("-")[2] == two.rpartition("-")[2] != ""
    other = Pseudonyms({UID: {"x", "y"}}, set(), b"another key of 16")(UID, "y")
    assert other.rpartition("-")[2] != one.rpartition("-")[2]
    assert "-" not in Pseudonyms({UID: {"x", "y"}}, set())(UID, "y")


def texts(kind: Any) -> bool:
    """Whether a type holds text of any content; a Literal's words are fixed."""
    if kind is str:
        return True
    if typing.get_origin(kind) is typing.Literal or is_dataclass(kind):
        return False
    return any(texts(each) for each in typing.get_args(kind))


def dataclasses_in(kind: Any) -> Iterator[type[Any]]:
    if is_dataclass(kind):
        assert isinstance(kind, type)
        yield kind
        hints = typing.get_type_hints(kind, include_extras=False)
        for each in fields(kind):
            yield from dataclasses_in(hints[each.name])
    elif not isinstance(kind, types.NoneType):
        for each in typing.get_args(kind):
            yield from dataclasses_in(each)


def test_s9_every_text_of_every_record_is_classified() -> None:
    kinds_ = {k for topic in TOPICS for record in topic.records for k in dataclasses_in(record)}
    assert kinds_ - FIELDS.keys() == set(), "a record that is not in the table of fields"
    for kind in kinds_:
        hints = typing.get_type_hints(kind)
        open_ = {each.name for each in fields(kind) if texts(hints[each.name])}
        assert open_ - FIELDS[kind].keys() == set(), f"{kind.__name__}: is it a name or a word?"
        assert FIELDS[kind].keys() - hints.keys() == set(), f"{kind.__name__}: no such field"
