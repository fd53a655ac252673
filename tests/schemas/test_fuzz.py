"""r8: whatever bytes come in, only `BadRecord` comes out, and memory stays bounded.

Seeded, so that a failure is found again; the counts are in the asserts.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from schemas import codec, packed
from schemas.columns import COLUMNS
from schemas.errors import REASONS, BadRecord
from schemas.topics import MINUTES, TOPICS
from tests.schemas.examples import EXAMPLES, SAMPLE
from tests.schemas.test_codec import sealed, with_column

NODE = SAMPLE.node.encode()
INTERESTING = (0, 1, 2, 7, 63, 64, 65, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
SEEDS = tuple(
    packed.encode(sample)
    for sample in (
        SAMPLE,
        replace(SAMPLE, pods=0, node_columns={}, pod_columns={}),
        replace(SAMPLE, pods=65, pod_columns={"cpu_usage_us": [None, *range(64)]}),
        replace(SAMPLE, pods=1, pod_columns={c.name: [5] for c in COLUMNS if c.scope == "pod"}),
    )
)
Check = Callable[[bytes], Any]


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """A few of: bit flip, byte, number, cut, doubled piece, piece removed, noise inserted."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        span = rng.randrange(1, 24)
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                struct_at = rng.choice((4, 12, 14, 48, 56, 72, 76, 80, 84, at))
                data[struct_at : struct_at + 4] = struct.pack("<I", rng.choice(INTERESTING))
            case 3:
                del data[at:]
            case 4:
                data[at:at] = data[at : at + span]
            case 5:
                del data[at : at + span]
            case _:
                data[at:at] = rng.randbytes(span)
    return bytes(data)


def outcome(check: Check, raw: bytes) -> str:
    """ "" when it was read, or the reason why not; anything else escapes and fails the test."""
    try:
        check(raw)
    except BadRecord as error:
        return REASONS[REASONS.index(error.reason)]
    return ""


def parse(enc: bytes, raw: bytes) -> None:
    codec.parse_sample(raw, NODE, enc)


parse_packed = partial(parse, codec.ENC_PACKED)


def read(topic: str, key: bytes | None, headers: codec.Headers | None, raw: bytes) -> None:
    codec.read(topic, key, raw, headers)


def test_r8_packed_samples_with_a_broken_seal() -> None:
    rng = random.Random(1)
    outcomes = [outcome(parse_packed, mutated(rng, rng.choice(SEEDS))) for _ in range(100_000)]
    assert outcomes.count("checksum") + outcomes.count("broken_packed") > 90_000


def test_r8_packed_samples_with_the_seal_made_right() -> None:
    """Length and checksum are repaired, so that every later check is reached."""
    rng = random.Random(2)
    seen: dict[str, int] = {}
    for _ in range(80_000):
        raw = mutated(rng, rng.choice(SEEDS))
        if len(raw) >= 12:
            raw = sealed(b"SWS1" + raw[4:])
        for check in (parse_packed, packed.decode):
            reason = outcome(check, raw)
            seen[reason] = seen.get(reason, 0) + 1
    assert {"", "broken_packed", "unknown_version", "wrong_type", "key_mismatch"} <= seen.keys()
    assert "checksum" not in seen


def test_r8_json_of_every_topic() -> None:
    rng = random.Random(3)
    raws = {type(example): codec.encode(example) for example in EXAMPLES}
    places = [
        (topic.name, raws[kind], codec.TICK_HEADERS if kind.__name__ == "Tick" else headers)
        for topic in TOPICS
        for kind in topic.records
        for headers in (codec.JSON_HEADERS, None if topic.name == MINUTES else codec.JSON_HEADERS)
    ]
    seen: set[str] = set()
    for _ in range(40_000):
        topic, raw, headers = rng.choice(places)
        key = rng.choice((NODE, b"fleet", b"installation", b"~lease", b"", None))
        bad = mutated_text(rng, raw)
        seen.add(outcome(partial(read, topic, key, headers), bad))
    assert {"", "broken_json", "missing_field", "wrong_type"} <= seen


def test_r8_json_samples() -> None:
    rng = random.Random(4)
    raw = codec.encode(SAMPLE)
    seen = {outcome(partial(parse, codec.ENC_JSON), mutated_text(rng, raw)) for _ in range(20_000)}
    assert {"", "broken_json", "missing_field", "wrong_type", "key_mismatch"} <= seen


