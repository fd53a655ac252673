"""Where segments lie: below a folder, or one after the other in a bundle.

A bundle is a zip file of stored members, `manifest.json` first, so any tool opens it. It is read
here by its local headers from the front, not by the directory at its end: a bundle that was cut
short on its way gives back all that arrived. Nothing is ever unpacked to disk.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from zlib import crc32

from streams.recording.manifest import NAME, BadRecording, Problem

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
MAX_MEMBERS = 200_000
MAX_PROBLEMS = 100
"""A bundle of which so much is wrong is not read on."""
MAX_NAME_BYTES = 200
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_SIGNATURE = b"PK\x03\x04"
_DIRECTORY = b"PK\x01\x02"
_END = b"PK\x05\x06"
_ENCRYPTED, _LATER_SIZE = 0x1, 0x8
_ZIP64 = 0xFFFFFFFF
_WHEN = (1980, 1, 1, 0, 0, 0)  # one cut, one file, byte for byte


class Files(Protocol):
    """Read access by name."""

    def open(self, name: str) -> io.RawIOBase:
        """A seekable file. Raises FileNotFoundError, or another OSError."""

    def close(self) -> None: ...


class Folder:
    """Files below a folder; links are not followed, neither as a file nor on the way to it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, name: str) -> io.RawIOBase:
        return io.FileIO(open_plain(self._root, name), "rb")

    def close(self) -> None:
        """Nothing is held open."""


def open_plain(root: Path, name: str) -> int:
    """A descriptor of a plain file below ``root``. Raises OSError for anything else."""
    *folders, last = name.split("/")
    at = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for folder in folders:
            how = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
            below = os.open(folder, how, dir_fd=at)
            os.close(at)
            at = below
        how = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait
        descriptor = os.open(last, how, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no plain file", name)
    return descriptor


def read_plain(root: Path, name: str) -> bytes:
    """A file's bytes. Raises OSError, for one that is too large too."""
    with open(open_plain(root, name), "rb") as file:
        raw = file.read(MAX_MANIFEST_BYTES + 1)
    if len(raw) > MAX_MANIFEST_BYTES:
        raise OSError(errno.EFBIG, f"more than {MAX_MANIFEST_BYTES} bytes are not believed", name)
    return raw


@dataclass(frozen=True, slots=True)
class Member:
    """Where a stored member's bytes lie."""

    begin: int
    size: int
    crc32: int


class Slice(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, descriptor: int, begin: int, size: int) -> None:
        super().__init__()
        self._descriptor, self._begin, self._size = descriptor, begin, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), max(self._size - self._at, 0))
        got = os.pread(self._descriptor, wanted, self._begin + self._at)
        buffer[: len(got)] = got
        self._at += len(got)
        return len(got)


class Bundle:
    """The members of a bundle; ``problems`` says what of the file cannot be used."""

    def __init__(self, path: Path) -> None:
        """Raises BadRecording for what is no bundle, OSError for what cannot be opened."""
        self._file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
        self.problems: list[Problem] = []
        self.members: dict[str, Member] = {}
        try:
            found = os.fstat(self._file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BadRecording(f"{path} is no file and no folder: name a bundle")
            self._size = found.st_size
            self._walk(str(path))
            self.manifest = self._manifest(str(path))
        except BaseException:
            self._file.close()
            raise

    def open(self, name: str) -> io.RawIOBase:
        member = self.members.get(name)
        if member is None:
            raise FileNotFoundError(f"{name} is not in the bundle")
        return Slice(self._file.fileno(), member.begin, member.size)

    def close(self) -> None:
        self._file.close()

    def _walk(self, path: str) -> None:
        at = 0
        while len(self.members) < MAX_MEMBERS and len(self.problems) < MAX_PROBLEMS:
            head = os.pread(self._file.fileno(), _LOCAL.size, at)
            if at and head[:4] in (_DIRECTORY, _END):
                return
            if head[:4] != _SIGNATURE or len(head) < _LOCAL.size:
                if at == 0:
                    raise BadRecording(f"{path} is no bundle: it does not begin like one")
                self.problems.append(Problem(f"byte {at}", "the bundle ends early, or is damaged"))
                return
            at = self._take(at, _LOCAL.unpack(head))
            if at < 0:
                return
        self.problems.append(Problem(f"byte {at}", "is not read from here on: too much is wrong"))

    def _take(self, at: int, head: tuple[int, ...]) -> int:
        """Note the member whose header is at ``at``; where the next one begins, or -1."""
        flags, method, crc, packed, size, name_size, extra_size = head[2], head[3], *head[6:11]
        raw = os.pread(self._file.fileno(), min(name_size, MAX_NAME_BYTES), at + _LOCAL.size)
        name = raw.decode("utf-8", "replace")
        begin = at + _LOCAL.size + name_size + extra_size
        why = ""
        if name_size > MAX_NAME_BYTES:
            why = "has a name that no bundle of ours has"
        elif method != zipfile.ZIP_STORED or packed != size:
            why = "is compressed: members of a bundle are stored as they are"
        elif flags & (_ENCRYPTED | _LATER_SIZE) or size == _ZIP64:
            why = "has a header that no bundle of ours has"
        elif name in self.members:
            why = "is there twice"
        elif begin + size > self._size:
            why = "ends early: the bundle was cut short"
        if why:
            self.problems.append(Problem(name or f"byte {at}", why))
        else:
            self.members[name] = Member(begin, size, crc)
        goes_on = not flags & _LATER_SIZE and packed != _ZIP64
        return begin + packed if goes_on else -1

    def _manifest(self, path: str) -> bytes:
        member = self.members.get(NAME)
        if member is None:
            raise BadRecording(f"{path} holds no readable {NAME}: it is no bundle, or damaged")
        if member.size > MAX_MANIFEST_BYTES:
            raise BadRecording(f"{path}: a {NAME} of {member.size} bytes is not believed")
        raw = os.pread(self._file.fileno(), member.size, member.begin)
        if crc32(raw) != member.crc32:
            raise BadRecording(f"{path}: {NAME} is damaged (checksum); ask for the file again")
        return raw


def write_bundle(path: Path, manifest: bytes, members: Iterable[tuple[str, IO[bytes]]]) -> None:
    """Write a bundle beside ``path`` and move it there whole; the same input, the same bytes.

    Raises OSError; then nothing new is at ``path``.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
                out.writestr(zipfile.ZipInfo(NAME, _WHEN), manifest)
                for name, member in members:
                    _store(out, name, member)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _store(out: zipfile.ZipFile, name: str, member: IO[bytes]) -> None:
    info = zipfile.ZipInfo(name, _WHEN)
    member.seek(0)
    info.file_size = member.seek(0, 2)  # known before, so the header in front is complete
    member.seek(0)
    with out.open(info, "w") as to:
        while piece := member.read(1 << 20):
            to.write(piece)
