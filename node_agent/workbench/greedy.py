"""Best-effort work that takes all it gets: spinners that count what they achieve.

The demo and the closed-loop bench run it in `<name>/besteffort/<pod>`. One unit of work is a fixed
number of turns of a loop; the counts lie in a shared file, one 64-bit integer a spinner.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

from node_agent.workbench.worker import Worker, die_with_starter

TURNS = 2_000  # of an empty loop, some 50 us: short enough to be counted fairly under a small quota
_COUNT = struct.Struct("<Q")


class Greedy:
    """``spinners`` processes in one group."""

    def __init__(self, group: str, spinners: int, counts: Path) -> None:
        """``counts``: a file that is made and filled; the caller's to remove."""
        counts.write_bytes(bytes(_COUNT.size * spinners))
        self._counts = counts
        self.spinners = spinners
        config = {"spinners": spinners, "counts": str(counts)}
        self._worker = Worker("node_agent.workbench.greedy", group, config)

    @property
    def alive(self) -> bool:
        """Whether the work still runs (it does not after an eviction)."""
        return self._worker.alive

    def work_done(self) -> int:
        """Units of all spinners so far."""
        return sum(value for (value,) in _COUNT.iter_unpack(self._counts.read_bytes()))

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; exit code, negative for a signal."""
        return self._worker.wait(timeout_s)

    def stop(self) -> None:
        """End all spinners."""
        self._worker.stop()


def work(config: dict[str, Any]) -> None:
    """In the worker: fork the other spinners (they share its group and its end) and spin."""
    me = 0
    for index in range(1, config["spinners"]):
        if os.fork() == 0:
            me = index
            die_with_starter()  # a fork does not inherit the death signal
            break
    with open(config["counts"], "r+b") as file, mmap.mmap(file.fileno(), 0) as counts:
        at, done = me * _COUNT.size, 0
        while True:
            for _ in range(TURNS):
                pass
            done += 1
            _COUNT.pack_into(counts, at, done)
