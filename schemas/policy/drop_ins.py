"""A policy in several files: a main one, and drop-ins laid over it in the order of their names.

Called by the command line, which reads the files. Keys are merged section by section; selector
entries with the same name are one entry, new names come after the others; what is no mapping is
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.policy.document import Policy
from schemas.policy.reading import check_keys, of_document

ENTRIES = "nodes"


def merged(files: Iterable[tuple[str, Any]]) -> tuple[Any, Policy]:
    """(document, policy) of (source, document) pairs. Raises BadPolicy, naming the file."""
    whole: Any = {}
    sources: list[str] = []
    for source, document in files:
        check_keys(document, source)
        whole = _over(whole, document)
        sources.append(source)
    return whole, of_document(whole, " with ".join(sources))


def _over(below: Any, above: Any) -> Any:
    """``above`` laid over ``below``; neither is changed."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    result = dict(below)
    for key, value in above.items():
        if key == ENTRIES and key in below:
            result[key] = _entries(below[key], value)
        elif key in ("match", "control_group"):
            result[key] = value  # half of another selector would select nobody knows whom
        else:
            result[key] = _over(below.get(key), value) if key in below else value
    return result


def _entries(below: list[Any], above: list[Any]) -> list[Any]:
    by_name = {entry["name"]: entry for entry in below}
    for entry in above:
        name = entry["name"]
        by_name[name] = _over(by_name[name], entry) if name in by_name else entry
    return list(by_name.values())
