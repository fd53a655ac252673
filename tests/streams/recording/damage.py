"""Damaged and evil bundles, each from a seed: what travels may have been written by anybody.

Each of `KINDS` changes a good bundle one way. Where a checksum would give it away it is worked out
anew, because who lies can do sums too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from schemas import packed
from streams import images
from streams.recording.manifest import NAME
from streams.recording.segment import SCHEMA, Record, Writer, records_of

HUGE: tuple[Any, ...] = (
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    1.5,
    True,
    None,
    "",
    "x" * 300,
    [],
    {},
)
MIB = 1 << 20
Members = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Good:
    """A good bundle: its bytes, and its members."""

    raw: bytes
    members: Members

    @classmethod
    def read(cls, path: Path) -> Good:
        with zipfile.ZipFile(path) as file:
            return cls(path.read_bytes(), {name: file.read(name) for name in file.namelist()})

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.members[NAME])
        return found


def zipped(members: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> bytes:
    """Stored members, whatever their names."""
    out = io.BytesIO()
    for name, body in members:
        raw = name.encode("utf-8", "surrogateescape")
        out.write(header(raw, body) + raw + body)
    out.write(b"PK\x05\x06" + bytes(18))
    return out.getvalue()


def header(name: bytes, body: bytes, **changed: int) -> bytes:
    """A local header; ``changed``: fields by name."""
    said = {
        "version": 20, "flags": 0, "method": 0, "time": 0, "date": 33, "crc": crc32(body),
        "packed": len(body), "size": len(body), "names": len(name), "extra": 0,
    } | changed  # fmt: skip
    return struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *said.values())


def with_manifest(good: Good, said: Any, members: Members | None = None) -> bytes:
    """A bundle of another manifest, its checksum right."""
    raw = said if isinstance(said, bytes) else json.dumps(said).encode()
    rest = good.members if members is None else members
    return zipped([(NAME, raw), *((k, v) for k, v in rest.items() if k != NAME)])


def with_segment(good: Good, name: str, body: bytes, **said: Any) -> bytes:
    """A bundle in which one segment is another, and the manifest says so."""
    manifest = good.manifest()
    for each in manifest["segments"]:
        if path_of(each) == name:
            each.update(size_bytes=len(body), sha256=hashlib.sha256(body).hexdigest(), **said)
    return with_manifest(good, manifest, good.members | {name: body})


def path_of(segment: dict[str, Any]) -> str:
    return f"{segment['topic']}/{segment['partition']}/{segment['first']:020d}.parquet"


def records_in(good: Good, name: str) -> list[Record]:
    topic, partition, _ = name.split("/")
    return [
        record
        for batch in pq.ParquetFile(io.BytesIO(good.members[name])).iter_batches()
        for record in records_of(batch, topic, int(partition))
    ]


def with_records(good: Good, name: str, records: list[Record]) -> bytes:
    """A bundle in which one segment holds these records."""
    topic, partition, _ = name.split("/")
    file = io.BytesIO()
    writer = Writer(topic, int(partition), file)
    writer.write(records)
    writer.close()
    return with_segment(good, name, file.getvalue(), records=len(records))


def some_segment(good: Good, dice: Random, topic: str = "") -> str:
    return dice.choice([n for n in good.members if n != NAME and n.startswith(topic)])


def flips(good: Good, dice: Random) -> bytes:
    raw = bytearray(good.raw)
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    return bytes(raw)


def truncated(good: Good, dice: Random) -> bytes:
    return good.raw[: dice.randrange(len(good.raw))]


def garbled(good: Good, dice: Random) -> bytes:
    """A piece that is elsewhere, missing or noise."""
    raw, at = bytearray(good.raw), dice.randrange(len(good.raw))
    size = dice.randrange(1, 4_000)
    kind = dice.randrange(3)
    if kind == 0:
        raw[at : at + size] = dice.randbytes(size)
    elif kind == 1:
        del raw[at : at + size]
    else:
        raw[at:at] = raw[:size]
    return bytes(raw)


def swapped(good: Good, dice: Random) -> bytes:
    """Members under each other's names, in another order, twice or not at all."""
    names = list(good.members)
    one, two = dice.choice(names), dice.choice(names)
    members = dict(good.members)
    members[one], members[two] = members[two], members[one]
    pairs = list(members.items())
    kind = dice.randrange(4)
    if kind == 1:
        dice.shuffle(pairs)
    elif kind == 2:
        pairs.insert(dice.randrange(len(pairs)), dice.choice(pairs))
    elif kind == 3:
        del pairs[dice.randrange(len(pairs))]
    return zipped(pairs)


