"""A cut in which no name is a name: what `slackwater record cut --pseudonymise` puts into a file.

Twice over all records: first the names, then the pseudonyms (`streams.recording.naming` says how
they are made, `fields` which texts are names). A replay of the result says what was said, with the
other names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agents.log import LAW_VERSION
from schemas import codec
from schemas.errors import FORGED, BadPolicy, BadRecord
from schemas.policy import Published, published
from schemas.records import Command, DeadLetter, IsolationSettings
from schemas.topics import BY_NAME
from streams import images, intake
from streams.recording import hidden_state
from streams.recording.cut import Chosen
from streams.recording.fields import hidden
from streams.recording.hidden_policy import SPECIAL
from streams.recording.hidden_state import Standing
from streams.recording.hiding import Hiding
from streams.recording.manifest import BadRecording, Cut, Manifest
from streams.recording.naming import DIGEST, NODE, WORKLOAD, Collected, Names, Pseudonyms
from streams.recording.pack import Place
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.side_inputs import decode

PREFIX = "pseudonymised."
LEAST_KEY_BYTES, MOST_KEY_BYTES = 16, 4096
_ISOLATE = b'"decider":"isolate"'
_CUT = "start"
Places = dict[Place, Callable[[], Iterator[Record]]]


def read_key(path: Path) -> bytes:
    """The key of a file, for pseudonyms that are the same in several bundles.

    Raises BadRecording for one that is no secret.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_KEY_BYTES + 1)
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror}") from None
    key = raw.strip()
    if not LEAST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise BadRecording(
            f"{path}: {len(key)} bytes; want {LEAST_KEY_BYTES} to {MOST_KEY_BYTES} that nobody can "
            f"guess: head -c 32 /dev/urandom | base64 > {path}"
        )
    return key


def pseudonymised(source: Source, chosen: Chosen, key: bytes = b"") -> Chosen:
    """The same cut under other names. ``key``: see `Pseudonyms`. Raises BadRecording."""
    collected = Collected()
    first = Hiding(collected)
    states = dict(_states(chosen.places))
    standing = {place: _standing(source, place[1], at) for place, (at, _, _) in states.items()}
    for place, read in chosen.places.items():
        for record in read() if place[0] != "images" else ():
            first.record(record)
    for place, (_, meta, _) in states.items():
        hidden_state.state_of(meta, first)
        for node, settings in standing[place].items():
            collected(NODE, node)
            for each in settings:
                hidden(each, collected, SPECIAL)
    cut = chosen.manifest.cut
    assert cut is not None, "only a cut is pseudonymised"
    for kind, asked in ((NODE, cut.nodes), (WORKLOAD, cut.workloads)):
        for name in asked:
            collected(kind, name)
    for digest in chosen.manifest.policies:
        collected(DIGEST, digest)
    metas = [meta for _, meta, _ in states.values()]
    names = Pseudonyms(collected.found, _periods(first, metas), key)
    hiding = Hiding(names)
    for then, now in (*_digests(first, names), *_image_digests(metas, hiding)):
        names.tell(DIGEST, then, now)
    hiding.letters = _letters(chosen.places, hiding)
    places: Places = {}
    notes = list(chosen.notes)
    for place, read in chosen.places.items():
        if place in states:
            chunks, unknown = _image(states[place], hiding, collected, standing[place], read())
            places[place] = chunks.__iter__
            if unknown:
                notes.append(
                    f"partition {place[1]}: the isolation settings in force on {unknown} nodes "
                    "were said before the recording; replay says them again"
                )
        elif place[0] != "images":
            places[place] = partial(_hidden, hiding, read)
    return Chosen(_manifest(chosen.manifest, cut, names), places, notes)


def _hidden(hiding: Hiding, read: Callable[[], Iterator[Record]]) -> Iterator[Record]:
    for record in read():
        yield hiding.record(record)


State = tuple[int, dict[str, Any], dict[str, Any]]


def _states(places: Places) -> Iterator[tuple[Place, State]]:
    """`at`, meta and arrays of the image of each partition."""
    for place, read in places.items():
        if place[0] == "images":
            found = [images.read_chunk(record.value or b"") for record in read()]
            chunks = {chunk.i: chunk for chunk in found}
            whole = [chunks[i] for i in sorted(chunks)]
            if whole[0].law_version != LAW_VERSION:
                raise BadRecording(
                    f"the images are of law version {whole[0].law_version}, this software knows "
                    f"{LAW_VERSION}: pseudonymise with the software that recorded them"
                )
            meta, arrays = images.contents(whole)
            yield place, (chunks[0].at, meta, arrays)


