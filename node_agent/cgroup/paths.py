"""Group paths: relative to a hierarchy's root, normal form, never empty, never upwards.

Called by the inventory and by whoever opens or writes a group. One group has the same relative
path in each hierarchy.
"""

from __future__ import annotations


class GroupPathError(ValueError):
    """A group path that must not be used; the message says which path and why."""


def normal_group(path: str) -> str:
    """Return ``path`` without leading and trailing slashes.

    Raises `GroupPathError` for the hierarchy root, an empty path, ``.``, ``..``, doubled slashes
    and control characters: an empty path would name every process of the machine.
    """
    trimmed = path.strip("/")
    if not trimmed:
        raise GroupPathError(f"group path {path!r} names the hierarchy root; name a group below it")
    for part in trimmed.split("/"):
        if part in ("", ".", ".."):
            raise GroupPathError(f"group path {path!r} contains {part!r}; write it in plain form")
        if not part.isprintable():
            raise GroupPathError(f"group path {path!r} contains a control character")
    return trimmed


def strictly_inside(group: str, ancestor: str) -> bool:
    """Whether ``group`` lies below ``ancestor`` and is not ``ancestor`` itself (both normal)."""
    return group.startswith(ancestor + "/")


def overlaps(group: str, other: str) -> bool:
    """Whether one of two normal paths is the other, or lies inside it."""
    return group == other or strictly_inside(group, other) or strictly_inside(other, group)
