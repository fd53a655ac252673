"""Files that are read now and then: opened, read and closed. Called by the signals that go round.

A kept descriptor would cost more than it saves, and one of /proc/PID/net would keep a network
namespace alive.
"""

from __future__ import annotations

import errno
import os

from node_agent.cgroup.handles import READ_BYTES

_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


def read_once(path: str, at_most_bytes: int = READ_BYTES) -> bytes | None:
    """Up to ``at_most_bytes`` of a file, ending at a line; None when its owner is gone.

    Raises OSError for what is there and cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    parts: list[bytes] = []
    size = 0
    try:
        while size < at_most_bytes and (part := os.read(fd, READ_BYTES)):
            parts.append(part)
            size += len(part)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    finally:
        os.close(fd)
    data = b"".join(parts)
    return data[: data.rfind(b"\n") + 1]


def read_numbers(path: str, at_most_bytes: int) -> list[int] | None:
    """The numbers of a list such as ``cgroup.procs``; None when its group is gone.

    A group of threads (v2) lists no processes: whoever may make groups may make one.
    """
    try:
        data = read_once(path, at_most_bytes)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise
    return None if data is None else [int(word) for word in data.split()]
