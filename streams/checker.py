"""Proves from the topics alone that workers folded every record once and said the same each time.

Run by `slackwater worker check` and by the tests after every disaster they stage. It refolds each
partition's log from offset 0 with the live engine and compares: every output byte on the topics,
and the digest of every complete image. Workers should be stopped, or the tail is still moving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from aiokafka import TopicPartition

from agents.log import LAW_VERSION, Output, SideRecord
from agents.state import PartitionState
from schemas import codec, topics
from schemas.errors import BadRecord
from schemas.topics import full_name
from streams import topic_reader
from streams.engine import PartitionEngine, Ports
from streams.images import Chunk, is_whole, read_chunk, unpack
from streams.intake import Check, unchecked
from streams.metrics import Metrics
from streams.side_inputs import SideLog, decode
from streams.topics_admin import installation_of

SAID = (
    "commands", "capacity", "reservations", "signals", "decisions", "fleet", "dead-letters",
)  # fmt: skip
BATCH = 1_000
EFFECTS = ("applied", "started", "handed_over")  # outcomes of a command that did something
EXAMPLES = 5
Said = tuple[str, bytes, bytes]  # topic, key, value


@dataclass(slots=True)
class Verdict:
    """What was found; `ok` when nothing contradicts the rules."""

    partitions: int = 0
    records: int = 0
    samples: int = 0  # of the records; the others are ticks and what could not be read
    unimaged: int = 0  # samples beyond the newest image: not yet proved to be folded
    refolded_outputs: int = 0
    outputs: int = 0  # on the topics
    distinct: int = 0
    repeated: int = 0  # said again, byte-identical
    differing: int = 0  # equal dedupe key, other bytes
    phantom: int = 0  # said, but the law does not say it
    missing: int = 0  # the law says it, the topics do not, though an image lies beyond
    withheld: int = 0  # commands not said: expired by then
    images: int = 0
    images_half: int = 0  # incomplete or broken chunks: readers pass them over
    images_differing: int = 0  # another digest than the refolded state at its offset
    cold: int = 0  # partitions whose log no longer begins at 0: outputs compared by key only
    commands_applied: int = 0
    commands_twice: int = 0
    commands_backwards: int = 0  # applied after one of a higher order
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every proof held."""
        wrong = self.differing + self.phantom + self.missing + self.images_differing
        return wrong + self.commands_twice + self.commands_backwards == 0

    def as_json(self) -> dict[str, Any]:
        """For printing."""
        return {**asdict(self), "ok": self.ok}

    def add(self, other: Verdict) -> None:
        """Take in what was found of other partitions."""
        for each in fields(self):
            if each.name not in ("partitions", "examples"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.examples = (self.examples + other.examples)[:EXAMPLES]

    def note(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


class LoggedSide:
    """The side inputs of one partition, all read beforehand; the engine's `Side`."""

    def __init__(self, logs: dict[str, SideLog]) -> None:
        self._logs = logs

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        """Never None: everything has been read."""
        del partition
        found: list[SideRecord] = []
        for label, upto in tick.items():
            if label in self._logs:
                found += self._logs[label].between(applied.get(label, -1), upto)
        return tuple(sorted(found, key=lambda r: (r.topic, r.partition, r.offset)))

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """Kept: the checker reads on."""


async def check(
    brokers: str,
    prefix: str,
    journals: Iterable[Path] = (),
    share: tuple[int, int] = (0, 1),
    nodes: str = "",
    believe: Check = unchecked,
) -> Verdict:
    """Check one installation. Raises CannotRun when the broker or the topics are not there.

    ``share`` (i, n): only each n-th partition from the i-th on, for n processes at once.
    ``nodes``: `Verdict.samples` counts those of nodes whose names begin so. ``believe``: the
    workers' check of who said what; without it what they refused as forged is folded here.
    """
    verdict = Verdict()
    installed = await installation_of(brokers, prefix)
    if installed is None:
        raise topic_reader.CannotRun(f"no installation under {prefix!r} at {brokers}")
    verdict.partitions = installed.partitions
    single = {
        name: [r async for r in topic_reader.whole(brokers, full_name(prefix, name))]
        for name in topics.BY_NAME
        if not topics.BY_NAME[name].partitioned and name in (*SAID, *topics.SIDE_TOPICS)
    }
    for partition in range(installed.partitions)[share[0] :: share[1]]:
        one = _Partition(brokers, prefix, partition, installed.incarnation, verdict, nodes, believe)
        await one.check(single)
    for journal in journals:
        _journal(journal, verdict)
    return verdict


class _Partition:
    """The check of one partition."""

    def __init__(
        self,
        brokers: str,
        prefix: str,
        partition: int,
        incarnation: int,
        verdict: Verdict,
        nodes: str,
        believe: Check,
    ) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._partition = partition
        self._incarnation = incarnation
        self._verdict = verdict
        self._nodes = nodes.encode()
        self._believe = believe
        self._folded: dict[tuple[Any, ...], Said] = {}
        self._samples: list[int] = []  # offsets of those counted

    async def check(self, single: dict[str, list[Any]]) -> None:
        """Collect what was said, refold, compare."""
        said = await self._said(single)
        images = await self._images()
        side = LoggedSide(await self._side(single))
        first, end, beyond = await self._refold(images, side)
        self._verdict.records += end
        self._verdict.unimaged += sum(1 for at in self._samples if at > beyond)
        self._verdict.samples += len(self._samples)
        if first:
            self._verdict.cold += 1
            return
        self._compare(said, beyond)

    async def _read(self, topic: str) -> list[Any]:
        async with topic_reader.started(topic_reader.consumer(self._brokers), self._brokers) as c:
            where = TopicPartition(full_name(self._prefix, topic), self._partition)
            c.assign([where])
            await c.seek_to_beginning(where)
            return [record async for record in topic_reader.to_end(c, [where])]

    async def _said(self, single: dict[str, list[Any]]) -> dict[tuple[Any, ...], Said]:
        """What the topics hold of this partition, by dedupe key."""
        verdict = self._verdict
        said: dict[tuple[Any, ...], Said] = {}
        for topic in SAID:
            for record in single[topic] if topic in single else await self._read(topic):
                key = _dedupe_key(topic, record)
                if key is None or key[1] != self._partition:
                    continue
                verdict.outputs += 1
                one = (topic, record.key or b"", record.value)
                before = said.setdefault(key, one)
                if before is one:
                    verdict.distinct += 1
                elif before == one:
                    verdict.repeated += 1
                else:
                    verdict.differing += 1
                    verdict.note(f"{key}: said with other bytes")
        return said

    async def _images(self) -> dict[int, list[list[Chunk]]]:
        """Complete cuts by their `at`."""
        cuts: dict[str, dict[int, Chunk]] = {}
        for record in await self._read("images"):
            try:
                chunk = read_chunk(record.value or b"")
            except (ValueError, TypeError, KeyError):
                self._verdict.images_half += 1
                continue
            if (chunk.incarnation, chunk.law_version) == (self._incarnation, LAW_VERSION):
                cuts.setdefault(chunk.cut, {})[chunk.i] = chunk
        by_at: dict[int, list[list[Chunk]]] = {}
        for chunks in cuts.values():
            one = next(iter(chunks.values()))
            if is_whole(chunks):
                by_at.setdefault(one.at, []).append([chunks[i] for i in sorted(chunks)])
            else:
                self._verdict.images_half += 1
        return by_at

    async def _side(self, single: dict[str, list[Any]]) -> dict[str, SideLog]:
        logs = {}
        for topic in topics.SIDE_TOPICS:
            partition = 0 if topic in single else self._partition
            side = logs[f"{topic}/{partition}"] = SideLog(topic, partition)
            for record in single[topic] if topic in single else await self._read(topic):
                try:
                    decoded = decode(topic, record, self._believe)
                except BadRecord:
                    continue
                if decoded is not None:
                    side.put(decoded)
        return logs

    async def _refold(
        self, images: dict[int, list[list[Chunk]]], side: LoggedSide
    ) -> tuple[int, int, int]:
        """Fold the log; returns its first offset, its end and the highest `at` of an image."""
        engine = PartitionEngine(self._partition, self._ports(side))
        engine.begin(PartitionState(self._partition, self._incarnation))
        records = await self._read("samples")
        self._samples = [r.offset for r in records if r.key and r.key.startswith(self._nodes)]
        first = records[0].offset if records else 0
        cuts = sorted(at for at in images if at >= 0)
        highest = max(cuts, default=-1)
        if first:
            return first, records[-1].offset + 1, highest
        for batch in _cut_at(records, cuts):
            await engine.deliver(batch)
            assert engine.state is not None and engine.at == batch[-1].offset, "the engine stopped"
            for chunks in images.get(engine.at, ()):
                self._verdict.images += 1
                image = unpack(chunks)
                if image.digest() != engine.state.digest():
                    self._verdict.images_differing += 1
                    parts = ", ".join(_differing(image, engine.state))
                    self._verdict.note(f"image {chunks[0].cut} differs from the refold in {parts}")
        return 0, len(records), highest

    def _ports(self, side: LoggedSide) -> Ports:
        async def collect(partition: int, outputs: Iterable[Output]) -> None:
            del partition
            for output in outputs:
                value = b"" if output.record is None else codec.encode(output.record)
                key = _key_of(output.topic, output.key, orjson.loads(value))
                self._folded[key] = (output.topic, output.key, value)

        async def log_start(partition: int) -> int:
            del partition
            return 0

        def seek(partition: int, offset: int, why: str) -> None:
            del partition, offset, why

        return Ports(
            publish=collect,
            seek=seek,
            recover=lambda partition: None,  # noqa: ARG005  # nothing is published here
            log_start=log_start,
            side=side,
            metrics=Metrics(),
            check=self._believe,
        )

    def _compare(self, said: dict[tuple[Any, ...], Said], beyond: int) -> None:
        verdict = self._verdict
        verdict.refolded_outputs += len(self._folded)
        for key, one in said.items():
            if one[0] == "dead-letters" and key[3] != b"samples":
                continue  # of a side topic: not the law's
            ours = self._folded.get(key)
            if ours is None or ours != one:
                verdict.phantom += 1
                verdict.note(f"{key}: the law says {ours}, the topic {one}"[:600])
        for key, one in self._folded.items():
            if key in said or key[2] > beyond:
                continue
            if one[0] == "commands" and key[3] != b"~lease":
                verdict.withheld += 1
            else:
                verdict.missing += 1
                verdict.note(f"{key}: not on the topic")


def _differing(one: PartitionState, other: PartitionState) -> list[str]:
    """Names of the parts in which two states differ."""
    (meta, arrays), (meta_too, arrays_too) = one.to_arrays(), other.to_arrays()
    found = [name for name in meta if meta[name] != meta_too.get(name)]
    if "seats" not in found:  # else rows do not correspond
        found += [n for n in arrays if not np.array_equal(arrays[n], arrays_too[n])]
    return found


def _dedupe_key(topic: str, record: Any) -> tuple[Any, ...] | None:
    if record.value is None:
        return None
    try:
        return _key_of(topic, record.key or b"", orjson.loads(record.value))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None  # not one of ours: nobody's output


def _key_of(topic: str, key: bytes, said: Any) -> tuple[Any, ...]:
    """(topic, partition, offset, key, decider). Raises KeyError for records without a cause."""
    if topic == "dead-letters":
        return topic, said["partition"], said["offset"], said["topic"].encode(), "intake"
    cause = said["cause"]
    return topic, cause["partition"], cause["offset"], key, said.get("decider", "")


def _cut_at(records: list[Any], cuts: list[int]) -> Iterator[list[Any]]:
    """Batches of at most BATCH records that end at each of these offsets."""
    ends = iter([*cuts, float("inf")])
    end = next(ends)
    batch: list[Any] = []
    for record in records:
        batch.append(record)
        while record.offset > end:
            end = next(ends)
        if record.offset == end or len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _journal(path: Path, verdict: Verdict) -> None:
    """No command had effect twice on a node, and none after a later one."""
    applied: Counter[str] = Counter()
    begun: set[str] = set()
    newest: dict[str, list[int]] = {}
    for raw in path.read_bytes().splitlines():
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue  # a torn last line
        if line.get("kind") != "command" or not line.get("id"):
            continue
        if line.get("outcome") not in EFFECTS:
            continue
        if line["outcome"] == "applied" and line["id"] in begun:
            begun.discard(line["id"])  # what became of an effect that was counted when it began
            continue
        if line["outcome"] != "applied":
            begun.add(line["id"])
        applied[line["id"]] += 1
        order = [line["incarnation"], line["offset"]]
        if order < newest.setdefault(line["decider"], order):
            verdict.commands_backwards += 1
            verdict.note(f"{path}: command {line['id']} was applied after a later one")
        newest[line["decider"]] = max(order, newest[line["decider"]])
    verdict.commands_applied += len(applied)
    for command, times in applied.items():
        if times > 1:
            verdict.commands_twice += 1
            verdict.note(f"{path}: command {command} was applied {times} times")
