"""Who was not believed then is not believed now: refusals by signature, from the dead letters.

Keys do not travel with a recording; what the workers could not verify, they said.
"""

from __future__ import annotations

from collections import defaultdict

from schemas import codec
from schemas.errors import FORGED, BadRecord
from schemas.records import DeadLetter
from streams.recording.source import Source

Refusals = dict[tuple[str, int], dict[int, tuple[str, str]]]
"""(topic, partition) -> offset -> reason and detail."""


def refusals_of(source: Source) -> Refusals:
    """Every record that was refused for its signature."""
    found: Refusals = defaultdict(dict)
    for record in source.records("dead-letters", 0):
        try:
            letter = codec.decode(DeadLetter, record.value or b"")
        except BadRecord:
            continue  # nobody's letter
        if letter.reason in FORGED:
            found[letter.topic, letter.partition][letter.offset] = (letter.reason, letter.detail)
    return dict(found)
