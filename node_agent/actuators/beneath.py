"""Groups below one mount point, opened by descriptors alone; nothing leads out of the mount.

Both authorities (`subtree`, `online`) read and write through here. Where the kernel has openat2
(Linux 5.6) it walks the path itself and refuses symlinks, other mounts and every way up; elsewhere,
or where a filter of system calls forbids it, each component is opened with O_NOFOLLOW.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

Parts = tuple[str, ...]
"""A group by its components."""
Write = Callable[[int, bytes], int]

GONE = (errno.ENOENT, errno.ENODEV)
MAX_FILE_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_HERE = -100  # AT_FDCWD
_OPENAT2 = 437  # one number on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_STRICT = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_LED_ASTRAY = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)


class UnsafePath(ValueError):
    """A path that is empty, absolute, climbs, or leads to where nothing may be written."""


def safe_parts(path: str) -> Parts:
    """The components of a relative cgroup path. Raises UnsafePath for anything ambiguous."""
    parts = tuple(path.split("/"))
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafePath(f"cgroup path {path!r}: want a relative path such as kubepods/besteffort")
    return parts


class Beneath:
    """One mount; holds its descriptor."""

    def __init__(self, mount: str, write: Write = os.write) -> None:
        """Raises OSError when the mount is not there."""
        self._write = write
        self._mount = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._mount).st_dev
        self._over: tuple[Parts, ...] = ()  # groups that are mounted over themselves

    def close(self) -> None:
        """Give the descriptor back; twice is once."""
        if self._mount >= 0:
            os.close(self._mount)
            self._mount = -1

    def look(self, parts: Parts, files: Sequence[str]) -> tuple[int, dict[str, str]] | None:
        """The group's inode and the texts of those ``files`` that are there; None: it is gone."""
        try:
            with self.open(parts) as directory:
                identity = os.fstat(directory).st_ino
                texts = {file: read_there(directory, file) for file in files}
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
        return identity, {file: text for file, text in texts.items() if text is not None}

    @contextmanager
    def open(self, parts: Parts) -> Iterator[int]:
        """A descriptor of the group's directory; the caller's block runs with it open.

        Raises UnsafePath for no components or ones that are none, and for what leads astray.
        """
        if not parts or any(p in ("", ".", "..") or "/" in p or "\0" in p for p in parts):
            raise UnsafePath(f"cgroup path {'/'.join(parts)!r} is no plain path below the mount")
        try:
            descriptor = self._open(parts)
        except OSError as error:
            if error.errno in _LED_ASTRAY:
                raise UnsafePath(
                    f"{'/'.join(parts)!r} leads over a symlink, a file or another file system;"
                    " not followed"
                ) from None
            raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, parts: Parts) -> int:
        if not _has_openat2():
            return self._walk(parts)
        for over in self._over:
            if parts[: len(over)] == over:
                return self._across(over, parts[len(over) :])
        try:
            return _openat2(self._mount, "/".join(parts))
        except OSError as error:
            over = self._over_itself(parts) if error.errno == errno.EXDEV else ()
            if not over:
                raise
        self._over = (*self._over, over)
        return self._across(over, parts[len(over) :])

    def _across(self, over: Parts, rest: Parts) -> int:
        """Through a group that is mounted over itself, and on below it."""
        base = _openat2(self._mount, "/".join(over), _NO_SYMLINKS | _NO_MAGICLINKS | _BENEATH)
        if not rest:
            return base
        try:
            return _openat2(base, "/".join(rest))
        finally:
            os.close(base)

    def _over_itself(self, parts: Parts) -> Parts:
        """The first group on the way over which the very same group is mounted; () for none.

        So a container gets the best-effort root writable in a tree that is read-only. The entry in
        the directory above has the inode of what lies below the mount.
        """
        for length in range(1, len(parts) + 1):
            *above, name = parts[:length]
            at = _openat2(self._mount, "/".join(above) or ".")
            try:
                mounted = os.stat(name, dir_fd=at, follow_symlinks=False)
                with os.scandir(at) as entries:
                    below = next((each.inode() for each in entries if each.name == name), 0)
                crosses = _crosses(at, name)
            finally:
                os.close(at)
            if crosses:
                same = mounted.st_ino == below and mounted.st_dev == self._device
                return parts[:length] if same else ()
        return ()

    def _walk(self, parts: Parts) -> int:
        """Component by component: real directories of the same file system."""
        at = os.dup(self._mount)
        for part in parts:
            above = at
            try:
                at = os.open(part, _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
            if os.fstat(at).st_dev != self._device:
                os.close(at)
                raise OSError(errno.EXDEV, f"{part!r} is another file system")
        return at

    def write(self, directory: int, file: str, raw: bytes) -> None:
        """One write of the whole content."""
        descriptor = os.open(file, _WRITE, dir_fd=directory)
        try:
            self._write(descriptor, raw)
        finally:
            os.close(descriptor)


def read_text(directory: int, file: str) -> str:
    """The file's text, stripped."""
    descriptor = os.open(file, _READ, dir_fd=directory)
    try:
        return os.read(descriptor, MAX_FILE_BYTES).decode().strip()
    finally:
        os.close(descriptor)


def read_there(directory: int, file: str) -> str | None:
    """As `read_text`; None where there is no such file."""
    try:
        return read_text(directory, file)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise


def children(directory: int) -> list[str]:
    """Names of the groups directly below, sorted."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


@cache
def _has_openat2() -> bool:
    try:
        os.close(_openat2(_HERE, "."))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


def _crosses(at: int, name: str) -> bool:
    """Whether another mount begins at this entry."""
    try:
        os.close(_openat2(at, name))
    except OSError as error:
        return error.errno == errno.EXDEV
    return False


def _openat2(at: int, path: str, resolve: int = _STRICT) -> int:
    libc = _libc()
    how = struct.pack("=QQQ", _DIRECTORY, 0, resolve)
    found: int = libc.syscall(_OPENAT2, at, os.fsencode(path), how, len(how))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return found


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
