"""Memory limits at and above the best-effort root: the one that will be reached first.

Best-effort pods die by the kernel's hand when their root, or a group that holds it (`kubepods` has
one wherever the kubelet enforces what is allocatable), reaches its limit. In use is what is charged
less the pages of files, which the kernel takes back before it kills. The sampler asks once a
second, `node_agent.reflex` in between and only for the distance.
"""

from __future__ import annotations

from collections.abc import Callable

from node_agent.cgroup.handles import GroupFiles, Vanished
from node_agent.cgroup.layout import Layout
from node_agent.signals.base import Value, number_after
from node_agent.signals.memory_charge import NO_LIMIT, parse_current, parse_limit

NAME = "memory_limits"
COLUMNS = ("be_memory_limit_bytes", "be_memory_used_bytes")
CLOSE_BYTES = 1 << 30  # what is charged may be cache: within so much of a limit it is looked into


class MemoryLimits:
    """The groups on the way from the best-effort root up; made anew with another root."""

    def __init__(
        self, layout: Layout, be_root: str, open_group: Callable[[str], GroupFiles]
    ) -> None:
        memory = layout.hierarchy("memory")
        self._prefix = b"\ntotal_" if memory is not None and memory.version == 1 else b"\n"
        parts = be_root.split("/") if memory is not None else []
        self._groups = [open_group("/".join(parts[:end])) for end in range(len(parts), 0, -1)]
        self._limits: list[tuple[GroupFiles, int]] = []

    def close(self) -> None:
        """Give the descriptors back."""
        for files in self._groups:
            files.close()

    def read(self, now_us: int) -> tuple[Value, ...]:
        """(limit, in use under it) in bytes; -1 and None without any limit, None where unknown."""
        self._limits = []
        known = False
        for files in self._groups:
            if files.gone and not files.meet():
                continue
            try:
                data = files.read("memory_limit", now_us)
            except Vanished:
                files.leave()
                continue
            if data is not None:
                known = True
                (limit,) = parse_limit(data)
                if limit is not None and limit != NO_LIMIT:
                    self._limits.append((files, limit))
        if not known:
            return None, None
        found = [
            (limit - used, limit, used)
            for files, limit in self._limits
            if (used := self._used(files, now_us)) is not None
        ]
        return min(found)[1:] if found else (NO_LIMIT, None)

    def room(self, now_us: int, mark_of: Callable[[int], int]) -> int | None:
        """Bytes left to the nearest mark, ``mark_of`` a limit; below 0: beyond. None: no limit.

        The limits are those of the last `read`.
        """
        least: int | None = None
        for files, limit in self._limits:
            mark = mark_of(limit)
            used = self._charged(files, now_us)
            if used is not None and used > mark - CLOSE_BYTES:
                used = self._used(files, now_us)
            if used is not None and (least is None or mark - used < least):
                least = mark - used
        return least

    def _charged(self, files: GroupFiles, now_us: int) -> int | None:
        if files.gone:
            return None
        try:
            data = files.glance("memory_current", now_us)
        except Vanished:
            return None
        return None if data is None else parse_current(data)[0]

    def _used(self, files: GroupFiles, now_us: int) -> int | None:
        charged = self._charged(files, now_us)
        if charged is None:
            return None
        try:
            data = files.read("memory_stat", now_us)
        except Vanished:
            return None
        return charged if data is None else max(0, charged - file_pages(data, self._prefix))


def file_pages(data: bytes, prefix: bytes) -> int:
    """Bytes on the lists of file pages in ``memory.stat``; ``prefix``: line end, on v1 `total_`."""
    text = b"\n" + data
    begin = max(0, text.find(prefix))
    active = number_after(text, prefix + b"active_file ", begin) or 0
    return active + (number_after(text, prefix + b"inactive_file ", begin) or 0)
