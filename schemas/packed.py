"""Node samples as packed columns: the encoding node agents send, where the rate is.

Little-endian. Who calls this: the node agent's outbox writes, `streams.intake` parses, and
`agents.columns` reads the payload of many samples at once. Layout:

    header      the fields of `HEADER`, 88 bytes
    node name   UTF-8, zero-padded to a multiple of 8
    directory   one row of `ROW` a column: u16 id, u16 flags, u32 count
    payload     64-bit words: for each column [presence bitmap if flag 1] and `count` integers

A column of unknown id is skipped by its count. Flag 1 means that some values are absent: bit i
of the bitmap (bit 0 of word 0 first) says that value i is present; an absent value's word is 0.
Other flags are refused: a reader could not know what they do to the length.
"""

from __future__ import annotations

import struct
from zlib import crc32

from schemas.columns import BY_ID, NODE_COLUMNS, POD_COLUMNS
from schemas.errors import BadRecord
from schemas.records import NodeSample

MAGIC = b"SWS1"
VERSION = 1
MAX_SAMPLE_BYTES = 512 * 1024
MAX_PODS = 4096
MAX_COLUMNS = 512
MAX_MONO_US = 2**53  # 285 years of uptime; also exact in a double
HAS_BITMAP = 1
HEADER: tuple[tuple[str, str, str], ...] = (
    ("magic", "4s", "SWS1"),
    ("size_bytes", "I", "of the whole record"),
    ("crc32", "I", "of everything behind this field"),
    ("version", "H", "schema version"),
    ("node_bytes", "H", "length of the node name"),
    ("boot", "16s", "one start of the agent"),
    ("kernel_boot", "16s", "one start of the kernel"),
    ("seq", "Q", "from 1, +1 a sample, per boot; below 2**63"),
    ("mono_us", "q", "monotonic clock of the node"),
    ("wall_ms", "q", "wall clock, shown only"),
    ("period_ms", "I", "sampling period"),
    ("pods_rev", "I", "revision of the pod set"),
    ("pods", "I", "pods in the set"),
    ("columns", "I", "rows of the directory"),
)
"""Name, `struct` code and meaning of each header field, without gaps in this order."""
ROW: tuple[tuple[str, str, str], ...] = (
    ("id", "H", "`schemas.columns`"),
    ("flags", "H", "1: a presence bitmap precedes the values"),
    ("count", "I", "values: 1, or one a pod"),
)
_HEAD = struct.Struct("<" + "".join(code for _, code, _ in HEADER))
_ROW = struct.Struct("<" + "".join(code for _, code, _ in ROW))
_CRC_FROM = 12
_HEX_DIGITS = frozenset("0123456789abcdef")


class PackedSample:
    """A checked packed sample: its header fields, its directory and its payload, not yet spread.

    ``layout`` is the raw directory: samples of equal layout can be read side by side.
    """

    __slots__ = (
        "boot",
        "kernel_boot",
        "layout",
        "mono_us",
        "node",
        "payload",
        "period_ms",
        "pods",
        "pods_rev",
        "seq",
        "size_bytes",
        "wall_ms",
    )

    def __init__(self, raw: bytes) -> None:
        size = len(raw)
        if size > MAX_SAMPLE_BYTES:
            raise BadRecord("too_large", f"{size} bytes, at most {MAX_SAMPLE_BYTES}")
        if size < _HEAD.size:
            raise BadRecord("broken_packed", f"{size} bytes are shorter than the header")
        head = _HEAD.unpack_from(raw)
        if head[0] != MAGIC or head[1] != size:
            raise BadRecord("broken_packed", f"magic {head[0]!r}, length {head[1]} of {size}")
        if head[2] != crc32(memoryview(raw)[_CRC_FROM:]):
            raise BadRecord("checksum", f"crc32 of {size} bytes differs")
        if not 1 <= head[3] <= VERSION:
            raise BadRecord("unknown_version", f"sample version {head[3]}, this reads {VERSION}")
        if head[7] >= 2**63 or not 0 <= head[8] <= MAX_MONO_US:
            raise BadRecord("wrong_type", f"seq {head[7]} or mono_us {head[8]} out of range")
        if head[13] > MAX_COLUMNS:
            raise BadRecord("broken_packed", f"{head[13]} columns, at most {MAX_COLUMNS}")
        name_end = _HEAD.size + head[4]
        body = _HEAD.size + _pad8(head[4])
        start = body + _ROW.size * head[13]
        if start > size:
            raise BadRecord("broken_packed", f"{head[13]} columns do not fit {size} bytes")
        self.node = raw[_HEAD.size : name_end]
        self.boot: bytes = head[5]
        self.kernel_boot: bytes = head[6]
        self.seq: int = head[7]
        self.mono_us: int = head[8]
        self.wall_ms: int = head[9]
        self.period_ms: int = head[10]
        self.pods_rev: int = head[11]
        self.pods: int = head[12]
        self.layout = raw[body:start]
        self.payload = raw[start:]
        self.size_bytes = size
        if words_of(self.layout, self.pods) * 8 != size - start:
            raise BadRecord("broken_packed", "directory and payload length differ")


_words_cache: dict[tuple[bytes, int], int] = {}


