"""Proves from the topics alone that workers folded every record once and said the same each time.

Run by `slackwater worker check` and by the tests after every disaster they stage. It refolds each
partition's log from offset 0 with the live engine and compares: every output byte on the topics,
and the digest of every complete image. Workers should be stopped, or the tail is still moving.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from agents.state import PartitionState
from streams.images import unpack
from streams.intake import Check, unchecked
from streams.recording.source import Source
from streams.replay.compare import Comparison
from streams.replay.fold import Fold
from streams.replay.result import Partition
from streams.replay.spoken import Spoken
from streams.replay.start import images_of
from streams.replay.topics import TopicSource

EFFECTS = ("applied", "started", "handed_over")  # outcomes of a command that did something
EXAMPLES = 5
EVER = 1 << 62


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
    verdict = await asyncio.to_thread(_check, brokers, prefix, share, nodes.encode(), believe)
    for journal in journals:
        _journal(journal, verdict)
    return verdict


def _check(
    brokers: str, prefix: str, share: tuple[int, int], nodes: bytes, believe: Check
) -> Verdict:
    verdict = Verdict()
    with TopicSource(brokers, prefix) as source:
        verdict.partitions = source.manifest.partitions
        for partition in range(verdict.partitions)[share[0] :: share[1]]:
            _Partition(source, partition, verdict, nodes, believe).check()
    return verdict


class _Partition:
    """The check of one partition."""

    def __init__(
        self, source: Source, partition: int, verdict: Verdict, nodes: bytes, believe: Check
    ) -> None:
        self._source = source
        self._partition = partition
        self._verdict = verdict
        self._nodes = nodes
        self._believe = believe
        self._images: dict[int, list[tuple[str, str]]] = defaultdict(list)  # at -> cut, digest

    def check(self) -> None:
        """Collect what was said, refold, compare."""
        verdict, source, partition = self._verdict, self._source, self._partition
        spoken = Spoken(source, partition, above=-1, since_ms=0)
        verdict.outputs += spoken.said
        verdict.distinct += len(spoken.first)
        verdict.repeated += spoken.repeated
        for chunks in images_of(source, partition, half=self._half):
            self._images[chunks[0].at].append((chunks[0].cut, unpack(chunks).digest()))
        beyond = max(self._images, default=-1)
        first, end = self._count(beyond)
        verdict.records += end
        if first:
            verdict.cold += 1
            verdict.differing += len(spoken.otherwise)
            return
        comparison = Comparison(source, spoken, Partition(partition, -1), beyond, ordered=False)
        self._refold(comparison)
        self._note(comparison.finish(EVER))

    def _half(self) -> None:
        self._verdict.images_half += 1

    def _count(self, beyond: int) -> tuple[int, int]:
        """Count the samples; the log's first offset and its end."""
        first, end, verdict = 0, 0, self._verdict
        for record in self._source.records("samples", self._partition):
            first = first if end else record.offset
            end = record.offset + 1
            if record.key and record.key.startswith(self._nodes):
                verdict.samples += 1
                verdict.unimaged += record.offset > beyond
        return first, end

    def _refold(self, comparison: Comparison) -> None:
        state = PartitionState(self._partition, self._source.manifest.incarnation)
        fold = Fold(
            self._source, self._partition, state, check=self._believe, stops=sorted(self._images)
        )
        for outputs in fold:
            comparison.take(outputs)
            for cut, digest in self._images.get(fold.at, ()):
                self._verdict.images += 1
                if digest != state.digest():
                    self._verdict.images_differing += 1
                    parts = ", ".join(self._parts(cut, state))
                    self._verdict.note(f"image {cut} differs from the refold in {parts}")

    def _parts(self, cut: str, state: PartitionState) -> list[str]:
        for chunks in images_of(self._source, self._partition):
            if chunks[0].cut == cut:
                return _differing(unpack(chunks), state)
        return ["what is not on the topic any more"]

    def _note(self, found: Partition) -> None:
        verdict = self._verdict
        verdict.refolded_outputs += found.now
        verdict.differing += found.said_otherwise
        verdict.phantom += found.only_then + found.differing
        verdict.missing += found.only_now
        verdict.withheld += found.withheld
        for one in found.differences:
            verdict.note(f"{one.topic} {one.key!r}, {one.cause}: {one.words}"[:600])


def _differing(one: PartitionState, other: PartitionState) -> list[str]:
    """Names of the parts in which two states differ."""
    (meta, arrays), (meta_too, arrays_too) = one.to_arrays(), other.to_arrays()
    found = [name for name in meta if meta[name] != meta_too.get(name)]
    if "seats" not in found:  # else rows do not correspond
        found += [n for n in arrays if not np.array_equal(arrays[n], arrays_too[n])]
    return found


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
