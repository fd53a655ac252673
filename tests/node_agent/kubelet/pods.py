"""Pods as the kubelet writes them, short to say in a test."""

from __future__ import annotations

from typing import Any

import orjson

ID = "4fd1c0ffee00112233445566778899aabbccddeeff00112233445566778899aa"


def container(
    name: str = "app", requests: Any = None, limits: Any = None, *, restart: str | None = None
) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "image": "registry/app:1", "resources": {}}
    for key, amounts in (("requests", requests), ("limits", limits)):
        if amounts is not None:
            said["resources"][key] = amounts
    if restart is not None:
        said["restartPolicy"] = restart
    return said


def pod(
    uid: str = "aaaaaaaa-1111-2222-3333-444444444444",
    name: str = "web-7d9c6bfb4f-x2k5p",
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    labels: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    owner: tuple[str, str] | None = None,
    ids: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One pod; ``ids``: container name -> its id with the runtime's name."""
    about: dict[str, Any] = {
        "name": name,
        "namespace": "shop",
        "uid": uid,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if owner is not None:
        kind, owned_by = owner
        about["ownerReferences"] = [{"kind": kind, "name": owned_by, "controller": True}]
    states = [
        {"name": key, "containerID": value, "ready": True, "restartCount": 0}
        for key, value in (ids or {}).items()
    ]
    return {
        "metadata": about | (meta or {}),
        "spec": {
            "nodeName": "node-1",
            "containers": list(containers) or [container()],
            "initContainers": list(init),
        }
        | (spec or {}),
        "status": {"phase": "Running", "containerStatuses": states} | (status or {}),
    }


def answer(*pods: Any, **changes: Any) -> bytes:
    """The body of GET /pods."""
    said = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}
    return orjson.dumps(said | changes)
