"""Protocol buffers by hand: the few messages that container runtimes are told and tell us.

They do not pay for a library of 4 MiB on each node; the tests of their users read and write them
with Google's. Used by `executors.cri_messages` and `nri.messages`.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_CONTINUES, _LOW = 0x80, 0x7F
_MOST_BITS = 63
_ALL = (1 << 64) - 1


class BadMessage(ValueError):
    """Bytes that are no protocol buffer."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field; numbers as they are, everything else as bytes.

    Raises BadMessage for what is cut off or of an unknown kind.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == LENGTH:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise BadMessage(f"field {number} has wire type {kind}")
        if at + size > len(data):
            raise BadMessage(f"field {number} is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _MOST_BITS:
            raise BadMessage("a number is cut off")
        byte = data[at]
        value |= (byte & _LOW) << shift
        at, shift = at + 1, shift + 7
        if byte < _CONTINUES:
            return value, at


def _packed(value: int) -> bytes:
    parts = bytearray()
    while value > _LOW:
        parts.append(value & _LOW | _CONTINUES)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def message(at: int, data: bytes) -> bytes:
    """A field that holds a message, or bytes."""
    return _packed(at << 3 | LENGTH) + _packed(len(data)) + data


def text(at: int, said: str) -> bytes:
    """A field that holds a text."""
    return message(at, said.encode())


def number(at: int, value: int) -> bytes:
    """A field that holds a whole number, also below 0; one of 0 is not said."""
    return _packed(at << 3 | VARINT) + _packed(value & _ALL) if value else b""


def signed(value: int) -> int:
    """A number that may be below 0, as `fields` gave it."""
    return value - (1 << 64) if value >> _MOST_BITS else value


def inside(data: bytes, *path: int) -> bytes | int | None:
    """What stands at the end of a path of fields, the last one said; None where it ends before.

    Raises BadMessage.
    """
    found: bytes | int | None = data
    for step in path:
        if not isinstance(found, bytes):
            return None
        found = dict(fields(found)).get(step)
    return found
