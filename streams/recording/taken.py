"""The records that belong to the spans of a cut, topic by topic.

Called by `streams.recording.cut`. Nothing is held but offsets: a place is read again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from schemas import codec, topics
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import published
from schemas.records import PolicyRecord
from streams.recording.pack import Place
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.recording.spans import Span, above, side_label

EARLY_MS = 5_000
"""Brokers stamp records by clocks of their own, which differ by less."""
LATE_MS = 900_000
"""What a sample caused is said by then, whoever had to fold it again first."""
OUTPUTS = ("commands", "capacity", "reservations", "signals", "decisions")
BESIDE = ("evictions", "jobs")
"""Said by others in the time, and admitted by no tick."""
STANDING = ("inventory", "policies", "fleet", "ledger", "capacity")
"""The newest of each key from before the start goes along: what stood when it began."""
Keep = Callable[[Record], bool]


class _Origin(msgspec.Struct):
    partition: int
    offset: int


class _Caused(msgspec.Struct):
    cause: _Origin


class _OfNode(msgspec.Struct):
    node: str = ""


class _Letter(msgspec.Struct):
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Pick:
    """Records of one place: those ``before``, and in (above, upto] or until ``until_ms``."""

    source: Source
    place: Place
    above: int
    upto: int = -1
    until_ms: int = -1
    keep: Keep = lambda _: True
    before: frozenset[int] = frozenset()

    def __call__(self) -> Iterator[Record]:
        """In offset order."""
        if self.before:
            highest = max(self.before)
            for record in self.source.records(*self.place, min(self.before) - 1, highest):
                if record.offset in self.before:
                    yield record
        for record in self.source.records(*self.place, self.above):
            if record.offset > self.upto and record.timestamp > self.until_ms:
                return
            if record.offset not in self.before and self.keep(record):
                yield record


@dataclass(slots=True)
class Taken:
    """``bounds``: offsets (above, last) looked at in each place; ``policies``: digests."""

    places: dict[Place, Callable[[], Iterator[Record]]] = field(default_factory=dict)
    bounds: dict[Place, tuple[int, int]] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)

    def put(self, pick: Pick) -> None:
        """Take a place into the bundle, unless nothing of it fits."""
        last = -1
        for record in pick():
            last = max(last, record.offset)
            if pick.place[0] == "policies":
                self.policies |= _digest(record)
        if last >= 0:
            self.places[pick.place] = pick
            self.bounds[pick.place] = pick.above, max(last, pick.upto)


def taken_of(source: Source, spans: list[Span]) -> Taken:
    """All that belongs to these spans."""
    taken = Taken()
    for span in spans:
        place = ("samples", span.partition)
        taken.put(Pick(source, place, span.begin, span.last))
        if span.image is not None:
            chunks = frozenset(span.image.chunks.values())
            taken.put(Pick(source, ("images", span.partition), 1 << 62, before=chunks))
        for topic in OUTPUTS:
            taken.put(_output(source, topic, span))
    everything = len(spans) == len(source.partitions())
    nodes = {node.decode("utf-8", "replace") for span in spans for node in span.nodes}
    for topic, number in _places(source):
        mine = [span for span in spans if side_label(topic, span.partition)[1] == number]
        if topic in topics.SIDE_TOPICS and mine:
            taken.put(_side(source, (topic, number), mine))
        elif topic == "jobs" or (topic in BESIDE and mine):
            keep = (lambda _: True) if everything else partial(_of_nodes, nodes)
            taken.put(_beside(source, (topic, number), spans, keep))
        elif topic == "dead-letters":
            keep = partial(_letter_of, {span.partition: span for span in spans})
            taken.put(_beside(source, (topic, number), spans, keep))
    return taken


def _places(source: Source) -> Iterator[Place]:
    for topic in topics.BY_NAME:
        for number in source.partitions(topic):
            yield topic, number


def _output(source: Source, topic: str, span: Span) -> Pick:
    """What the span's records caused, and what stood before."""
    place = (topic, span.partition)
    begin = above(source, *place, span.first_ms - EARLY_MS)
    until_ms = span.last_ms + LATE_MS
    before: dict[bytes | None, int] = {}
    if topic in STANDING:
        for record in source.records(*place):
            origin = _origin(record)
            if record.timestamp > until_ms:
                break
            if record.value is None:
                before.pop(record.key, None)
            elif origin is not None and origin.offset <= span.begin:
                before[record.key] = record.offset
    return Pick(
        source, place, begin, until_ms=until_ms, keep=partial(_caused_by, span),
        before=frozenset(before.values()),
    )  # fmt: skip


