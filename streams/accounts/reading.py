"""Records into sums: one partition after the other, its topics merged by time.

Memory: a batch of each topic of one partition, a few hundred bytes a node, pod, service and job,
and the cells. What workers refused (dead letters) is left out, and so is what cannot be read.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from schemas import codec, ledger
from schemas.errors import BadRecord
from schemas.records import LEASE_KEY, DeadLetter, Inventory, LedgerEntry, PolicyRecord
from schemas.slis import check
from streams.accounts import jobs
from streams.accounts.cells import UNPLACED, Cells, Place, Span
from streams.accounts.jobs import Known
from streams.accounts.node import Node
from streams.accounts.policies import Policies
from streams.accounts.satisfaction import StarvedPod, Starving
from streams.accounts.source import records_from
from streams.accounts.usage import EVERY_MS
from streams.recording.segment import Record
from streams.recording.source import Source

TOPICS = (
    "inventory", "ledger", "capacity", "commands", "slis", "samples", "acks", "evictions",
    "policies",
)  # fmt: skip
"""Those of nodes, and what changes for all; of one time in this order."""
AFTER_MS = 2 * EVERY_MS
"""Samples so soon after the end still say what was used before it."""
STARVED_KEPT = 1000
Progress = Callable[[int, int], None]
"""Told which partition of how many is read."""


@dataclass(slots=True)
class Read:
    """What an account is made of; ``records``: how many of each topic were folded."""

    span: Span
    cells: Cells = field(default_factory=Cells)
    policies: Policies = field(default_factory=Policies)
    records: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    starved: list[StarvedPod] = field(default_factory=list)


def read(
    source: Source, span: Span, pool_label: str, rule: Starving, progress: Progress | None = None
) -> Read:
    """Fold everything there is about the nodes, then about the jobs."""
    found = Read(span)
    refused = _refused(source)
    for partition in source.partitions("policies"):
        for record in source.records("policies", partition):
            said = _decoded(found, record)
            if isinstance(said, PolicyRecord):
                found.policies.note(record.key, said, record.timestamp)
    numbers = sorted({n for topic in TOPICS[:-1] for n in source.partitions(topic)})
    places: dict[str, list[tuple[int, Place]]] = {}
    for done, partition in enumerate(numbers):
        if progress is not None:
            progress(done + 1, len(numbers))
        reader = _Partition(source, partition, found, pool_label, rule, refused)
        reader.run()
        places.update({name: node.history for name, node in reader.nodes.items()})
        starved = found.starved + [one for n in reader.nodes.values() for one in n.usage.starved]
        starved.sort(key=lambda one: (-one.minutes, one.satisfaction, one.node, one.pod))
        found.starved = starved[:STARVED_KEPT]
    _jobs(source, found, places)
    return found


class _Partition:
    """The nodes of one partition."""

    def __init__(
        self, source: Source, partition: int, found: Read, pool_label: str, rule: Starving,
        refused: dict[tuple[str, int], set[int]],
    ) -> None:  # fmt: skip
        self.nodes: dict[str, Node] = {}
        self._source, self._partition, self._found = source, partition, found
        self._pool_label, self._rule, self._refused = pool_label, rule, refused

    def run(self) -> None:
        """All records in the order of their times, then the end."""
        with ExitStack() as open_streams:
            streams = [
                open_streams.enter_context(closing(self._stream(place, topic)))
                for place, topic in enumerate(TOPICS)
            ]
            for at_ms, _, topic, record in heapq.merge(*streams, key=lambda item: item[:2]):
                beyond_ms = at_ms - self._found.span.to_ms
                if beyond_ms > AFTER_MS:
                    break
                if beyond_ms > 0 and topic != "samples":
                    continue
                if topic == "policies":
                    for node in self.nodes.values():
                        node.enact(self._found.policies.at(at_ms), at_ms)
                else:
                    self._take(topic, record, at_ms)
        for node in self.nodes.values():
            node.close(self._found.span.to_ms)

    def _stream(self, place: int, topic: str) -> Generator[tuple[int, int, str, Any], None, None]:
        """(ms, order, topic, record); times of one topic never fall."""
        if topic == "policies":
            yield from (
                (version.from_ms, place, topic, None) for version in self._found.policies.versions
            )
            return
        if self._partition not in self._source.partitions(topic):
            return
        refused = self._refused.get((topic, self._partition), ())
        newest = 0
        for record in self._records(topic):
            newest = max(newest, record.timestamp)
            if record.offset not in refused:
                yield newest, place, topic, record

    def _records(self, topic: str) -> Iterator[Record]:
        return records_from(self._source, topic, self._partition, self._found.span.from_ms)

    def _take(self, topic: str, record: Record, at_ms: int) -> None:
        if topic == "samples":
            self._sample(record, at_ms)
            return
        if topic == "commands" and record.key == LEASE_KEY:
            return
        if record.value is None:
            self._tombstone(topic, record, at_ms)
            return
        said = _decoded(self._found, record)
        if said is None or (topic == "ledger" and not isinstance(said, LedgerEntry)):
            return
        if ledger.home(record.key or b"") != said.node.encode():
            self._found.unreadable[topic] += 1  # nobody speaks for another node
            return
        node = self._node(said.node, at_ms)
        if topic == "inventory":
            node.inventory(said, at_ms)
        elif topic == "ledger":
            node.ledger(said.scheduler, said, at_ms)
        elif topic == "capacity":
            node.capacity(said, at_ms)
        elif topic == "commands":
            node.command(said)
        elif topic == "acks":
            node.ack(said, at_ms)
        elif topic == "evictions":
            node.report(said, at_ms)
        elif _sound(said, record):
            node.sli(said, record.timestamp)
        else:
            self._found.unreadable[topic] += 1

    def _sample(self, record: Record, at_ms: int) -> None:
        try:
            enc = codec.encoding_of(record.headers)
            if enc == codec.ENC_TICK or record.value is None:
                return
            said = codec.parse_sample(record.value, record.key, enc)
        except BadRecord:
            self._found.unreadable["samples"] += 1
            return
        self._found.records["samples"] += 1
        self._node(said.node.decode(), at_ms).sample(said, at_ms)

    def _tombstone(self, topic: str, record: Record, at_ms: int) -> None:
        """A node has left, or a scheduler gives back what it held."""
        try:
            key = ledger.parse(record.key)
        except BadRecord:
            return
        node = self.nodes.get(key.node)
        if node is None:
            return
        if topic == "inventory":
            node.inventory(None, at_ms)
        elif topic == "ledger" and not key.claim:
            node.ledger(key.scheduler, None, at_ms)

    def _node(self, name: str, at_ms: int) -> Node:
        node = self.nodes.get(name)
        if node is None:
            found = self._found
            node = self.nodes[name] = Node(
                name, self._pool_label, found.span, found.cells, found.policies, self._rule
            )
            node.enact(found.policies.at(at_ms), at_ms)
        return node


def _sound(said: Any, record: Record) -> bool:
    """Whether an SLI can be believed, and is of the node that it is keyed by."""
    try:
        check(said, record.timestamp)
    except BadRecord:
        return False
    return bool(said.node.encode() == record.key)


def _decoded(found: Read, record: Record) -> Any:
    """The record, counted; None for what cannot be read."""
    if record.value is None:
        return None
    try:
        said = codec.read(record.topic, record.key, record.value, record.headers)
    except BadRecord:
        found.unreadable[record.topic] += 1
        return None
    if not isinstance(said, Inventory) or not said.removed:
        found.records[record.topic] += 1
    return said


def _refused(source: Source) -> dict[tuple[str, int], set[int]]:
    """Offsets that workers dead-lettered, by topic and partition."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for partition in source.partitions("dead-letters"):
        for record in source.records("dead-letters", partition):
            said = _decoded(Read(Span(0, 0)), record)
            if isinstance(said, DeadLetter):
                found[said.topic, said.partition].add(said.offset)
    return found


