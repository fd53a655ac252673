"""Where folding begins: an image in the recording, or the beginning of the log.

`start_of` is called by replay, what-if, explain and the report; `images_of` by the checker too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backports import zstd

from agents.log import LAW_VERSION
from agents.state import PartitionState
from streams.images import Chunk, is_whole, read_chunk, unpack
from streams.recording.source import Source
from streams.replay.errors import CannotReplay

OPEN_CUTS = 4
"""Cuts whose chunks are still awaited: an owner, its zombies, one that was given up."""


def start_of(recording: Source, partition: int, before: int | None = None) -> PartitionState:
    """The state to fold from: of the newest whole image whose `at` lies below offset ``before``.

    Without ``before``, or when there is no such image: the earliest place from which all is
    recorded. Raises CannotReplay when there is none.
    """
    if before is not None:
        newest = None
        for chunks in images_of(recording, partition):
            if chunks[0].at >= before:
                break
            newest = chunks if newest is None or chunks[0].at >= newest[0].at else newest
        if newest is not None:
            return _unpacked(newest)
    first = next(iter(recording.records("samples", partition)), None)
    if first is None:
        raise CannotReplay(f"there are no samples of partition {partition}: {_has(recording)}")
    if first.offset == 0:
        return PartitionState(partition, recording.manifest.incarnation)
    for chunks in images_of(recording, partition):
        if chunks[0].at + 1 >= first.offset and (before is None or chunks[0].at < before):
            return _unpacked(chunks)
    raise CannotReplay(
        f"partition {partition} begins at offset {first.offset} and has no whole image of law "
        f"version {LAW_VERSION}" + ("" if before is None else f" below offset {before}")
        + ": record from the beginning, or over several images (one every 10 s), or use the "
        f"software that recorded it ({recording.manifest.software})"
    )  # fmt: skip


def images_of(
    recording: Source, partition: int, above: int = -1, until_ms: int | None = None,
    half: Callable[[], None] = lambda: None,
) -> Iterator[list[Chunk]]:  # fmt: skip
    """Whole images of this law version and incarnation, as they became whole on the topic.

    ``above``: an offset of topic `images`; ``until_ms``: the last append time. ``half`` is called
    for each broken chunk and each cut that never became whole: readers pass them over. Memory: a
    few images.
    """
    ours = (recording.manifest.incarnation, LAW_VERSION)
    cuts: dict[str, dict[int, Chunk]] = {}
    done: set[str] = set()
    for record in recording.records("images", partition, above):
        if until_ms is not None and record.timestamp > until_ms:
            break
        try:
            chunk = read_chunk(record.value or b"")
        except (ValueError, TypeError, KeyError):
            half()
            continue
        if (chunk.incarnation, chunk.law_version) != ours or chunk.cut in done:
            continue
        chunks = cuts.setdefault(chunk.cut, {})
        chunks[chunk.i] = chunk
        if len(chunks) == chunk.n:
            done.add(chunk.cut)
            del cuts[chunk.cut]
            if is_whole(chunks):
                yield [chunks[i] for i in sorted(chunks)]
            else:
                half()
        while len(cuts) > OPEN_CUTS:
            del cuts[next(iter(cuts))]
            half()
    for _ in cuts:
        half()


def _unpacked(chunks: list[Chunk]) -> PartitionState:
    try:
        return unpack(chunks)
    except (ValueError, KeyError, TypeError, zstd.ZstdError) as error:
        raise CannotReplay(f"image {chunks[0].cut} cannot be opened: {error}") from None


def _has(recording: Source) -> str:
    there = ", ".join(map(str, recording.partitions())) or "none"
    return f"the partitions recorded are {there}"
