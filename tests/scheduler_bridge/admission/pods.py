"""Pods as JSON, as the API server sends them, and a JSON patch carried out."""

from __future__ import annotations

import copy
from typing import Any

BE = {"koordinator.sh/qosClass": "BE"}


def pod(
    requests: dict[str, str] | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    priority: int | None = None,
    **spec: Any,
) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if requests is not None:
        resources["requests"] = dict(requests)
    if limits is not None:
        resources["limits"] = dict(limits)
    container = {"name": "main", "image": "none.invalid/x", "resources": resources}
    document: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [container], **spec},
    }
    if labels:
        document["metadata"]["labels"] = dict(labels)
    if annotations:
        document["metadata"]["annotations"] = dict(annotations)
    if priority is not None:
        document["spec"]["priority"] = priority
    return document


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as add, remove and replace go."""
    box = {"": copy.deepcopy(document)}
    for one in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")]
        at: Any = box
        for part in parts[:-1]:
            at = at[int(part) if isinstance(at, list) else part]
        last: Any = int(parts[-1]) if isinstance(at, list) else parts[-1]
        if one["op"] == "remove":
            del at[last]
        elif one["op"] == "add" and isinstance(at, list):
            at.insert(last, copy.deepcopy(one["value"]))
        else:
            assert one["op"] == "add" or last in at or isinstance(at, list)
            at[last] = copy.deepcopy(one["value"])
    return box[""]