def names(good: Good, dice: Random) -> bytes:
    """Members whose names lead elsewhere."""
    way = dice.choice((
        "../evil", "/etc/evil", "..\\evil", "samples/../../evil", "C:\\evil", "samples/0/",
        "evil\0", "\u202eevil", "MANIFEST.JSON", "manifest.json/", "./manifest.json", "x" * 60_000,
        "samples/0/../0/00000000000000000000.parquet", "\udcff", "",
    ))  # fmt: skip
    pairs = list(good.members.items())
    pairs.insert(dice.choice((0, 1, len(pairs))), (way, b"evil" * 10))
    if dice.random() < 0.5:
        at = dice.randrange(len(pairs))
        pairs[at] = (way, pairs[at][1])
    return zipped(pairs)


def headers(good: Good, dice: Random) -> bytes:
    """A member whose header says what is not so: compressed, encrypted, zip64, of another size."""
    field, value = dice.choice((
        ("flags", 1), ("flags", 8), ("flags", 0xFFFF), ("method", 8), ("method", 93),
        ("method", 14), ("size", 0xFFFFFFFF), ("packed", 0xFFFFFFFF), ("size", 0), ("packed", 0),
        ("size", 2**31), ("packed", 2**31), ("names", 0xFFFF), ("extra", 0xFFFF), ("crc", 0),
        ("names", 0), ("packed", 30), ("size", 5), ("version", 45),
    ))  # fmt: skip
    chosen = dice.choice(list(good.members))
    out = b""
    for name, body in good.members.items():
        changed = {field: value} if name == chosen else {}
        out += header(name.encode(), body, **changed) + name.encode() + body
    return out


