"""The smallest JSON patch (RFC 6902) from one document to another. Called by the mutating webhook.

Only what differs is said, so that what other webhooks set beside it stays theirs.
"""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any, path: str = "") -> list[Operation]:
    """Operations that make ``after`` of ``before``, parts in the order of their keys."""
    if before == after and isinstance(before, bool) == isinstance(after, bool):
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_mappings(before, after, path)
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        return _of_lists(before, after, path)
    return [{"op": "replace", "path": path, "value": after}]


def _of_mappings(before: dict[str, Any], after: dict[str, Any], path: str) -> list[Operation]:
    found: list[Operation] = []
    for key in sorted(before.keys() | after.keys()):
        below = f"{path}/{escaped(key)}"
        if key not in after:
            found.append({"op": "remove", "path": below})
        elif key not in before:
            found.append({"op": "add", "path": below, "value": after[key]})
        else:
            found += difference(before[key], after[key], below)
    return found


def _of_lists(before: list[Any], after: list[Any], path: str) -> list[Operation]:
    """Element by element, and what is new at the end."""
    found: list[Operation] = []
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
        found += difference(old, new, f"{path}/{i}")
    for i in range(len(before), len(after)):
        found.append({"op": "add", "path": f"{path}/{i}", "value": after[i]})
    return found


def escaped(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
