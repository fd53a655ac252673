"""What a pod asks for and may use at most, of its own priority class, and each of its containers.

Called by `node_agent.kubelet.facts`. Sum of a pod: Kubernetes `component-helpers/resource`: the
larger of its containers together and of its dearest moment of initialisation, plus overhead; an
init container that restarts always runs on beside the others (a sidecar). Mid and batch pods ask
in the extended resources of their class, whose CPU is counted in thousandths; what a pod does not
say there it asked for natively.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from agents.pod_requests import pod_request
from node_agent.containers import UNSAID, Amounts, Kind
from node_agent.kubelet import quantity, wire
from node_agent.kubelet.wire import Asked, ContainerSpec, Pod, Resources
from schemas.records import PriorityClass

EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
_ROWS: tuple[tuple[str, str, Callable[[object], int | None]], ...] = (
    ("cpu_milli", "cpu", quantity.milli),
    ("memory_bytes", "memory", quantity.whole),
    ("batch_cpu_milli", "kubernetes.io/batch-cpu", quantity.whole),
    ("batch_memory_bytes", "kubernetes.io/batch-memory", quantity.whole),
    ("mid_cpu_milli", "kubernetes.io/mid-cpu", quantity.whole),
    ("mid_memory_bytes", "kubernetes.io/mid-memory", quantity.whole),
)
"""Our name, the resource, its unit."""


class _Spec(msgspec.Struct):
    containers: dict[str, Asked] | None = None


def amounts(said: Resources | None) -> Amounts:
    """What of it is known here; a quantity that is none was not said."""
    found = {}
    for field, resource, unit in _ROWS:
        if said is not None and resource in said:
            amount = unit(said[resource])
            if amount is not None:
                found[field] = amount
    return Amounts(**found)


def noted(annotations: Mapping[str, str]) -> dict[str, Asked]:
    """What admission noted of containers, by name: their own fields may not be passed on."""
    note = wire.noted(annotations.get(EXTENDED_SPEC), _Spec)
    return (None if note is None else note.containers) or {}


def by_container(pod: Pod) -> list[tuple[ContainerSpec, Kind, Asked]]:
    """Each container, init containers first in their order, with what was asked for it."""
    other_words = noted(pod.metadata.annotations or {})
    found: list[tuple[ContainerSpec, Kind, Asked]] = []
    for spec in pod.spec.initContainers or []:
        kind: Kind = "sidecar" if spec.restartPolicy == "Always" else "init"
        found.append((spec, kind, spec.resources or Asked()))
    for spec in pod.spec.containers:
        said, other = spec.resources or Asked(), other_words.get(spec.name, Asked())
        asked = Asked(
            {**(other.requests or {}), **(said.requests or {})},
            {**(other.limits or {}), **(said.limits or {})},
        )
        found.append((spec, "app", asked))
    return found


def of_pod(
    pod: Pod, containers: Iterable[tuple[Kind, Amounts, Amounts]], priority_class: PriorityClass
) -> dict[str, Any]:
    """Fields of `schemas.records.PodFact`; a limit of -1 is none, and a limit alone is the request
    too. ``containers``: (kind, requests, limits), init containers first.
    """
    each = list(containers)
    overhead = amounts(pod.spec.overhead)
    whole = pod.spec.resources or Asked()
    found: dict[str, Any] = {}
    for resource in ("cpu_milli", "memory_bytes"):
        fields = _fields(resource, priority_class)
        asked = [
            (kind, _or(_first(requests, fields), _first(limits, fields)))
            for kind, requests, limits in each
        ]
        allowed = [_first(limits, fields) for kind, _, limits in each if kind != "init"]
        extra = max(_first(overhead, fields), 0)
        request, limit = pod_request(asked), UNSAID
        if allowed and UNSAID not in allowed:
            limit = sum(allowed) + extra
        request = _or(_first(amounts(whole.requests), fields), request) + extra
        pod_limit = _first(amounts(whole.limits), fields)
        limit = limit if pod_limit == UNSAID else pod_limit + extra
        name, unit = resource.split("_")
        found[f"{name}_request_{unit}"] = min(request, quantity.LARGEST)
        found[f"{name}_limit_{unit}"] = min(limit, quantity.LARGEST)
    return found


def _fields(resource: str, priority_class: PriorityClass) -> tuple[str, ...]:
    if priority_class in ("mid", "batch"):
        return (f"{priority_class}_{resource}", resource)
    return (resource,)


def _first(said: Amounts, fields: tuple[str, ...]) -> int:
    """The first amount that was said, or `UNSAID`."""
    return next((n for field in fields if (n := getattr(said, field)) != UNSAID), UNSAID)


def _or(amount: int, other: int) -> int:
    return other if amount == UNSAID else amount
