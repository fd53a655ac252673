"""`python -m tests.vm.relay 127.0.0.1:PORT`: that port of the second machine leads to the same one
of the machine that runs it.

Started by guest.sh. A Kafka broker tells its clients an address of its own, so the address has to
be true on both sides; qemu's user network shows the outer machine's loopback as 10.0.2.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

OUTSIDE = "10.0.2.2"
CHUNK = 65_536


async def serve(address: str) -> None:
    """Take connections until the machine goes down."""
    host, _, port = address.rpartition(":")
    server = await asyncio.start_server(lambda r, w: _join(r, w, int(port)), host, int(port))
    async with server:
        await server.serve_forever()


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """One connection, both ways, until either side ends."""
    try:
        far_reader, far_writer = await asyncio.open_connection(OUTSIDE, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
