"""The note of what containers ask for beyond native resources, for those who cannot see the spec.

Koordinator's annotation `node.koordinator.sh/extended-resource-spec`: JSON by container name. The
node agent reads it before a container is made. Written by `translate`, read by `pod`. Pure.
"""

from __future__ import annotations

import json
from typing import Any

from scheduler_bridge.kube import quantities

CHARACTERS_MAX = 64 * 1024


def note_of(containers: dict[str, dict[str, dict[str, str]]]) -> str:
    """The same text for the same amounts: a second call changes nothing."""
    return json.dumps({"containers": containers}, sort_keys=True, separators=(",", ":"))


def containers_of(annotation: str | None) -> dict[str, dict[str, dict[str, str]]]:
    """By container: requests and limits. What cannot be read was not said."""
    if annotation is None or len(annotation) > CHARACTERS_MAX:
        return {}
    try:
        said = json.loads(annotation)
    except (ValueError, RecursionError):
        return {}
    containers = said.get("containers") if isinstance(said, dict) else None
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name, one in containers.items() if isinstance(containers, dict) else ():
        found[name] = {
            kind: {str(resource): str(value) for resource, value in one[kind].items()}
            for kind in ("requests", "limits")
            if isinstance(one, dict) and isinstance(one.get(kind), dict)
        }
    return found


def of_note(annotation: str | None, resources: tuple[str, ...]) -> dict[str, int]:
    """Sums of the containers, a limit alone asks too: CPU in thousandths, memory in bytes."""
    found: dict[str, int] = {}
    for one in containers_of(annotation).values():
        asked: dict[str, Any] = {**one.get("limits", {}), **one.get("requests", {})}
        for resource in resources:
            if resource in asked:
                found[resource] = found.get(resource, 0) + _amount(asked[resource], resource)
    return found


def _amount(said: str, resource: str) -> int:
    try:
        read_as = quantities.milli if resource == "cpu" else quantities.whole
        return quantities.at_most(read_as, said)
    except ValueError:
        return 0