def mutated_text(rng: random.Random, raw: bytes) -> bytes:
    """JSON with a token exchanged, or bytes mutated like packed ones."""
    if rng.random() < 0.5:
        return mutated(rng, raw)
    tokens = (
        b"null",
        b"-1",
        b"1e308",
        b"NaN",
        b"18446744073709551616",
        b'""',
        b"[]",
        b"{}",
        b"0.5",
    )
    pieces = raw.split(b",")
    at = rng.randrange(len(pieces))
    name, colon, _ = pieces[at].partition(b":")
    pieces[at] = name + colon + rng.choice(tokens) if colon else rng.choice(tokens)
    return b",".join(pieces)


@pytest.mark.parametrize("raw", SEEDS)
def test_every_truncation_is_refused(raw: bytes) -> None:
    for size in range(len(raw)):
        assert outcome(parse_packed, raw[:size]) == "broken_packed"
        if size >= packed._HEAD.size:
            assert outcome(parse_packed, sealed(raw[:size])) in {"broken_packed", "key_mismatch"}


def test_lengths_and_counts_that_lie() -> None:
    raw = packed.encode(SAMPLE)
    assert outcome(parse_packed, raw + b"\0" * 8) == "broken_packed"
    assert outcome(parse_packed, sealed(raw + b"\0" * 8)) == "broken_packed"
    for at in (14, 80, 84):  # length of the name, pods, columns
        for lie in (2**16 - 1, 2**31, 2**32 - 1):
            size = 2 if at == 14 else 4
            number = (lie % 2 ** (8 * size)).to_bytes(size, "little")
            bad = sealed(raw[:at] + number + raw[at + size :])
            assert outcome(parse_packed, bad) == "broken_packed"


def test_a_count_that_overflows_is_refused() -> None:
    raw = packed.encode(SAMPLE)
    with_unknown = with_column(raw, 0, 999, 0, [1])
    at = with_unknown.index(packed._ROW.pack(999, 0, 1))
    for count in (0, 2, 2**31, 2**32 - 1):
        lie = packed._ROW.pack(999, 0, count)
        bad = sealed(with_unknown[:at] + lie + with_unknown[at + 8 :])
        assert outcome(parse_packed, bad) == "broken_packed"


def test_unknown_flags_and_columns_written_twice_are_refused() -> None:
    raw = packed.encode(SAMPLE)
    assert outcome(parse_packed, with_column(raw, 0, 999, 2, [1])) == "broken_packed"
    assert outcome(parse_packed, with_column(raw, 0, 3, 0, [1])) == "broken_packed"
    twice = with_column(with_column(raw, 0, 999, 0, [1]), 0, 999, 0, [1])
    assert outcome(parse_packed, twice) == "broken_packed"
    assert outcome(parse_packed, with_column(raw, 0, 1, 0, [1, 2])) == "broken_packed"


def test_two_mebibytes_are_refused_before_they_are_read() -> None:
    raw = sealed(SEEDS[0] + b"\0" * 2 * 1024 * 1024)
    for enc in (codec.ENC_PACKED, codec.ENC_JSON):
        tracemalloc.start()
        reason = outcome(partial(parse, enc), raw)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert reason == "too_large"
        assert peak < 64 * 1024


def test_r12_layouts_of_a_liar_do_not_fill_memory() -> None:
    """Each sample announces other unknown columns; what is remembered of them stays bounded."""
    empty = packed.encode(replace(SAMPLE, pods=0, node_columns={}, pod_columns={}))
    head = bytearray(empty)
    head[84:88] = packed.MAX_COLUMNS.to_bytes(4, "little")
    for turn in range(5_000):
        ids = range(1000 + turn, 1000 + turn + packed.MAX_COLUMNS)
        rows = b"".join(packed._ROW.pack(column_id, 0, 0) for column_id in ids)
        assert outcome(parse_packed, sealed(bytes(head) + rows)) == ""
    held = sum(len(layout) for layout, _ in packed._words_cache)
    packed._words_cache.clear()
    assert held <= 16 * 1024 * 1024
    head[84:88] = (packed.MAX_COLUMNS + 1).to_bytes(4, "little")
    rows = b"".join(packed._ROW.pack(1000 + i, 0, 0) for i in range(packed.MAX_COLUMNS + 1))
    assert outcome(parse_packed, sealed(bytes(head) + rows)) == "broken_packed"