def _jobs(source: Source, found: Read, places: dict[str, list[tuple[int, Place]]]) -> None:
    """Jobs belong where the node was that they were last on; queued ones to no place."""
    for partition in source.partitions("jobs"):
        known: dict[str, Known] = {}
        last: dict[str, Place] = {}
        for record in source.records("jobs", partition):
            if record.timestamp > found.span.to_ms:
                break
            said = _decoded(found, record)
            if said is None:
                continue
            if not jobs.sound(said):
                found.unreadable["jobs"] += 1
                continue
            before = known.get(said.job)
            name = said.node or (before.node if before is not None else "")
            place = _place_at(places.get(name, []), record.timestamp)
            sums = found.cells.at(place).jobs
            counts = found.span.holds(record.timestamp)
            known[said.job] = jobs.note(before, said, record.timestamp, sums, counts=counts)
            if counts:
                last[said.job] = place
        for name, place in last.items():
            sums = found.cells.at(place).jobs
            sums.said += 1
            sums.left[known[name].newest.state] += 1


def _place_at(history: list[tuple[int, Place]], at_ms: int) -> Place:
    """Where a node belonged; nowhere when it is not known."""
    at = bisect_right(history, at_ms, key=lambda item: item[0])
    return history[max(at - 1, 0)][1] if history else UNPLACED
