"""r14: what went out once stays readable, and the bytes do not change unnoticed."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest

from schemas import codec, packed
from schemas.errors import BadRecord
from schemas.generate import record_types
from schemas.records import NodeSample
from tests.schemas.examples import EXAMPLES, SAMPLE, current, generations

ADD = "the bytes differ: if that is meant, `python -m tests.schemas.examples` adds a generation"


def name_of(example: Any) -> str:
    return type(example).__name__


def test_every_record_of_the_table_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(record_types())
    assert len(EXAMPLES) == len(record_types())


@pytest.mark.parametrize("stem", current())
def test_bytes_are_those_of_the_newest_golden_file(stem: str) -> None:
    known = generations(stem)
    assert known, f"no golden file of {stem}: `python -m tests.schemas.examples` writes it"
    assert current()[stem] == known[-1], ADD


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_generation_is_readable_and_what_it_lacks_is_defaulted(example: Any) -> None:
    for text in generations(name_of(example)):
        said = orjson.loads(text)
        read = codec.decode(type(example), text.encode())
        for field in dataclasses.fields(example):
            got = getattr(read, field.name)
            if field.name in said:
                assert got == getattr(example, field.name)
            else:
                assert got == default_of(field)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_fields_of_a_newer_neighbour_are_ignored(example: Any) -> None:
    newer = orjson.loads(codec.encode(example)) | {"not_yet": {"deep": [1]}, "zz": None}
    assert codec.decode(type(example), orjson.dumps(newer)) == example


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_fields_that_an_older_neighbour_lacks_are_defaulted_or_named(example: Any) -> None:
    whole = orjson.loads(codec.encode(example))
    for field in dataclasses.fields(example):
        raw = orjson.dumps({name: value for name, value in whole.items() if name != field.name})
        if default_of(field) is dataclasses.MISSING:
            with pytest.raises(BadRecord) as refused:
                codec.decode(type(example), raw)
            assert refused.value.reason == "missing_field"
            assert field.name in refused.value.detail
        else:
            read = codec.decode(type(example), raw)
            expected = dataclasses.replace(example, **{field.name: default_of(field)})
            assert read == expected


def test_every_packed_generation_is_readable() -> None:
    for text in generations("packed"):
        sample = packed.decode(bytes.fromhex(text))
        known = {name: SAMPLE.node_columns[name] for name in sample.node_columns}
        pods = {name: SAMPLE.pod_columns[name] for name in sample.pod_columns}
        assert sample == dataclasses.replace(SAMPLE, node_columns=known, pod_columns=pods)
        assert known
        assert pods


def test_packed_and_json_say_the_same() -> None:
    from_json = codec.decode(NodeSample, codec.encode(SAMPLE))
    assert packed.decode(packed.encode(SAMPLE)) == from_json == SAMPLE


def test_the_packed_header_is_where_the_layout_says() -> None:
    raw = packed.encode(SAMPLE)
    assert raw[:4] == b"SWS1"
    assert int.from_bytes(raw[4:8], "little") == len(raw)
    assert raw[16:32].hex() == SAMPLE.boot
    assert raw[32:48].hex() == SAMPLE.kernel_boot
    numbers = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in (48, 56, 64)]
    assert numbers == [SAMPLE.seq, SAMPLE.mono_us, SAMPLE.wall_ms]
    small = [int.from_bytes(raw[at : at + 4], "little") for at in (72, 76, 80, 84)]
    columns = len(SAMPLE.node_columns) + len(SAMPLE.pod_columns)
    assert small == [SAMPLE.period_ms, SAMPLE.pods_rev, SAMPLE.pods, columns]
    assert raw[88:104] == b"node-0001" + bytes(7)


def test_fifty_pods_fit_three_kibibytes() -> None:
    columns: dict[str, list[int | None]]
    columns = {name: list(range(50)) for name in SAMPLE.pod_columns}
    assert len(packed.encode(dataclasses.replace(SAMPLE, pods=50, pod_columns=columns))) <= 3072


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
