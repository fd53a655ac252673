"""What only the start needed: pages of program files that were mapped, used once and stay resident.

`node_agent.process` calls it when all is imported and when all is wired. Code that is needed again
is mapped again from the page cache, a few pages at a time; nothing is read from disk for it. How
much of a library is resident after a start depends on how the kernel holds the file, by up to 4 MiB
for numpy alone.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

MAPS = Path("/proc/self/maps")
_LIBC = ctypes.CDLL(None, use_errno=True)
_DONTNEED = 4  # of madvise(2): of a file's pages that nobody wrote to, only the mapping goes


def give_back_start() -> int:
    """Unmap the code of this process's libraries; the bytes of address space it was done for.

    Only mappings of files that can be executed and not written: in all others there may be pages
    that exist nowhere else.
    """
    done = 0
    for line in MAPS.read_text("ascii", errors="replace").splitlines():
        span, permissions, _, _, inode, *path = line.split(maxsplit=5)
        if permissions != "r-xp" or inode == "0" or not path:
            continue
        begin, end = (int(address, 16) for address in span.split("-"))
        if _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED) == 0:
            done += end - begin
    return done
