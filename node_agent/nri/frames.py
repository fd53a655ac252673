"""How an NRI plugin and its runtime talk: two ttrpc connections over one socket.

Each piece on the socket begins with the number of its connection and its length; a connection is a
stream of ttrpc frames (length, stream, kind, flags). Forms: containerd/nri `pkg/net/multiplex`,
containerd/ttrpc `PROTOCOL.md`. A piece of ours holds one whole frame.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import NamedTuple

PLUGIN, RUNTIME = 1, 2
"""Connections: on the first the runtime asks the plugin, on the second the plugin the runtime."""
REQUEST, RESPONSE = 1, 2
MOST_BYTES = 4 << 20
_PIECE = struct.Struct(">II")
_FRAME = struct.Struct(">IIBB")


class BadFrame(ValueError):
    """What no NRI runtime says; the connection is of no more use."""


class Frame(NamedTuple):
    """One message of ttrpc."""

    stream: int
    kind: int
    data: bytes


def piece(connection: int, frame: Frame) -> bytes:
    """A frame as it goes over the socket."""
    whole = _FRAME.pack(len(frame.data), frame.stream, frame.kind, 0) + frame.data
    return _PIECE.pack(connection, len(whole)) + whole


async def read_piece(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """(connection, bytes of it). Raises BadFrame, asyncio.IncompleteReadError at the end."""
    connection, size = _PIECE.unpack(await reader.readexactly(_PIECE.size))
    if size > MOST_BYTES + _FRAME.size:
        raise BadFrame(f"a piece of {size} bytes")
    return connection, await reader.readexactly(size)


class Frames:
    """One connection put together again."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames that are whole now. Raises BadFrame."""
        self._rest += data
        while len(self._rest) >= _FRAME.size:
            size, stream, kind, _flags = _FRAME.unpack_from(self._rest)
            if size > MOST_BYTES:
                raise BadFrame(f"a frame of {size} bytes")
            end = _FRAME.size + size
            if len(self._rest) < end:
                return
            data, self._rest = self._rest[_FRAME.size : end], self._rest[end:]
            yield Frame(stream, kind, data)
