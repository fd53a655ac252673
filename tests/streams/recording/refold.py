"""A bundle folded again from its start, and what it says was said, by the key of each output."""

from __future__ import annotations

from typing import Any

import orjson

from schemas import codec, topics
from streams.checker import SAID, _key_of
from streams.recording import Recording
from streams.replay.fold import Fold
from streams.replay.start import start_of

Said = dict[tuple[Any, ...], tuple[bytes, bytes]]


def refolded(bundle: Recording, partition: int) -> Said:
    """Every output of the law."""
    said: Said = {}
    fold = Fold(bundle, partition, start_of(bundle, partition))
    for outputs in fold:
        for output in outputs:
            value = codec.encode(output.record)
            said[_key_of(output.topic, output.key, orjson.loads(value))] = (output.key, value)
    assert not fold.ended, fold.ended
    return said


def recorded(bundle: Recording, partition: int, above: int) -> Said:
    """Every output in the bundle that a record above an offset caused."""
    said: Said = {}
    for topic in SAID:
        number = partition if topics.BY_NAME[topic].partitioned else 0
        for record in bundle.records(topic, number):
            try:
                key = _key_of(topic, record.key or b"", orjson.loads(record.value or b""))
            except (KeyError, orjson.JSONDecodeError):
                continue  # nobody's output
            if topic == "dead-letters" and key[3] != b"samples":
                continue
            if key[1] == partition and key[2] > above:
                said[key] = (record.key or b"", record.value or b"")
    return said
