"""Groups of online pods: the second authority over paths, which can only give.

The other is `subtree`, where best effort lives. Which groups these are is said by the inventory of
the moment (or, after a crash, by the journal, which has it from an inventory), never by a command.
The list of files is short; each is written only to a value that gives at least as much as the file
gave before us. What could hold an online pod back (memory.high, io limits, freezing, lower shares)
is not on the list, so no command reaches it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Self

from agents.isolation.network import MAJOR, ONLINE_CLASS, SYSTEM_CLASS
from node_agent.actuators.beneath import Beneath, Parts, UnsafePath, Write, safe_parts

MOST = float("inf")
CONTAINER_DEPTH = 2  # a sandbox's own group, and what a runtime makes below it


class TakesAway(UnsafePath):
    """A write that would leave an online pod less than it had."""


def _number(text: str) -> float:
    """The last word as a number; ``max`` and -1 are no limit."""
    word = text.rsplit(maxsplit=1)[-1]
    return MOST if word in ("max", "-1") else float(word)


def _quota(text: str) -> float:
    """A v2 bandwidth as a share of one CPU."""
    quota, period = text.split()
    return MOST if quota == "max" else int(quota) / int(period)


def _at_least(measure: Callable[[str], float]) -> Callable[[str, str], bool]:
    return lambda text, original: measure(text) >= measure(original)


def _reclaims_ahead(text: str, original: str) -> bool:
    """Reclaim in the background spares the pod reclaim in its own time: never switched off."""
    return text == original or float(text) > 0


ONLINE_CLASSIDS = frozenset(str(MAJOR + minor) for minor in (SYSTEM_CLASS, ONLINE_CLASS))
"""Network classes that are never bounded below what they are promised."""
GIVES: dict[str, Callable[[str, str], bool]] = {
    "cpu.cfs_quota_us": _at_least(_number),
    "cpu.cfs_burst_us": _at_least(_number),
    "cpu.max": _at_least(_quota),
    "cpu.max.burst": _at_least(_number),
    "cpu.shares": _at_least(_number),
    "cpu.weight": _at_least(_number),
    "cpu.bvt_warp_ns": lambda text, original: int(text) >= int(original),
    "memory.min": _at_least(_number),
    "memory.low": _at_least(_number),
    "memory.wmark_ratio": _reclaims_ahead,
    "memory.wmark_scale_factor": _reclaims_ahead,
    "memory.wmark_min_adj": lambda text, original: int(text) <= int(original),
    "memory.priority": _at_least(_number),
    "memory.use_priority_oom": _at_least(_number),
    "net_cls.classid": lambda text, original: text in (original, *ONLINE_CLASSIDS),
    "io.weight": _at_least(_number),
    "io.bfq.weight": _at_least(_number),
    "blkio.bfq.weight": _at_least(_number),
}
"""File -> whether a text gives at least what the original gave."""

_KEY = object()


class OnlineNames:
    """Groups that are online pods', or lie right above such; made by `name_online` alone."""

    __slots__ = ("_above", "_pods")

    def __init__(self, key: object, pods: frozenset[Parts], above: frozenset[Parts]) -> None:
        """Only this module holds the key. Raises TypeError for everybody else."""
        if key is not _KEY:
            raise TypeError("OnlineNames are made by online.name_online only")
        self._pods, self._above = pods, above

    def holds(self, parts: Parts) -> bool:
        """Whether the group is named, or is a container's in a pod that is."""
        deepest = max(len(parts) - CONTAINER_DEPTH, 1)
        return parts in self._above or any(
            parts[:length] in self._pods for length in range(deepest, len(parts) + 1)
        )


def name_online(pods: Iterable[str], above: Iterable[str], be_root: str | None) -> OnlineNames:
    """The names. Raises UnsafePath for a path that is none, and for best-effort groups."""
    top = None if be_root is None else safe_parts(be_root)
    named = frozenset(safe_parts(pod) for pod in pods)
    tiers = frozenset(safe_parts(each) for each in above)
    for parts in named | tiers:
        if top is not None and parts[: len(top)] == top:
            raise UnsafePath(f"{'/'.join(parts)!r} is best-effort work's, not online")
    return OnlineNames(_KEY, named, tiers)


class OnlineGroups:
    """One hierarchy's online groups; holds one descriptor, of the mount point."""

    def __init__(self, mount: str, names: OnlineNames, write: Write = os.write) -> None:
        """Raises OSError when the mount is not there."""
        self.names = names
        self._beneath = Beneath(mount, write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        self._beneath.close()

    def write(self, group: str, file: str, text: str, original: str | None) -> None:
        """Write one file. Raises UnsafePath for a group that is not named or a file that is not on
        the list, TakesAway for less than the original, OSError as the kernel answers.
        """
        parts = safe_parts(group)
        if not self.names.holds(parts):
            raise UnsafePath(f"{group!r} is no online group that the inventory names")
        gives = GIVES.get(file)
        if gives is None or not text.strip() or original is None:
            raise UnsafePath(f"refusing to write {text!r} to {file!r} of an online group")
        if not gives(text, original):
            raise TakesAway(f"{file} of {group!r}: {text!r} is less than its own {original!r}")
        with self._beneath.open(parts) as directory:
            self._beneath.write(directory, file, text.encode())