def _image(
    state: State, hiding: Hiding, collected: Collected, standing: Standing,
    records: Iterable[Record],
) -> tuple[list[Record], int]:  # fmt: skip
    """The records of an image with other names, from the offset of the old one's first chunk."""
    at, meta, arrays = state
    workloads = collected.found[WORKLOAD]
    changed, unknown = hidden_state.arrays_of(meta, arrays, hiding, workloads, standing)
    before = next(iter(records))
    law = images.read_chunk(before.value or b"").law_version
    new = hidden_state.state_of(meta, hiding)
    chunks = images.pack(_CUT, at, meta["incarnation"], new, changed, law)
    return [
        Record(
            "images", before.partition, before.offset + i, before.timestamp,
            f"{_CUT}/{i}".encode(), chunk, tuple(images.HEADERS),
        )
        for i, chunk in enumerate(chunks)
    ], unknown  # fmt: skip


def _standing(source: Source, partition: int, at: int) -> dict[str, list[IsolationSettings]]:
    """The isolation settings that each node was told up to a sample, as far as is recorded."""
    found: dict[str, list[IsolationSettings]] = defaultdict(list)
    for record in source.records("commands", partition):
        if _ISOLATE not in (record.value or b""):
            continue
        try:
            said = codec.decode(Command, record.value or b"")
        except BadRecord:
            continue
        if said.cause.offset > at:
            break
        if said.settings is not None:
            found[said.node] = [*found[said.node], said.settings][-2:]
    return dict(found)


def _periods(first: Hiding, metas: list[dict[str, Any]]) -> set[int]:
    found: set[int] = set()
    for record in first.policies:
        try:
            found |= hidden_state.periods_ms(published(record))
        except BadPolicy:
            continue
    for meta in metas:
        found |= hidden_state.periods_ms(msgspec.convert(meta["published"], Published | None))
    return found


def _digests(first: Hiding, names: Names) -> list[tuple[str, str]]:
    second = Hiding(names)
    second.policies = first.policies
    return list(second.digests())


def _image_digests(metas: list[dict[str, Any]], hiding: Hiding) -> list[tuple[str, str]]:
    return [pair for meta in metas for pair in hidden_state.policy_digests(meta, hiding)]


def _letters(places: Places, hiding: Hiding) -> dict[int, bytes]:
    """Dead letters as they are of the new records: those that replay writes."""
    wanted: dict[Place, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    letters: dict[int, bytes] = {}
    said: dict[int, DeadLetter] = {}
    read = places.get(("dead-letters", 0))
    for record in read() if read is not None else ():
        try:
            letter = codec.decode(DeadLetter, record.value or b"")
        except BadRecord:
            continue
        said[record.offset] = letter
        wanted[letter.topic, letter.partition][letter.offset].append(record.offset)
        letters[record.offset] = codec.encode(_bare(letter))
    for place, offsets in wanted.items():
        for record in places[place]() if place in places else ():
            for number in offsets.get(record.offset, ()):
                new = _letter(said[number], hiding.record(record))
                letters[number] = codec.encode(new)
    return letters


def _bare(letter: DeadLetter) -> DeadLetter:
    """Of a record that the bundle does not hold."""
    return DeadLetter(
        letter.topic if letter.topic in BY_NAME else "withheld", letter.partition, letter.offset,
        letter.reason, "", size_bytes=letter.size_bytes,
    )  # fmt: skip


def _letter(letter: DeadLetter, record: Record) -> DeadLetter:
    error = BadRecord(letter.reason, "")
    if letter.reason not in FORGED:
        try:
            (intake.read if record.topic == "samples" else partial(decode, record.topic))(record)
        except BadRecord as found:
            error = found
    new = intake.dead_letter(record.topic, record, error).record
    assert isinstance(new, DeadLetter), "that is what it makes"
    return new


def _manifest(said: Manifest, cut: Cut, names: Names) -> Manifest:
    nodes = tuple(names(NODE, node) for node in cut.nodes)
    workloads = tuple(names(WORKLOAD, workload) for workload in cut.workloads)
    return msgspec.structs.replace(
        said,
        prefix=PREFIX,
        policies=tuple(sorted(names(DIGEST, digest) for digest in said.policies)),
        cut=msgspec.structs.replace(cut, nodes=nodes, workloads=workloads),
        gaps=tuple(msgspec.structs.replace(gap, why="") for gap in said.gaps),
        pseudonymised=True,
    )
