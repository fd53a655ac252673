"""Whether a Parquet segment is what it says, before anything of it is unpacked.

A footer may lie, and a page of a few bytes can unpack to gigabytes, so every page's own header is
read here: sizes, counts and encodings as our writer (`streams.recording.segment`) leaves them, one
chunk behind the other. Called by `streams.recording.recording` for each segment, once.
"""

from __future__ import annotations

import io

import pyarrow.parquet as pq

from streams.recording.manifest import Segment
from streams.recording.segment import ROWS, SCHEMA

MAX_GROUP_BYTES = 256 * 1024 * 1024
"""Of one row group, unpacked."""
MAX_DICTIONARY_BYTES = 128 * 1024
"""Each row may stand for all of it."""
HEADERS_OF_ROW = 64
MAX_GROUPS = 100_000
_HEAD_BYTES = 4096
"""No page's header is longer: statistics of two columns of numbers are all that is in it."""
_DATA, _DICTIONARY = 0, 2
_PLAIN, _BY_DICTIONARY = frozenset({0}), frozenset({0, 2, 8})
_FEW = ("enc", "v")
_LIST = "headers."
_I32, _BINARY, _STRUCT = 5, 8, 12
_DEEPEST = 4


class _Strange(Exception):
    """No page of ours; the message says why."""


def implausible(file: io.RawIOBase, found: pq.FileMetaData, segment: Segment, size: int) -> str:
    """Why a segment's own headers are not believed; "" when they are. ``size``: of the file."""
    if not found.schema.to_arrow_schema().equals(SCHEMA):
        return "has other columns than a segment"
    if found.num_rows != segment.records:
        return f"has {found.num_rows} records, the manifest says {segment.records}"
    if found.num_row_groups > MAX_GROUPS:
        return f"has {found.num_row_groups} row groups"
    at = 0
    try:
        for number in range(found.num_row_groups):
            at = _group(file, found.row_group(number), at, size)
    except _Strange as error:
        return f"has {error}"
    return ""


def _group(file: io.RawIOBase, group: pq.RowGroupMetaData, at: int, size: int) -> int:
    """Look at one row group whose first chunk begins at ``at`` or behind; where its last ends."""
    if not 0 < group.num_rows <= ROWS:
        raise _Strange(f"a row group of {group.num_rows} records")
    unpacked = 0
    for number in range(group.num_columns):
        chunk = group.column(number)
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < begin:
            begin = chunk.dictionary_page_offset
        end = begin + chunk.total_compressed_size
        if chunk.file_path or not at <= begin < end <= size:
            raise _Strange("a column that lies elsewhere")
        most = HEADERS_OF_ROW * ROWS if chunk.path_in_schema.startswith(_LIST) else group.num_rows
        if not group.num_rows <= chunk.num_values <= most:
            raise _Strange(f"{chunk.num_values} values in {group.num_rows} records")
        unpacked += _chunk(file, chunk, begin, end)
        if unpacked > MAX_GROUP_BYTES:
            raise _Strange(f"a row group of more than {MAX_GROUP_BYTES} bytes")
        at = end
    return at


def _chunk(file: io.RawIOBase, chunk: pq.ColumnChunkMetaData, at: int, end: int) -> int:
    """Look at every page of a column chunk; its size unpacked."""
    few = chunk.path_in_schema in _FEW
    unpacked = values = 0
    while at < end:
        file.seek(at)
        page, head = _page(file.read(min(_HEAD_BYTES, end - at)) or b"")
        kind, whole, packed = (page.get(name) for name in (1, 2, 3))
        if not (isinstance(whole, int) and isinstance(packed, int) and whole >= 0 <= packed):
            raise _Strange("a page without sizes")
        body = page.get({_DATA: 5, _DICTIONARY: 7}.get(kind if isinstance(kind, int) else -1, -1))
        if not isinstance(body, dict) or (kind == _DICTIONARY and not few):
            raise _Strange(f"a page of kind {kind}")
        if body.get(2) not in (_BY_DICTIONARY if few else _PLAIN):
            raise _Strange(f"a page of encoding {body.get(2)}")
        if kind == _DICTIONARY and whole > MAX_DICTIONARY_BYTES:
            raise _Strange(f"a dictionary of {whole} bytes")
        count = body.get(1)
        if not isinstance(count, int) or not 0 <= count <= chunk.num_values:
            raise _Strange(f"a page of {count} values")
        values += count if kind == _DATA else 0
        unpacked += whole
        at += head + packed
    if at != end or values != chunk.num_values:
        raise _Strange("pages that do not fill their column")
    return unpacked


def _page(raw: bytes) -> tuple[dict[int, object], int]:
    """A page header, which is a struct in Thrift's compact form; and its length."""
    try:
        return _struct(raw, 0, 0)
    except IndexError:
        raise _Strange("a page header that ends early") from None


def _struct(raw: bytes, at: int, depth: int) -> tuple[dict[int, object], int]:
    if depth == _DEEPEST:
        raise _Strange("a page header that is too deep")
    found: dict[int, object] = {}
    number = 0
    while True:
        head = raw[at]
        at += 1
        if not head:
            return found, at
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _zigzag(raw, at)
        if kind == _I32:
            found[number], at = _zigzag(raw, at)
        elif kind == _STRUCT:
            found[number], at = _struct(raw, at, depth + 1)
        elif kind == _BINARY:
            size, at = _varint(raw, at)
            at += size
        elif kind in (4, 6):
            _, at = _zigzag(raw, at)
        elif kind == 3:
            at += 1
        elif kind not in (1, 2):  # true and false are in the head alone
            raise _Strange(f"a page header with a field of kind {kind}")


def _zigzag(raw: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(raw, at)
    return value >> 1 ^ -(value & 1), at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _Strange("a page header with a number that is too long")
