"""The best-effort subtree of one cgroup hierarchy, reached through directory descriptors only.

One of the two authorities over groups (the other: `online`): here CPU, memory and io may be taken
away. Opened through `beneath`, so no symlink, `..` or absolute path leads out, and a path without
components cannot be said: the hierarchy's root is never written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from node_agent.actuators.beneath import (
    GONE,
    Beneath,
    Parts,
    UnsafePath,
    Write,
    children,
    read_text,
    read_there,
    safe_parts,
)

BE_ROOT: Parts = ()
"""The best-effort root itself; a group here is relative to it."""
WRITABLE = frozenset(
    """
    cpu.cfs_quota_us cpu.cfs_period_us cpu.cfs_burst_us cpu.max cpu.max.burst
    cpu.idle cpu.shares cpu.weight cpu.bvt_warp_ns cpuset.cpus
    memory.min memory.low memory.high memory.soft_limit_in_bytes memory.reclaim
    memory.max memory.limit_in_bytes
    memory.oom.group memory.priority memory.use_priority_oom
    memory.wmark_ratio memory.wmark_scale_factor memory.wmark_min_adj
    memory.pagecache_limit.enable memory.pagecache_limit.size memory.pagecache_limit.sync
    io.weight io.bfq.weight io.max blkio.bfq.weight
    blkio.throttle.read_bps_device blkio.throttle.write_bps_device
    blkio.throttle.read_iops_device blkio.throttle.write_iops_device
    cgroup.freeze freezer.state cgroup.kill net_cls.classid
    """.split()
)
CLEARABLE = frozenset({"cpuset.cpus"})
"""Files that say nothing when they were never written, and can be made to say so again."""
MAX_DEPTH = 64
"""Containers within containers are a handful of levels; a tenant may make any number."""


def inside(path: str, root: str) -> Parts:
    """``path`` relative to ``root``, both from the hierarchy's root; strictly inside it.

    Raises UnsafePath otherwise; a name that only begins like the root is outside.
    """
    parts, top = safe_parts(path), safe_parts(root)
    if len(parts) <= len(top) or parts[: len(top)] != top:
        raise UnsafePath(f"cgroup path {path!r} does not lie inside the best-effort root {root!r}")
    return parts[len(top) :]


class Subtree:
    """One hierarchy's best-effort subtree; holds one descriptor, of the mount point."""

    def __init__(
        self,
        mount: str,
        version: Literal[1, 2],
        root: str,
        write: Write = os.write,
    ) -> None:
        """``mount``: where the hierarchy is mounted; ``root``: the best-effort root below it.

        Raises UnsafePath for a root that is no proper path, OSError when the mount is not there.
        """
        self.version = version
        self.root = root
        self._top = safe_parts(root)
        self._beneath = Beneath(mount, write)

    def close(self) -> None:
        """Give the descriptor back."""
        self._beneath.close()

    @contextmanager
    def _open(self, group: Parts) -> Iterator[int]:
        """A descriptor of the group's directory."""
        with self._beneath.open((*self._top, *group)) as directory:
            yield directory

    def exists(self, group: Parts = BE_ROOT) -> bool:
        """Whether the group is there now."""
        try:
            with self._open(group):
                return True
        except OSError as error:
            if error.errno in GONE:
                return False
            raise

    def identity(self, group: Parts) -> int | None:
        """Another group made under the same path has another one; None: there is none."""
        try:
            with self._open(group) as directory:
                return os.fstat(directory).st_ino
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def read(self, group: Parts, file: str) -> str | None:
        """The file's text, stripped; None where the group or the file does not exist."""
        try:
            with self._open(group) as directory:
                return read_text(directory, file)
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def read_ints(self, group: Parts, *files: str) -> tuple[int | None, ...]:
        """The single integer of each file, the group opened once; None where absent."""
        try:
            with self._open(group) as directory:
                found = (read_there(directory, file) for file in files)
                return tuple(None if text is None else int(text) for text in found)
        except OSError as error:
            if error.errno in GONE:
                return (None,) * len(files)
            raise

    def write(self, group: Parts, file: str, text: str) -> None:
        """Write one knob. Raises UnsafePath for a file not on the list or an empty text (but for
        `CLEARABLE`), OSError as the kernel answers.
        """
        if file not in WRITABLE or not (text.strip() or file in CLEARABLE):
            raise UnsafePath(f"refusing to write {text!r} to {file!r}")
        with self._open(group) as directory:
            self._beneath.write(directory, file, (text or "\n").encode())

    def groups(self, group: Parts = BE_ROOT, depth: int = MAX_DEPTH) -> list[Parts]:
        """The group and all groups under it, parents first, by name; empty when it is gone."""
        try:
            with self._open(group) as directory:
                names = children(directory)
        except OSError as error:
            if error.errno in GONE:
                return []
            raise
        found = [group]
        for name in names if depth else ():
            found += self.groups((*group, name), depth - 1)
        return found

    def processes(self, group: Parts) -> set[int]:
        """Ids of the processes in the group and under it.

        A group of threads (``cgroup.type``) lists no processes: those of its threads are meant.
        """
        found: set[int] = set()
        for each in self.groups(group):
            try:
                text = self.read(each, "cgroup.procs")
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                threads = self.read(each, "cgroup.threads") or ""
                found.update(filter(None, map(_process_of, threads.split())))
            else:
                found.update(int(line) for line in (text or "").split())
        return found


def _process_of(thread: str) -> int:
    """The process of a thread; 0 when it has ended."""
    try:
        status = Path(f"/proc/{thread}/status").read_bytes()
    except OSError:
        return 0
    return int(status.partition(b"\nTgid:")[2].split(maxsplit=1)[0])
