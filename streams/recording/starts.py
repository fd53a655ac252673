"""Where a partition of `samples` can be begun: its whole images, found in topic `images`.

Called by the cut. Only headers of chunks are kept while looking.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agents.log import LAW_VERSION
from schemas.records import Int64
from streams.images import Chunk, contents, is_whole, read_chunk, unpack
from streams.recording.segment import Record
from streams.recording.source import Source


@dataclass(slots=True)
class Image:
    """One image: the last offset it holds, and the offsets of its chunks in `images`."""

    at: int
    n: int
    chunks: dict[int, int] = field(default_factory=dict)  # number -> offset

    @property
    def whole(self) -> bool:
        """Whether every chunk is there."""
        return len(self.chunks) == self.n and all(0 <= number < self.n for number in self.chunks)


def images_of(source: Source, partition: int, above: int = -1) -> list[Image]:
    """Images of this installation of which every chunk is there above an offset, by `at`."""
    found: dict[str, Image] = {}
    for record in source.records("images", partition, above):
        chunk = chunk_of(record)
        if chunk is None or chunk.incarnation != source.manifest.incarnation:
            continue
        image = found.setdefault(chunk.cut, Image(chunk.at, chunk.n))
        if (image.at, image.n) == (chunk.at, chunk.n):
            image.chunks.setdefault(chunk.i, record.offset)
    whole = [each for each in found.values() if each.whole]
    return sorted(whole, key=lambda each: each.at)


def chunk_of(record: Record) -> Chunk | None:
    """The chunk in a record of `images`; None for what is none."""
    try:
        return read_chunk(record.value or b"")
    except ValueError:
        return None


def vector_of(source: Source, partition: int, image: Image) -> dict[str, int] | None:
    """The side vector that an image carries; None for one that cannot be read."""
    offsets = sorted(image.chunks.values())
    wanted = set(offsets)
    chunks: dict[int, Chunk] = {}
    for record in source.records("images", partition, offsets[0] - 1, offsets[-1]):
        chunk = chunk_of(record) if record.offset in wanted else None
        if chunk is not None:
            chunks[chunk.i] = chunk
    if not chunks or not is_whole(chunks):
        return None
    whole = [chunks[i] for i in sorted(chunks)]
    try:
        if whole[0].law_version == LAW_VERSION:
            return dict(unpack(whole).side)
        meta, _ = contents(whole)
        return msgspec.convert(meta["side"], dict[str, Int64])
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        return None
