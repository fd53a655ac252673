"""A bundle folded again from its start, and what it says was said, by the key of each output."""

from __future__ import annotations

from schemas import codec
from streams.recording import Recording
from streams.replay.fold import Fold
from streams.replay.keys import OutputKey, key_of_output, key_of_record
from streams.replay.spoken import places_of
from streams.replay.start import start_of

Said = dict[OutputKey, tuple[bytes, bytes]]


def refolded(bundle: Recording, partition: int) -> Said:
    """Every output of the law."""
    said: Said = {}
    fold = Fold(bundle, partition, start_of(bundle, partition))
    for outputs in fold:
        for output in outputs:
            value = codec.encode(output.record)
            said[key_of_output(output, partition)] = (output.key, value)
    assert not fold.ended, fold.ended
    return said


def recorded(bundle: Recording, partition: int, above: int) -> Said:
    """Every output in the bundle that a record above an offset caused."""
    said: Said = {}
    for topic, number in places_of(partition).items():
        for record in bundle.records(topic, number):
            key = key_of_record(topic, record)
            if key is not None and key.partition == partition and key.offset > above:
                said[key] = (record.key or b"", record.value or b"")
    return said
