"""Work that grows by so many bytes a second; `node_agent.workbench.worker` starts it in its group.

It takes its first bytes at once, and grows from the first line on its standard input on. Each page
is written. It never stops by itself.
"""

from __future__ import annotations

import mmap
import sys
import time
from typing import Any

CHUNK = 2 << 20
SPACE = 4 << 30  # of addresses; pages come as they are written


def work(config: dict[str, Any]) -> None:
    """In the worker. ``start_bytes``, then ``bytes_per_s``."""
    space = mmap.mmap(-1, SPACE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    dirt = b"\1" * CHUNK
    start = at = config["start_bytes"] // CHUNK * CHUNK
    for chunk in range(0, start, CHUNK):
        space[chunk : chunk + CHUNK] = dirt
    sys.stdin.readline()
    began = time.monotonic()
    while True:
        due = start + int((time.monotonic() - began) * config["bytes_per_s"])
        while at < due:
            space[at : at + CHUNK] = dirt
            at += CHUNK
        time.sleep(0.002)
