"""Small cgroup trees of plain files, and a journal beside them, for tests without a kernel."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from node_agent.actuators.subtree import Subtree
from node_agent.originals import Trees

BE = "kubepods/besteffort"
V1_GROUP = {
    "cpu.cfs_quota_us": "-1\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.cfs_burst_us": "0\n",
    "cpu.idle": "0\n",
    "cpu.shares": "2\n",
    "cgroup.procs": "",
}
V2_GROUP = {
    "cpu.max": "max 100000\n",
    "cpu.max.burst": "0\n",
    "cpu.idle": "0\n",
    "cpu.weight": "100\n",
    "cgroup.procs": "",
    "cgroup.events": "populated 0\nfrozen 0\n",
    "cgroup.kill": "",
}


def group(directory: Path, files: Mapping[str, str], **changes: str) -> None:
    """Write one group; ``changes`` names files with dots as ``__``."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {**files, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
        (directory / name).write_text(text)


def subtree(
    mount: Path, version: Literal[1, 2], write: Callable[[int, bytes], int] | None = None
) -> Subtree:
    """The best-effort subtree of a fixture; plain files must be cut before they are written."""
    return Subtree(str(mount), version, BE, write or overwrite)


def trees(mount: Path, version: Literal[1, 2] = 1) -> Trees:
    """A node whose cpu controller is at ``mount``."""
    cpu = subtree(mount, version)
    return Trees(cpu, cpu if version == 2 else None)


def overwrite(descriptor: int, raw: bytes) -> int:
    """What a kernel file does: the write is the whole new content."""
    os.ftruncate(descriptor, 0)
    return os.pwrite(descriptor, raw + b"\n", 0)


class Crash(BaseException):
    """The process is gone at this very write; no write after it is done either."""


class NthWrite:
    """Counts writes and fails, or crashes, at the n-th (from 1)."""

    def __init__(self, at: int, error: int | None) -> None:
        self.at, self.error, self.count = at, error, 0

    def __call__(self, descriptor: int, raw: bytes) -> int:
        self.count += 1
        if self.error is None and 0 < self.at <= self.count:
            raise Crash
        if self.count == self.at and self.error is not None:
            raise OSError(self.error, errno.errorcode[self.error])
        return overwrite(descriptor, raw)
