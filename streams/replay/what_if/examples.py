"""The first decision of each decider that differs, both sides in words.

What the recorded policy said is looked up on the recorded topics; what the other one said is put
in words while it is folded (`streams.replay.what_if.supposed`). Called by `what_if.run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Capacity, Cause, Command, Decision
from streams.explain.words import Seen, sentence
from streams.recording.source import Source
from streams.replay.what_if.result import Example, Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.replay.what_if.groups import Pair

TOPICS = ("decisions", "commands", "capacity")
BACK_MS, AHEAD_MS = 120_000, 30_000
"""A standing word is looked for so far back; it came to its topic so late at most."""


def sentence_of(mark: Mark, records: Iterable[Any]) -> str:
    """What a decider had last said to the node by then, in words; "" when it is not there."""
    newest: Decision | None = None
    commands: dict[str, Command] = {}
    capacities: dict[Cause, Capacity] = {}
    for record in records:
        if not isinstance(record, Decision | Command | Capacity):
            continue
        if record.cause.offset > mark.offset or record.cause.partition != mark.partition:
            continue
        if isinstance(record, Command):
            commands[record.id] = record
        elif isinstance(record, Capacity):
            if record.node == mark.node:
                capacities[record.cause] = record
        elif record.decider == mark.decider and mark.node in record.nodes:
            newest = record
    if newest is None:
        return ""
    at = newest.nodes.index(mark.node)
    terms = {name: values[at] for name, values in newest.columns.items()}
    ids = newest.command_ids
    command = commands.get(ids[at]) if at < len(ids) else None
    capacity = capacities.get(newest.cause) if mark.decider == "capacity" else None
    seen = Seen(mark.node, mark.decider, newest.outcome[at], terms, command, capacity)
    return sentence(seen)


def examples_of(source: Source, pairs: Sequence[Pair]) -> list[Example]:
    """One a decider, the earliest of all partitions, by time."""
    first: dict[str, tuple[Mark, str]] = {}
    for pair in pairs:
        for decider, mark in pair.would.first.items():
            held = first.get(decider)
            if held is None or (mark.log_ms, mark.node) < (held[0].log_ms, held[0].node):
                first[decider] = (mark, pair.would.sentences.get(decider, ""))
    found = [
        Example(
            decider, mark.node, mark.partition, mark.offset, mark.log_ms,
            sentence_of(mark, _recorded(source, mark)) or mark.was, would or mark.would,
        )
        for decider, (mark, would) in first.items()
    ]  # fmt: skip
    return sorted(found, key=lambda each: (each.log_ms, each.decider))


def _recorded(source: Source, mark: Mark) -> Iterator[Any]:
    """Records of the topics of decisions around a mark, in their order."""
    for topic in TOPICS:
        begin = source.since(topic, mark.partition, mark.log_ms - BACK_MS)
        for record in source.records(topic, mark.partition, begin - 1):
            if record.timestamp > mark.log_ms + AHEAD_MS:
                break
            try:
                yield codec.read(topic, record.key, record.value or b"", record.headers)
            except BadRecord:
                continue  # not one of ours
