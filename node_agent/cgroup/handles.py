"""Kept descriptors for the files that are read every period.

Called by the sampler through `signals`. A file is opened once and read with ``pread``; when
descriptors run short it is opened for each read instead. What cannot be read is *absent*, with a
reason, and tried again later; a group that is being removed raises `Vanished`, so that no half
read pod is ever reported.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Sequence
from typing import Literal

from node_agent.cgroup.files import FILES
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.paths import normal_group

Reason = Literal["not_built", "disabled", "no_group", "denied"]

GLANCE_BYTES = 128  # a line of pressure, or one number
READ_BYTES = 16_384  # memory.stat of a 6.x kernel is 2 KiB
IN_PAGES = ("proc/vmstat", "proc/diskstats")
REPROBE_US = 600_000_000  # a capability that is off: asked again every 10 minutes
REPROBE_GROUP_US = 5_000_000  # a group not yet made in one hierarchy: soon
SPARE_DESCRIPTORS = 256  # left to Kafka, the journal and the libraries
_GONE = (errno.ENODEV, errno.ENOENT)
_SHORT = (errno.EMFILE, errno.ENFILE)
_OFF = (errno.EOPNOTSUPP, errno.ENOSYS)


class Vanished(Exception):
    """The group is gone or was replaced while it was read; its values must not be used."""


def raise_descriptor_limit() -> int:
    """Raise the soft RLIMIT_NOFILE to the hard one; return the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Descriptors:
    """The budget of kept descriptors, shared by all groups of one sampler."""

    __slots__ = ("exhausted", "kept", "limit", "shortfalls")

    def __init__(self, limit: int) -> None:
        """Keep at most ``limit`` descriptors; 0: open for each read."""
        self.limit = max(0, limit)
        self.kept = 0
        self.shortfalls = 0
        self.exhausted = False

    def keep(self) -> bool:
        """Whether one more may stay open; the caller closes it otherwise."""
        if self.kept >= self.limit:
            self.shortfalls += 1
            return False
        self.kept += 1
        return True

    def exhaust(self) -> None:
        """An open failed for want of descriptors: the budget was too large; half of it is kept.

        The owner closes its files when it sees ``exhausted``, and sets it back.
        """
        self.shortfalls += 1
        self.exhausted = True
        self.limit = min(self.limit, self.kept // 2)

    def close(self, fd: int) -> None:
        """Close a kept descriptor."""
        os.close(fd)
        self.kept -= 1


class _File:
    """One file: its descriptor if it is kept, else why and until when it is absent."""

    __slots__ = ("directory", "fd", "path", "reason", "retry_us", "seldom", "whole")

    def __init__(
        self, directory: str, path: str, *, whole: bool = False, seldom: bool = False
    ) -> None:
        self.directory = directory
        self.path = path
        self.whole = whole
        self.seldom = seldom
        self.fd = -1
        self.reason: Reason | None = None
        self.retry_us = 0

    def read(self, descriptors: Descriptors) -> bytes:
        """The content, as short as one system call where the file is kept. Raises OSError."""
        if self.fd >= 0:
            data = os.pread(self.fd, READ_BYTES, 0)
            return _rest(self.fd, data) if self.whole else data
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _SHORT:
                descriptors.exhaust()
            raise
        try:
            data = os.pread(fd, READ_BYTES, 0)
            data = _rest(fd, data) if self.whole else data
        except BaseException:
            os.close(fd)
            raise
        if not self.seldom and descriptors.keep():
            self.fd = fd
        else:
            os.close(fd)
        return data

    def close(self, descriptors: Descriptors) -> None:
        if self.fd >= 0:
            descriptors.close(self.fd)
            self.fd = -1


def _rest(fd: int, head: bytes) -> bytes:
    """``head`` and what follows it: such files hand out one page of records a read."""
    parts = [head]
    at_bytes = len(head)
    while parts[-1]:
        parts.append(os.pread(fd, READ_BYTES, at_bytes))
        at_bytes += len(parts[-1])
    return b"".join(parts)


class Files:
    """Named files with kept descriptors; the base of `NodeFiles` and `GroupFiles`."""

    __slots__ = ("descriptors", "files")

    def __init__(self, descriptors: Descriptors) -> None:
        self.descriptors = descriptors
        self.files: dict[str, _File | None] = {}

    def locate(self, name: str) -> _File | None:
        """The file behind a name; None: this machine can have no such file."""
        raise NotImplementedError

    def read(self, name: str, now_us: int) -> bytes | None:
        """Content of the file ``name``, or None when it is absent (`reasons` says why).

        Raises `Vanished` when the whole group is gone, other OSErrors as they are.
        """
        try:
            file = self.files[name]
        except KeyError:
            file = self.files[name] = self.locate(name)
        if file is None:
            return None
        if file.reason is not None:
            if now_us < file.retry_us:
                return None
            file.reason = None
        try:
            return file.read(self.descriptors)
        except OSError as error:
            file.close(self.descriptors)
            self.missing(file, error, now_us)
            return None

    def glance(self, name: str, now_us: int) -> bytes | None:
        """As `read`, of a file that is looked at many times a second: its first bytes alone."""
        file = self.files.get(name)
        if file is None or file.fd < 0:
            return self.read(name, now_us)
        try:
            return os.pread(file.fd, GLANCE_BYTES, 0)
        except OSError:
            return self.read(name, now_us)

    def missing(self, file: _File, error: OSError, now_us: int) -> None:
        """Book why ``file`` is absent; raise what is neither absence nor a switch."""
        if error.errno in _GONE:
            file.reason = "not_built"
        elif error.errno in _OFF:
            file.reason = "disabled"
        elif error.errno in (errno.EACCES, errno.EPERM):
            file.reason = "denied"
        else:
            raise error
        file.retry_us = now_us + REPROBE_US

    def reasons(self) -> dict[str, Reason]:
        """Why each absent file is absent."""
        found: dict[str, Reason] = {}
        for name, file in self.files.items():
            reason = "not_built" if file is None else file.reason
            if reason is not None:
                found[name] = reason
        return found

    def close(self) -> None:
        """Close every kept descriptor; the next read opens again."""
        for file in self.files.values():
            if file is not None:
                file.close(self.descriptors)
        self.files.clear()


class NodeFiles(Files):
    """Files of the whole machine, by their path below the root ("proc/stat")."""

    __slots__ = ("root",)

    def __init__(self, root: str, descriptors: Descriptors) -> None:
        super().__init__(descriptors)
        self.root = root.rstrip("/")

    def locate(self, name: str) -> _File:
        """Below the root; /proc hands out long files in pages."""
        return _File(self.root, f"{self.root}/{name}", whole=name in IN_PAGES)


class GroupFiles(Files):
    """Files of one group in all hierarchies, by their name in `FILES`.

    The group exists when its directory in the hierarchy of cpuacct does. It is known by the inode
    of its directory in each hierarchy: a file that fails while its directory is unchanged was
    switched off; another inode or none means that the group was removed or replaced.
    """

    __slots__ = ("anchor", "gone", "group", "homes", "layout")

    def __init__(self, layout: Layout, group: str, descriptors: Descriptors) -> None:
        super().__init__(descriptors)
        self.layout = layout
        self.group = normal_group(group)
        self.anchor = f"{layout.anchor}/{self.group}"
        self.homes: dict[str, int] = {}
        self.gone = False
        self.meet()

    def meet(self) -> bool:
        """Learn the inodes of the group's directories; False: there is no such group."""
        self.close()
        homes = (f"{mount}/{self.group}" for mount in self.layout.mounts())
        self.homes = {home: inode for home in homes if (inode := _inode(home))}
        self.gone = self.anchor not in self.homes
        return not self.gone

    def leave(self) -> None:
        """Close everything after `Vanished`; `meet` looks whether the group is back."""
        self.close()
        self.gone = True

    def locate(self, name: str) -> _File | None:
        """Through the layout."""
        place = self.layout.place(name, self.group)
        if place is None:
            return None
        row = FILES[name]
        return _File(place.directory, place.path, whole=row.whole, seldom=row.seldom)

    def missing(self, file: _File, error: OSError, now_us: int) -> None:
        """As `Files.missing`; raises `Vanished` when the group itself went."""
        if error.errno not in _GONE:
            super().missing(file, error, now_us)
            return
        known, now = self.homes.get(file.directory, 0), _inode(file.directory)
        if (known and known != now) or _inode(self.anchor) != self.homes.get(self.anchor, 0):
            raise Vanished(self.group) from error
        if now and error.errno == errno.ENOENT:
            self.homes[file.directory] = now
            super().missing(file, error, now_us)
            return
        file.reason = "disabled" if now else "no_group"
        file.retry_us = now_us + REPROBE_GROUP_US


def _inode(directory: str) -> int:
    """Inode of a directory, 0 when there is none."""
    try:
        return os.stat(directory).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return 0


def read_all(
    groups: Sequence[GroupFiles], name: str, now_us: int, failed: Callable[[Exception], None]
) -> list[bytes | None]:
    """One file of each group; None where it is absent. What goes meanwhile leaves.

    The shortest way to the kernel for files that are kept; whatever does not go by it is read again
    by `Files.read`, which says why. ``failed`` hears of other errors.
    """
    contents: list[bytes | None] = []
    pread = os.pread
    for group in groups:
        data: bytes | None = None
        if not group.gone:
            file = group.files.get(name)
            try:
                if file is not None and file.fd >= 0 and not file.whole:
                    contents.append(pread(file.fd, READ_BYTES, 0))
                    continue
            except OSError:
                pass  # asked again below
            try:
                data = group.read(name, now_us)
            except Vanished:
                group.leave()
            except OSError as error:
                failed(error)
        contents.append(data)
    return contents
