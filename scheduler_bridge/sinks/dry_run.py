"""The sink that shows what it would do: each patch as one line of JSON, and nothing else.

The record is also its memory: a restart rereads it to know what was published. Two bridges by
accident are safe here: nothing outside the record is written, and one record has one writer (a
file lock refuses the second), so the worst outcome is two records that say the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from scheduler_bridge.kube.node_status import body
from scheduler_bridge.reconcile import Amount, Observed, Patch
from scheduler_bridge.settings import MID_CPU_NAME, MID_MEMORY_NAME

log = logging.getLogger("slackwater.bridge")
Fsync = Literal["always", "never"]
FORMAT = 1
AMOUNTS = ("cpu_milli", "memory_bytes", "mid_cpu_milli", "mid_memory_bytes")


class RecordInUse(OSError):
    """Another bridge writes this record."""


class DryRun:
    """Records patches as JSON lines; a torn last line (a crash while writing) is cut off.

    ``fsync`` always: a patch counts as published once it is on disk. At ``max_bytes`` the record is
    set aside as ``FILE.1`` and begins anew with the newest line of each node.
    """

    NAME: ClassVar[str] = "dry-run"

    def __init__(
        self,
        record: Path,
        echo: Callable[[str], None],
        cpu_name: str,
        memory_name: str,
        fsync: Fsync = "always",
        max_bytes: int = 64 << 20,
        mid_names: tuple[str, str] = (MID_CPU_NAME, MID_MEMORY_NAME),
    ) -> None:
        self._path = record
        self._echo = echo
        self._names = (cpu_name, memory_name, *mid_names)
        self._fsync = fsync == "always"
        self._max_bytes = max_bytes
        self._lines: dict[str, bytes] = {}
        self._observed: dict[str, Observed] = {}
        record.parent.mkdir(parents=True, exist_ok=True)
        self._fd = _lock(record)
        self._size = self._reread()

    @property
    def ready(self) -> bool:
        return True

    @property
    def may_tell(self) -> bool:
        return True

    @property
    def observed(self) -> Mapping[str, Observed]:
        return self._observed

    @property
    def nodes(self) -> None:
        return None

    async def run(self) -> None:
        """Nothing changes the record but `tell`."""
        await asyncio.Event().wait()

    async def tell(self, patch: Patch) -> None:
        line = orjson.dumps(self.describe(patch)) + b"\n"
        if self._size + len(line) > self._max_bytes:
            self._rotate()
        self._append(line)
        self._lines[patch.node] = line
        self._observed[patch.node] = patch.applied()
        self._echo(self._sentence(patch))

    def describe(self, patch: Patch) -> dict[str, Any]:
        """The line of a patch: the merge patch of a node's status, and where it comes from."""
        previous = patch.previous
        return {
            "v": FORMAT,
            "dry_run": True,
            "node": patch.node,
            "patch": body(patch, self._names),
            "why": patch.why,
            "reason": patch.reason,
            **dict(zip(AMOUNTS, patch.amount.each(), strict=True)),
            "offered": patch.offered.each(),
            "new_work": patch.new_work,
            "previous_cpu_milli": None if previous is None else previous.cpu_milli,
            "previous_memory_bytes": None if previous is None else previous.memory_bytes,
            "incarnation": patch.order[0],
            "offset": patch.order[1],
            "seen_log_ms": patch.seen_ms,
            "at_log_ms": patch.at_ms,
            "policy": patch.policy,
        }

    def close(self) -> None:
        os.close(self._fd)

    def _sentence(self, patch: Patch) -> str:
        before = "none" if patch.previous is None else f"{patch.previous.cpu_milli}m"
        note = "" if patch.new_work else ", no new work"
        amount, mid = patch.amount, ""
        if amount.mid_cpu_milli or amount.mid_memory_bytes:
            mid = (
                f", {self._names[2]} {amount.mid_cpu_milli}m, "
                f"{self._names[3]} {amount.mid_memory_bytes >> 20} MiB"
            )
        return (
            f"would patch {patch.node}: {self._names[0]} {before} -> {amount.cpu_milli}m, "
            f"{self._names[1]} {amount.memory_bytes >> 20} MiB{mid}{note} "
            f"({patch.why}: {patch.reason})"
        )

    def _append(self, line: bytes) -> None:
        """Write the whole line or none of it."""
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(f"{self._path}: wrote {written} of {len(line)} bytes; disk full?")
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    def _reread(self) -> int:
        """Learn what was published; returns the size of the whole lines and cuts off the rest."""
        whole = strange = 0
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                strange += not self._learn(line)
        os.ftruncate(self._fd, whole)
        if strange:
            log.warning("%s: %d lines are none of a bridge and passed over", self._path, strange)
        return whole

    def _learn(self, line: bytes) -> bool:
        """One line of the record; False: it is not ours or not readable, and passed over."""
        try:
            said = orjson.loads(line)
            node = str(said["node"])
            amount = Amount(*(int(said.get(name, 0)) for name in AMOUNTS))
            self._observed[node] = Observed(
                amount,
                bool(said["new_work"]),
                (int(said["incarnation"]), int(said["offset"])),
                int(said["seen_log_ms"]),
                int(said["at_log_ms"]),
                Amount(*map(int, said.get("offered", amount.each()))),
            )
        except (ValueError, KeyError, TypeError):
            return False
        self._lines[node] = line
        return True

    def _rotate(self) -> None:
        """Set the record aside and start a new one with the newest line of each node."""
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_bytes(b"".join(self._lines.values()))
        fd = _lock(fresh)
        os.fsync(fd)
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        fresh.replace(self._path)
        os.close(self._fd)
        self._fd, self._size = fd, self._path.stat().st_size


def _lock(path: Path) -> int:
    """Open for appending, as the only writer. Raises RecordInUse."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise RecordInUse(
            f"{path} is written by another bridge; stop it or give another --record"
        ) from None
    return fd
