"""What of a recording makes an incident: whole partitions, from a start on, and what belongs.

`slackwater record cut` calls `choose` and `write`. For each partition concerned: its newest image
before the time asked for, all samples from there to the tick that closes the time, the side records
that those ticks admit, and every record that they caused. Nodes share percentiles and shares of
the fleet with their partition, so a partition is whole or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Inventory
from streams.moments import shown
from streams.recording.manifest import BadRecording, Cut, Gap, Manifest, Start
from streams.recording.pack import Place, pack
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.recording.spans import Span, above, span_of
from streams.recording.taken import Taken, taken_of

NAMED = 5
"""Of what is there, in a refusal."""
SHORT_MS = 15_000
"""A partition at work is sampled, and ticks, every second or few."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; no node and no workload: all. Times are append times in ms."""

    from_ms: int
    to_ms: int
    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


@dataclass(slots=True)
class Chosen:
    """What a bundle will hold: a manifest, and records that can be read again and again."""

    manifest: Manifest
    places: dict[Place, Callable[[], Iterator[Record]]]
    notes: list[str] = field(default_factory=list)  # what a reader of the result should know


def write(chosen: Chosen, target: Path) -> Manifest:
    """Write the bundle; the same choice, the same bytes. Raises OSError when it cannot be."""
    return pack(target, chosen.manifest, {k: read() for k, read in chosen.places.items()})


def choose(source: Source, wanted: Wanted) -> Chosen:
    """Find what belongs to a time and to nodes. Raises BadRecording."""
    if wanted.from_ms >= wanted.to_ms:
        raise BadRecording(
            f"--from {shown(wanted.from_ms)} is not before --to {shown(wanted.to_ms)}"
        )
    partitions = _partitions(source, wanted)
    spans = [span_of(source, each, wanted.from_ms, wanted.to_ms) for each in partitions]
    there = [span for span in spans if span is not None]
    if not there:
        raise BadRecording(f"nothing was sampled in that time; {_there(source, partitions)}")
    notes = [note for span in there for note in span.notes]
    notes += _short(source, partitions, wanted.to_ms)
    taken = taken_of(source, there)
    return Chosen(_manifest(source, wanted, there, taken), taken.places, notes)


def _short(source: Source, partitions: Iterable[int], to_ms: int) -> Iterator[str]:
    """The partitions whose samples end well before the time does, or the others', in words."""
    ends = {each: _last_ms(source, each) for each in source.partitions()}
    to_ms = min(to_ms, max(ends.values()))
    for partition in partitions:
        if ends[partition] < to_ms - SHORT_MS:
            yield (
                f"partition {partition}: its recorded samples end at {shown(ends[partition])}, "
                f"others go on to {shown(to_ms)}; if the recorder was killed, start it again and "
                "cut anew: it reads what is missing from the topics"
            )


def _last_ms(source: Source, partition: int) -> int:
    """Append time of the newest sample or tick."""
    newest = source.last("samples", partition)
    found = source.records("samples", partition, newest - 1)
    return max((record.timestamp for record in found), default=0)


def _partitions(source: Source, wanted: Wanted) -> list[int]:
    """The partitions of the nodes asked for, and of those that ran the workloads."""
    every = list(source.partitions())
    if not every:
        raise BadRecording("the recording holds no samples; nothing can be cut from it")
    if not wanted.nodes and not wanted.workloads:
        return every
    asked = {f"workload {name}": name for name in wanted.workloads}
    missing = set(wanted.nodes) | asked.keys()
    found: set[int] = set()
    nodes: set[str] = set()
    workloads: set[str] = set()
    for partition in every:
        for node, ran in _inventories(source, partition, wanted):
            hit = ({node} & set(wanted.nodes)) | {
                f"workload {w}" for w in wanted.workloads if w in ran
            }
            if hit:
                found.add(partition)
            missing -= hit
            nodes.add(node)
            workloads |= ran
    if missing:
        known = nodes if missing & set(wanted.nodes) else workloads
        raise BadRecording(
            f"{', '.join(sorted(missing))}: not in the recording in that time; "
            f"it knows {_some(known)}"
        )
    return sorted(found)


def _inventories(source: Source, partition: int, wanted: Wanted) -> Iterator[tuple[str, set[str]]]:
    """(node, workloads) as inventory says until the end of the time; earlier sets that were
    replaced before it began are left out. Nodes of which no inventory is left come from samples.
    """
    standing: dict[str, set[str]] = {}
    for record in source.records("inventory", partition):
        if record.timestamp > wanted.to_ms:
            break
        try:
            said = record.value and codec.decode(Inventory, record.value)
        except BadRecord:
            continue
        if not said:
            continue
        ran = {pod.workload for pod in said.pods if pod.workload}
        before = standing.get(said.node, set()) if record.timestamp >= wanted.from_ms else set()
        standing[said.node] = before | ran
    yield from standing.items()
    silent = set(wanted.nodes) - standing.keys()
    if silent:
        begin = above(source, "samples", partition, wanted.from_ms)
        for record in source.records("samples", partition, begin):
            if record.timestamp > wanted.to_ms:
                return
            name = (record.key or b"").decode("utf-8", "replace")
            if name in silent:
                silent.discard(name)
                yield name, set()


def _manifest(source: Source, wanted: Wanted, spans: list[Span], taken: Taken) -> Manifest:
    said = source.manifest
    starts = tuple(Start(span.partition, span.at) for span in spans if span.at is not None)
    return Manifest(
        kind="bundle",
        prefix=said.prefix,
        incarnation=said.incarnation,
        partitions=said.partitions,
        software=said.software,
        schema_version=said.schema_version,
        made_ms=max(span.last_ms for span in spans),
        law_versions=tuple(sorted({law for span in spans for law in span.laws})),
        policies=tuple(sorted(taken.policies)),
        cut=Cut(wanted.from_ms, wanted.to_ms, wanted.nodes, wanted.workloads, starts),
        pseudonymised=said.pseudonymised,
        gaps=tuple(_gaps(said.gaps, taken)),
    )


def _gaps(gaps: Iterable[Gap], taken: Taken) -> Iterator[Gap]:
    for gap in gaps:
        bounds = taken.bounds.get((gap.topic, gap.partition))
        if bounds is not None and gap.last > bounds[0] and gap.first <= bounds[1]:
            yield gap


def _there(source: Source, partitions: Iterable[int]) -> str:
    """What there is instead, in words."""
    begins, ends = [], []
    for one in partitions:
        begins += [each.timestamp for each in islice(source.records("samples", one), 1)]
        last = source.last("samples", one)
        ends += [each.timestamp for each in source.records("samples", one, last - 1)]
    if not begins:
        return "the recording holds no samples of these nodes"
    return f"the recording holds {shown(min(begins))} to {shown(max(ends))} (UTC)"


def _some(names: set[str]) -> str:
    few = sorted(names)[:NAMED]
    more = f" and {len(names) - len(few)} more" if len(names) > len(few) else ""
    return (", ".join(few) or "none") + more