def bombs(good: Good, dice: Random) -> bytes:
    """Members that are compressed as zip knows it, gigabytes of zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in good.members.items():
            bomb = name == NAME or dice.random() < 0.5
            file.writestr(name, bytes(dice.choice((1, 4)) * MIB) if bomb else body)
    return out.getvalue()


def lies(good: Good, dice: Random) -> bytes:
    """A manifest of wrong figures, under a right checksum."""
    said = good.manifest()
    for _ in range(dice.choice((1, 1, 1, 3))):
        segments = said.get("segments")
        where = said
        if isinstance(segments, list) and segments and isinstance(segments[0], dict):
            where = dice.choice(segments) if dice.random() < 0.7 else said
        key = dice.choice(list(where))
        value = dice.choice(HUGE)
        if isinstance(where[key], int) and dice.random() < 0.5:
            value = where[key] + dice.choice((-1, 1, 1000, -1000))
        if key in ("topic", "sha256") and dice.random() < 0.5:
            value = dice.choice(("../../etc", "images", "samples", "SAMPLES", "acks\n", "0" * 64))
        where[key] = value
    return with_manifest(good, said)


def broken_json(good: Good, dice: Random) -> bytes:
    """A manifest that is none, or one made to choke on."""
    text = good.members[NAME]
    kind = dice.randrange(8)
    said = [
        b"[" * dice.choice((1_000, 200_000)),
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        text[: dice.randrange(len(text))],
        text.replace(b'"kind"', b'"kind":"\xff\xfe","x"', 1),
        b'{"format": ' + b"9" * dice.choice((5, 400, 100_000)) + b"}",
        b"null", text + text,
        text.replace(b'"segments": [', b'"segments": [' + b"{}," * 1000, 1),
    ][kind]  # fmt: skip
    return with_manifest(good, said)


def many(good: Good, dice: Random) -> bytes:
    """A manifest of very many segments, or of the same ones over and over."""
    said = good.manifest()
    one = dice.choice(said["segments"])
    said["segments"] += [
        {**one, "first": one["first"] + i * dice.choice((0, 1)), "last": one["last"] + i}
        for i in range(dice.choice((10, 3_000)))
    ]
    return with_manifest(good, said)


def parquet_flips(good: Good, dice: Random) -> bytes:
    """A segment that is damaged inside, and whose checksum was worked out anew."""
    name = some_segment(good, dice)
    raw = bytearray(good.members[name])
    footer = int.from_bytes(raw[-8:-4], "little")
    low = len(raw) - 8 - footer if dice.random() < 0.6 else 0
    for _ in range(dice.choice((1, 1, 2, 5))):
        raw[dice.randrange(low, len(raw))] = dice.randrange(256)
    return with_segment(good, name, bytes(raw))


def parquet_noise(good: Good, dice: Random) -> bytes:
    name = some_segment(good, dice)
    raw = good.members[name]
    return with_segment(good, name, dice.choice((
        b"", b"PAR1", b"PAR1" + dice.randbytes(200) + b"PAR1", raw[:-4], raw[: len(raw) // 2],
        raw[:-8] + b"\xff\xff\xff\x7fPAR1", b"PARE" + raw[4:-4] + b"PARE", dice.randbytes(500),
    )))  # fmt: skip


def other_columns(good: Good, dice: Random) -> bytes:
    """A Parquet file as anybody may write it: other columns, types, encodings."""
    name = some_segment(good, dice)
    table = pq.read_table(io.BytesIO(good.members[name]))
    out = io.BytesIO()
    kind = dice.randrange(6)
    options: dict[str, Any] = {}
    if kind == 0:
        table = table.drop_columns([dice.choice(table.column_names)])
    elif kind == 1:
        table = table.append_column("more", pa.array([1] * len(table)))
    elif kind == 2:
        table = table.set_column(0, "offset", table["offset"].cast(pa.float64()))
    elif kind == 3:
        options = {"compression": dice.choice(("gzip", "snappy", "none", "brotli", "lz4"))}
    elif kind == 4:
        options = {"use_dictionary": True}
    else:
        options = {
            "use_dictionary": False,
            "column_encoding": {
                "value": dice.choice(("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"))
            },
        }
    if dice.random() < 0.2:
        options["data_page_version"] = "2.0"
    pq.write_table(table, out, **options)
    return with_segment(good, name, out.getvalue())


def page_bombs(good: Good, dice: Random) -> bytes:
    """A segment of a few kilobytes whose columns unpack to gigabytes."""
    name = some_segment(good, dice)
    first = int(Path(name).stem)
    rows, body = page_bomb(dice.randrange(3), first)
    return with_segment(good, name, body, records=rows, last=first + rows - 1)


@lru_cache
def page_bomb(kind: int, first: int) -> tuple[int, bytes]:
    """Rows and a file: values that are large, that share one large one, very many headers."""
    rows = (150, 1_000, 1)[kind]
    value = bytes(2 * MIB) if kind < 2 else b"x"
    heads = [[{"name": "", "value": None}] * 1_000_000] if kind == 2 else [None] * rows
    values: Any = pa.array([value] * rows, pa.binary()) if kind != 1 else None
    options: dict[str, Any] = {"use_dictionary": False}
    if kind == 1:
        values = pa.DictionaryArray.from_arrays(
            pa.array([0] * rows, pa.int32()), pa.array([value], pa.binary())
        )
        options = {"use_dictionary": ["value"], "dictionary_pagesize_limit": 8 * MIB}
    columns = [
        pa.array(range(first, first + rows), pa.int64()), pa.array([1] * rows, pa.int64()),
        pa.array([b"k"] * rows, pa.binary()), values, pa.array([b"json"] * rows, pa.binary()),
        pa.array([b"1"] * rows, pa.binary()), pa.array(heads, SCHEMA.field("headers").type),
    ]  # fmt: skip
    schema = pa.schema([SCHEMA.field(i).with_type(c.type) for i, c in enumerate(columns)])
    out = io.BytesIO()
    table = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(table, out, compression="zstd", store_schema=False, **options)
    return rows, out.getvalue()


def evil_records(good: Good, dice: Random) -> bytes:
    """Sound segments of records that no component of ours would say."""
    name = some_segment(good, dice)
    records = records_in(good, name)
    for _ in range(dice.choice((1, 3, 10))):
        record = dice.choice(records)
        record.value = _evil(record, dice)
        if dice.random() < 0.2:
            record.key = dice.choice((None, b"", b"\xff\xfe", b"x" * 70_000, b"~lease", b"a/b/c/d"))
        if dice.random() < 0.2:
            record.headers = dice.choice((
                (), (("enc", b"json"),), (("enc", b"x" * 99), ("v", b"1")), (("v", b"9" * 40),),
                (("enc", b"packed"), ("v", b"1")), (("enc", b"tick"), ("v", b"1")),
                (("enc", b""), ("v", b"")), tuple(("h", b"") for _ in range(50)),
            ))  # fmt: skip
        if dice.random() < 0.1:
            record.timestamp = dice.choice((-1, 0, 2**62, 10**15))
    return with_records(good, name, records)


def _evil(record: Record, dice: Random) -> bytes | None:
    raw = record.value or b""
    if raw[:1] != b"{":
        changed = bytearray(raw or b"\0")
        at = dice.randrange(len(changed))
        changed[at] = dice.randrange(256)
        if raw[:4] == packed.MAGIC:
            changed[8:12] = struct.pack("<I", crc32(memoryview(changed)[12:]))
        return bytes(changed)
    kind = dice.randrange(7)
    if kind < 4:
        try:
            said = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return b"{}"  # it was made evil before
        if not isinstance(said, dict) or not said:
            return b"[{}]"
        _lie(said, dice)
        return json.dumps(said).encode()
    return [None, b'{"a":' * 2_000 + b"1", b"[" * 100_000][kind - 4]


def _lie(said: dict[str, Any], dice: Random) -> None:
    key = dice.choice(list(said))
    if isinstance(said[key], dict) and said[key] and dice.random() < 0.7:
        _lie(said[key], dice)
    elif isinstance(said[key], list) and said[key] and isinstance(said[key][0], dict):
        _lie(dice.choice(said[key]), dice)
    else:
        said[key] = dice.choice((*HUGE, 2**62, -(2**62), [2**62] * 3, ["x"] * 500, "\u202e", "a/b"))


def evil_offsets(good: Good, dice: Random) -> bytes:
    """Records whose offsets or times are not those of their segment."""
    name = some_segment(good, dice)
    table = pq.read_table(io.BytesIO(good.members[name]), schema=SCHEMA)
    column = dice.choice(("offset", "log_ms"))
    values = table[column].to_pylist()
    values[dice.randrange(len(values))] = dice.choice((-1, 0, 2**62, -(2**63), values[0], 10**17))
    at = table.column_names.index(column)
    table = table.set_column(at, SCHEMA.field(at), pa.array(values, pa.int64()))
    out = io.BytesIO()
    pq.write_table(
        table, out, compression="zstd", use_dictionary=["enc", "v"], row_group_size=4_000
    )
    return with_segment(good, name, out.getvalue())


def evil_images(good: Good, dice: Random) -> bytes:
    """Images that unpack to too much, or to a state that is none."""
    name = some_segment(good, dice, "images/")
    records = records_in(good, name)
    chunk = images.read_chunk(records[0].value or b"")
    meta, arrays = images.contents([chunk]) if chunk.n == 1 else ({}, {})
    kind = dice.randrange(6)
    said: dict[str, Any] = dict(meta)
    if kind == 0:
        value = _chunk(chunk, zeros(dice.choice((64, 1_100))))
    elif kind == 1:
        value = _chunk(chunk, _frame({"meta": meta, "arrays": _listing(arrays, dice)}))
    elif kind == 2:
        value = _chunk(chunk, dice.choice((b"", b"\0" * 9, zstd.compress(b"\xff" * 9))))
    elif kind == 3:
        _lie(said, dice)
        try:
            value = images.pack(chunk.cut, chunk.at, chunk.incarnation, said, arrays)[0]
        except TypeError:  # more than 64 bits
            value = _chunk(chunk, _frame({"meta": said, "arrays": []}))
    elif kind == 4:
        key = dice.choice(list(arrays))
        shape = dice.choice(((0,), (3,), (2, 2), (100, 9)))
        evil = arrays | {key: np.full(shape, dice.choice((-1, 2**62)), dtype=np.int64)}
        value = images.pack(chunk.cut, chunk.at, chunk.incarnation, said, evil)[0]
    else:
        value = _chunk(chunk, chunk.payload, **{dice.choice(("i", "n", "at")): dice.choice(HUGE)})
    for record in records:
        record.value = value
    return with_records(good, name, records)


@lru_cache
def zeros(mib: int) -> bytes:
    """A frame that unpacks to so much."""
    packer, block = zstd.ZstdCompressor(level=1), bytes(MIB)
    return b"".join([*(packer.compress(block) for _ in range(mib)), packer.flush()])


def _listing(arrays: dict[str, Any], dice: Random) -> list[Any]:
    evil = dice.choice((
        ["<i8", [2**40], 0], ["O", [1], 0], ["<i8", [-1], 0], ["V999999999", [1], 0], [1, 2, 3],
        ["<i8,(9,)f4", [1], 0], ["<f4", ["x"], 0], ["<i8", [2**31, 2**31, 2**31], 0], [], ["<i8"],
        ["<i8", [1], -8], ["<i8", [1], 2**70],
    ))  # fmt: skip
    return [[name, *evil] for name in arrays]


def _frame(said: Any) -> bytes:
    raw = json.dumps(said).encode()
    return zstd.compress(struct.pack("<I", len(raw)) + raw + bytes(4_000), level=1)


def _chunk(like: images.Chunk, payload: bytes, **changed: Any) -> bytes:
    said = {
        "cut": like.cut, "i": 0, "n": 1, "at": like.at, "incarnation": like.incarnation,
        "law_version": like.law_version, "crc32": crc32(payload),
        "whole": hashlib.sha256(payload).hexdigest(),
    } | changed  # fmt: skip
    head = json.dumps(said).encode()
    return b"".join([images.MAGIC, struct.pack("<I", len(head)), head, payload])


KINDS: tuple[Callable[[Good, Random], bytes], ...] = (
    flips, truncated, garbled, swapped, names, headers, bombs, lies, broken_json, many,
    parquet_flips, parquet_noise, other_columns, page_bombs, evil_records, evil_offsets,
    evil_images,
)  # fmt: skip
OFTEN = (flips, truncated, lies, parquet_flips, evil_records)


def damaged(good: Good, seed: int) -> tuple[str, bytes]:
    """The kind and the bytes of one damaged bundle; each kind in turn, then the common ones."""
    kinds = (*KINDS, *OFTEN)
    kind = kinds[seed % len(kinds)]
    return kind.__name__, kind(good, Random(seed))


def folder(good: Good, root: Path, dice: Random, outside: Path) -> str:
    """A recording with something in it that leads out of it or never ends; says what."""
    said = good.manifest()
    segments = said.pop("segments")
    (root / NAME).write_text(json.dumps({**said, "kind": "recording", "segments": []}))
    for each in segments:
        path = root / path_of(each)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(good.members[path_of(each)])
        with (path.parent / "segments.jsonl").open("a") as file:
            file.write(json.dumps(each) + "\n")
    victim = root / path_of(dice.choice(segments))
    kind = dice.choice(("link", "pipe", "folder", "journal", "way", "manifest", "noise"))
    if kind == "link":
        victim.rename(outside / "segment")
        victim.symlink_to(outside / "segment")
    elif kind == "pipe":
        victim.unlink()
        os.mkfifo(victim)
    elif kind == "folder":
        victim.unlink()
        victim.mkdir()
    elif kind == "journal":
        journal = victim.parent / "segments.jsonl"
        journal.unlink()
        dice.choice((os.mkfifo, lambda p: p.symlink_to("/dev/zero")))(journal)
    elif kind == "way":
        victim.parent.rename(outside / "place")
        victim.parent.symlink_to(outside / "place")
    elif kind == "manifest":
        (root / NAME).unlink()
        dice.choice((os.mkfifo, lambda p: p.symlink_to("/dev/zero")))(root / NAME)
    else:
        (victim.parent / "segments.jsonl").write_bytes(dice.randbytes(999) + b"\n")
    return kind