def _side(source: Source, place: Place, spans: list[Span]) -> Pick:
    """What the ticks admitted, what came until a little later, and what stood before."""
    label = f"{place[0]}/{place[1]}"
    folded = [span.side.get(label, -1) for span in spans if span.at is not None]
    unfolded = [
        above(source, *place, span.first_ms - EARLY_MS) for span in spans if span.at is None
    ]
    begin = min([*folded, *unfolded])
    standing: dict[bytes | None, int] = {}
    if place[0] in STANDING:
        for record in source.records(*place, upto=begin):
            standing.pop(record.key, None)
            if record.value is not None:
                standing[record.key] = record.offset
    upto = max(span.upto.get(label, -1) for span in spans)
    return Pick(
        source, place, begin, upto=upto,
        keep=partial(_admitted_or_caused, upto, {span.partition: span for span in spans}),
        until_ms=max(span.last_ms for span in spans) + EARLY_MS,
        before=frozenset(standing.values()),
    )  # fmt: skip


def _beside(source: Source, place: Place, spans: list[Span], keep: Keep) -> Pick:
    first_ms = min(span.first_ms for span in spans)
    last_ms = max(span.last_ms for span in spans)
    begin = above(source, *place, first_ms - EARLY_MS)
    since = partial(_since, first_ms - EARLY_MS, keep)
    return Pick(source, place, begin, until_ms=last_ms + LATE_MS, keep=since)


def _since(first_ms: int, keep: Keep, record: Record) -> bool:
    return record.timestamp >= first_ms and keep(record)


def _caused_by(span: Span, record: Record) -> bool:
    origin = _origin(record)
    return origin is not None and _within({span.partition: span}, origin)


def _admitted_or_caused(upto: int, spans: dict[int, Span], record: Record) -> bool:
    """All that ticks admitted; beyond, of what partitions say of their nodes, what spans caused."""
    if record.offset <= upto:
        return True
    origin = _origin(record)
    return origin is None or _within(spans, origin)


def _within(spans: dict[int, Span], origin: _Origin) -> bool:
    span = spans.get(origin.partition)
    return span is not None and span.begin < origin.offset <= span.last


def _origin(record: Record) -> _Origin | None:
    try:
        return msgspec.json.decode(record.value or b"", type=_Caused).cause
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _of_nodes(nodes: set[str], record: Record) -> bool:
    """Work that runs on one of these nodes, or nowhere yet."""
    try:
        node = msgspec.json.decode(record.value or b"{}", type=_OfNode).node
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return not node or node in nodes


def _letter_of(spans: dict[int, Span], record: Record) -> bool:
    """About a record that the bundle holds."""
    try:
        said = msgspec.json.decode(record.value or b"", type=_Letter)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    if said.topic in topics.BY_NAME and not topics.BY_NAME[said.topic].partitioned:
        return True
    span = spans.get(said.partition)
    if span is None:
        return False
    return said.topic != "samples" or span.begin < said.offset <= span.last


def _digest(record: Record) -> set[str]:
    try:
        return {published(codec.decode(PolicyRecord, record.value or b"")).digest}
    except (BadRecord, BadPolicy):
        return set()  # it was never in force
