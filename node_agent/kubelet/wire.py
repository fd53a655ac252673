"""The kubelet's pod list as it comes over the wire: only the fields that are read, each pod alone.

Called by `node_agent.kubelet.facts`. Pods are written by tenants: one that cannot be read is left
out and counted, the others stand. Shapes: Kubernetes `core/v1`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from schemas.packed import MAX_PODS

Amount = str | int | float
Resources = dict[str, Amount]


class BadAnswer(ValueError):
    """An answer that is no list of pods at all; the last good one holds."""


class Owner(msgspec.Struct):
    """Who made a pod."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct):
    uid: str
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815  (the wire's name)
    ownerReferences: list[Owner] | None = None  # noqa: N815


class Asked(msgspec.Struct):
    requests: Resources | None = None
    limits: Resources | None = None


class ContainerSpec(msgspec.Struct):
    name: str
    resources: Asked | None = None
    restartPolicy: str | None = None  # noqa: N815


class Spec(msgspec.Struct):
    containers: list[ContainerSpec]
    initContainers: list[ContainerSpec] | None = None  # noqa: N815
    overhead: Resources | None = None
    resources: Asked | None = None  # of the whole pod
    priority: int | None = None
    nodeName: str | None = None  # noqa: N815


class ContainerStatus(msgspec.Struct):
    name: str
    containerID: str | None = None  # noqa: N815


class Status(msgspec.Struct):
    phase: str | None = None
    qosClass: str | None = None  # noqa: N815
    containerStatuses: list[ContainerStatus] | None = None  # noqa: N815
    initContainerStatuses: list[ContainerStatus] | None = None  # noqa: N815


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Spec
    status: Status = msgspec.field(default_factory=Status)


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    message: Any = None  # of a Status, which stands for an error


class Pods(NamedTuple):
    """Pods of one answer, and how many of it could not be read."""

    pods: list[Pod]
    unread: int


ANNOTATION_CHARACTERS = 64 * 1024
"""A longer annotation is not read."""
_Said = TypeVar("_Said")
_LIST = msgspec.json.Decoder(_List)
_POD = msgspec.json.Decoder(Pod)


def noted(annotation: str | None, kind: type[_Said]) -> _Said | None:
    """An annotation that holds JSON; None when there is none, or it cannot be read as that."""
    if annotation is None or len(annotation) > ANNOTATION_CHARACTERS:
        return None
    try:
        return msgspec.json.decode(annotation.encode(), type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def pods(raw: bytes) -> Pods:
    """The pods of one answer. Raises `BadAnswer` for anything but a list of pods."""
    try:
        said = _LIST.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"not a list of pods: {error}") from None
    if said.kind not in ("PodList", "List"):
        raise BadAnswer(f"a {said.kind[:40]!r} instead of a PodList: {str(said.message)[:200]}")
    items = said.items or []
    found: list[Pod] = []
    for item in items[:MAX_PODS]:
        try:
            found.append(_POD.decode(item))
        except (msgspec.DecodeError, RecursionError):
            continue
    return Pods(found, len(items) - len(found))
