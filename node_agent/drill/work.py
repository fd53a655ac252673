"""What runs in the drill's pods; a `node_agent.workbench.worker`, so it dies with the drill."""

from __future__ import annotations

import sys
import time
from typing import Any

CHUNK_BYTES = 4 << 20


def work(config: dict[str, Any]) -> None:
    """In the worker. ``kind``: rest, spin, or grow by ``bytes_per_s`` (0: at once) to ``most``."""
    if config["kind"] == "spin":
        while True:
            pass
    if config["kind"] == "grow":
        sys.stdin.readline()
        grow(config["bytes_per_s"], config["most"])
    while True:
        time.sleep(60)


def grow(bytes_per_s: int, most: int) -> list[bytearray]:
    """Take memory and write to it, so that it is really taken."""
    began, held = time.monotonic(), []
    for taken in range(CHUNK_BYTES, most + 1, CHUNK_BYTES):
        chunk = bytearray(CHUNK_BYTES)
        chunk[::4096] = b"x" * (CHUNK_BYTES // 4096)
        held.append(chunk)
        if bytes_per_s:
            time.sleep(max(0.0, began + taken / bytes_per_s - time.monotonic()))
    return held
