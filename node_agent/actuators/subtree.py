"""The best-effort subtree of one cgroup hierarchy, reached through directory descriptors only.

Every actuator reads and writes through a `Subtree`. A path is walked component by component with
O_NOFOLLOW from the mount's own descriptor, so no symlink, `..` or absolute path leads out, and a
path without components cannot be said: the hierarchy's root is never written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Parts = tuple[str, ...]
"""A group relative to the best-effort root; ``()`` is the best-effort root itself."""

BE_ROOT: Parts = ()
WRITABLE = frozenset(
    {
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpu.cfs_burst_us",
        "cpu.max",
        "cpu.max.burst",
        "cpu.idle",
        "cpu.shares",
        "cpu.weight",
        "cgroup.kill",
        "cpuset.cpus",
    }
)
CLEARABLE = frozenset({"cpuset.cpus"})
"""Files that say nothing when they were never written, and can be made to say so again."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENODEV)
MAX_DEPTH = 8
MAX_FILE_BYTES = 1 << 20


class UnsafePath(ValueError):
    """A path that is empty, absolute, climbs, or leads out of the best-effort subtree."""


def safe_parts(path: str) -> Parts:
    """The components of a relative cgroup path. Raises UnsafePath for anything ambiguous."""
    parts = tuple(path.split("/"))
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafePath(f"cgroup path {path!r}: want a relative path such as kubepods/besteffort")
    return parts


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
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        """``mount``: where the hierarchy is mounted; ``root``: the best-effort root below it.

        Raises UnsafePath for a root that is no proper path, OSError when the mount is not there.
        """
        self.version = version
        self.root = root
        self._top = safe_parts(root)
        self._write = write
        self._mount = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._mount).st_dev

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._mount)

    @contextmanager
    def _open(self, group: Parts) -> Iterator[int]:
        """A descriptor of the group's directory; the caller's block runs with it open."""
        at = self._mount
        opened: list[int] = []
        try:
            for part in (*self._top, *group):
                if part in ("", ".", "..") or "/" in part:
                    raise UnsafePath(f"cgroup path component {part!r}")
                at = self._step(at, part)
                opened.append(at)
            yield at
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _step(self, at: int, part: str) -> int:
        """One component down: a real directory of the same file system."""
        try:
            descriptor = os.open(part, _DIRECTORY, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafePath(f"{part!r} is a symlink or no directory; not followed") from None
            raise
        if os.fstat(descriptor).st_dev != self._device:
            os.close(descriptor)
            raise UnsafePath(f"{part!r} is another file system; not entered")
        return descriptor

    def exists(self, group: Parts = BE_ROOT) -> bool:
        """Whether the group is there now."""
        try:
            with self._open(group):
                return True
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    def read(self, group: Parts, file: str) -> str | None:
        """The file's text, stripped; None where the group or the file does not exist."""
        try:
            with self._open(group) as directory:
                return _read_text(directory, file)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def read_ints(self, group: Parts, *files: str) -> tuple[int | None, ...]:
        """The single integer of each file, the group opened once; None where absent."""
        try:
            with self._open(group) as directory:
                return tuple(_read_int(directory, file) for file in files)
        except OSError as error:
            if error.errno in _GONE:
                return (None,) * len(files)
            raise

    def write(self, group: Parts, file: str, text: str) -> None:
        """Write one knob. Raises UnsafePath for a file not on the list or an empty text (but for
        `CLEARABLE`), OSError as the kernel answers.
        """
        if file not in WRITABLE or not (text.strip() or file in CLEARABLE):
            raise UnsafePath(f"refusing to write {text!r} to {file!r}")
        with self._open(group) as directory:
            descriptor = os.open(file, _WRITE, dir_fd=directory)
            try:
                self._write(descriptor, (text or "\n").encode())
            finally:
                os.close(descriptor)

    def groups(self, group: Parts = BE_ROOT, depth: int = MAX_DEPTH) -> list[Parts]:
        """The group and all groups under it, parents first, by name; empty when it is gone."""
        try:
            with self._open(group) as directory, os.scandir(directory) as entries:
                names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError as error:
            if error.errno in _GONE:
                return []
            raise
        found = [group]
        for name in names if depth else ():
            found += self.groups((*group, name), depth - 1)
        return found

    def processes(self, group: Parts) -> set[int]:
        """Ids of the processes in the group and under it."""
        found: set[int] = set()
        for each in self.groups(group):
            text = self.read(each, "cgroup.procs")
            found.update(int(line) for line in (text or "").split())
        return found


def _read_text(directory: int, file: str) -> str:
    descriptor = os.open(file, _READ, dir_fd=directory)
    try:
        return os.read(descriptor, MAX_FILE_BYTES).decode().strip()
    finally:
        os.close(descriptor)


def _read_int(directory: int, file: str) -> int | None:
    try:
        return int(_read_text(directory, file))
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