def words_of(layout: bytes, pods: int) -> int:
    """Words of payload that a directory announces; each known column's count is checked here."""
    key = (layout, pods)
    words = _words_cache.get(key)
    if words is None:
        if pods > MAX_PODS:
            raise BadRecord("broken_packed", f"{pods} pods, at most {MAX_PODS}")
        words = 0
        seen: set[int] = set()
        for column_id, flags, count in _ROW.iter_unpack(layout):
            column = BY_ID.get(column_id)
            if column is not None and count != (1 if column.scope == "node" else pods):
                raise BadRecord("broken_packed", f"column {column.name} has {count} values")
            if column_id in seen:
                raise BadRecord("broken_packed", f"column {column_id} comes twice")
            if flags & ~HAS_BITMAP:
                raise BadRecord("broken_packed", f"column {column_id} has unknown flags {flags}")
            seen.add(column_id)
            words += count + (_bitmap_words(count) if flags & HAS_BITMAP else 0)
        if len(_words_cache) >= 4096:
            _words_cache.clear()
        _words_cache[key] = words
    return words


def encode(sample: NodeSample) -> bytes:
    """Packed bytes of a sample; columns in id order. Raises BadRecord for what cannot be said."""
    if sample.pods > MAX_PODS:
        raise BadRecord("too_large", f"{sample.pods} pods, at most {MAX_PODS}")
    rows: list[bytes] = []
    payload: list[bytes] = []
    for name, column in NODE_COLUMNS.items():
        if name in sample.node_columns:
            _put(column.id, [sample.node_columns[name]], rows, payload)
    for name, column in POD_COLUMNS.items():
        values = sample.pod_columns.get(name)
        if values is not None:
            if len(values) != sample.pods:
                raise BadRecord("wrong_type", f"{name} has {len(values)} of {sample.pods} values")
            _put(column.id, values, rows, payload)
    try:
        node = sample.node.encode()
    except UnicodeEncodeError:
        raise BadRecord("wrong_type", "the node name is not UTF-8") from None
    tail = node.ljust(_pad8(len(node)), b"\0") + b"".join(rows) + b"".join(payload)
    boots = _boot_bytes("boot", sample.boot), _boot_bytes("kernel_boot", sample.kernel_boot)
    try:
        head = _HEAD.pack(
            MAGIC,
            _HEAD.size + len(tail),
            0,
            VERSION,
            len(node),
            *boots,
            sample.seq,
            sample.mono_us,
            sample.wall_ms,
            sample.period_ms,
            sample.pods_rev,
            sample.pods,
            len(rows),
        )
    except struct.error as error:
        raise BadRecord("wrong_type", str(error)) from None
    checksum = crc32(tail, crc32(head[_CRC_FROM:]))
    return head[:8] + struct.pack("<I", checksum) + head[_CRC_FROM:] + tail


def renamed(raw: bytes, node: bytes, boot: bytes, kernel_boot: bytes) -> bytes:
    """A checked sample with other names (16 bytes each boot), and else as it is: columns of
    unknown ids too.
    """
    head = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size + _pad8(head[4]) :]
    tail = node.ljust(_pad8(len(node)), b"\0") + body
    size = _HEAD.size + len(tail)
    fresh = _HEAD.pack(MAGIC, size, 0, head[3], len(node), boot, kernel_boot, *head[7:])
    checksum = crc32(tail, crc32(fresh[_CRC_FROM:]))
    return fresh[:8] + struct.pack("<I", checksum) + fresh[_CRC_FROM:] + tail


def decode(raw: bytes) -> NodeSample:
    """The sample as a record, for readers of one sample (tools, tests); unknown columns skipped."""
    return spread(PackedSample(raw))


def spread(packed: PackedSample) -> NodeSample:
    """A checked sample as a record; unknown columns are skipped."""
    node_columns: dict[str, int | None] = {}
    pod_columns: dict[str, list[int | None]] = {}
    words = memoryview(packed.payload).cast("q")
    at = 0
    for column_id, flags, count in _ROW.iter_unpack(packed.layout):
        present = -1
        if flags & HAS_BITMAP:
            size = _bitmap_words(count)
            present = int.from_bytes(words[at : at + size].tobytes(), "little")
            at += size
        values = [
            value if present >> i & 1 else None for i, value in enumerate(words[at : at + count])
        ]
        at += count
        column = BY_ID.get(column_id)
        if column is None:
            continue
        if column.scope == "node":
            node_columns[column.name] = values[0]
        else:
            pod_columns[column.name] = values
    return NodeSample(
        node=_text(packed.node),
        boot=packed.boot.hex(),
        kernel_boot=packed.kernel_boot.hex(),
        seq=packed.seq,
        mono_us=packed.mono_us,
        wall_ms=packed.wall_ms,
        period_ms=packed.period_ms,
        pods_rev=packed.pods_rev,
        pods=packed.pods,
        node_columns=node_columns,
        pod_columns=pod_columns,
    )


def _put(column_id: int, values: list[int | None], rows: list[bytes], payload: list[bytes]) -> None:
    """Append one directory row and one column; a bitmap only when a value is absent."""
    count = len(values)
    flags = 0
    numbers = values
    if None in values:
        flags = HAS_BITMAP
        bits = sum(1 << i for i, value in enumerate(values) if value is not None)
        payload.append(bits.to_bytes(_bitmap_words(count) * 8, "little"))
        numbers = [0 if value is None else value for value in values]
    try:
        payload.append(struct.pack(f"<{count}q", *numbers))
    except struct.error:
        raise BadRecord("wrong_type", f"column {column_id} has a value beyond 64 bits") from None
    rows.append(_ROW.pack(column_id, flags, count))


def _boot_bytes(name: str, text: str) -> bytes:
    if len(text) != 32 or not _HEX_DIGITS.issuperset(text):
        raise BadRecord("wrong_type", f"{name} is not 32 hex digits")
    return bytes.fromhex(text)


def _text(node: bytes) -> str:
    try:
        return node.decode()
    except UnicodeDecodeError:
        raise BadRecord("broken_packed", "the node name is not UTF-8") from None


def _pad8(size: int) -> int:
    return (size + 7) & ~7


def _bitmap_words(count: int) -> int:
    return (count + 63) // 64
