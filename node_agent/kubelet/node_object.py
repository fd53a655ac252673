"""The node as the API server knows it: labels, annotations, what can be allocated.

`node_agent.kubelet.watch` asks for it once a minute; without an API server the inventory file may
say the same labels and annotations. What annotations mean is read here for both. Contract of the
annotations: koordinator `apis/slo/v1alpha1/node.go`, `apis/extension/node_reservation.go`,
`cpu_normalization.go`, `node_resource_amplification.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agents.lending.reserved import cpus_of
from node_agent.kubelet import quantity
from node_agent.kubelet.wire import BadAnswer, Resources, noted

PATH = "/api/v1/nodes/{node}?resourceVersion=0"
"""From the API server's cache: a fleet asks for each of its nodes once a minute."""
THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM = "node.koordinator.sh/system-qos-resource"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
BATCH = "koord-batch"
KEPT = "slackwater.io/"
"""Of the annotations these travel on in the inventory; the others end here."""
_RATIO = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?\Z")


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct):
    allocatable: Resources | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""
    status: _Status = msgspec.field(default_factory=_Status)


class _Allocation(msgspec.Struct):
    name: str = ""
    priority: str = ""
    resources: Resources | None = None


class _Allocations(msgspec.Struct):
    allocations: list[_Allocation] | None = None


class _Reservation(msgspec.Struct):
    resources: Resources | None = None
    reservedCPUs: str = ""  # noqa: N815  (the wire's name)


class _System(msgspec.Struct):
    cpuset: str = ""
    cpusetExclusive: bool = True  # noqa: N815


def read(raw: bytes, node: str) -> dict[str, Any]:
    """Fields of `schemas.records.Inventory`. Raises `BadAnswer` for anything but this node."""
    try:
        said = msgspec.json.decode(raw, type=_Node)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"not a node: {error}") from None
    if said.kind != "Node" or said.metadata.name != node:
        raise BadAnswer(f"a {said.kind[:40]!r} {said.metadata.name[:80]!r} instead of node {node}")
    notes = said.metadata.annotations or {}
    raw_allocatable = noted(notes.get(RAW_ALLOCATABLE), dict[str, str | int | float]) or {}
    allocatable = {**(said.status.allocatable or {}), **raw_allocatable}
    cpu, memory = quantity.milli(allocatable.get("cpu")), quantity.whole(allocatable.get("memory"))
    found: dict[str, Any] = {"labels": said.metadata.labels or {}}
    if cpu is not None:
        found["cpu_allocatable_milli"] = cpu
    if memory is not None:
        found["memory_allocatable_bytes"] = memory
    return found | of_annotations(notes)


def of_annotations(notes: Mapping[str, str]) -> dict[str, Any]:
    """What annotations of a node say, as fields of the inventory; the unreadable say nothing."""
    found: dict[str, Any] = {
        "annotations": {key: text for key, text in notes.items() if key.startswith(KEPT)}
    }
    given = noted(notes.get(THIRD_PARTY), _Allocations)
    if given is not None:
        batch = [each.resources or {} for each in given.allocations or [] if each.priority == BATCH]
        cpu = (quantity.whole(each.get("kubernetes.io/batch-cpu")) or 0 for each in batch)
        memory = (quantity.whole(each.get("kubernetes.io/batch-memory")) or 0 for each in batch)
        found["third_party_cpu_milli"] = min(sum(cpu), quantity.LARGEST)
        found["third_party_memory_bytes"] = min(sum(memory), quantity.LARGEST)
    kept = noted(notes.get(RESERVATION), _Reservation)
    if kept is not None:
        resources = kept.resources or {}
        found["cpu_reserved_milli"] = quantity.milli(resources.get("cpu")) or 0
        found["memory_reserved_bytes"] = quantity.whole(resources.get("memory")) or 0
        if _cpus(kept.reservedCPUs):
            found["reserved_cpus"] = kept.reservedCPUs
    system = noted(notes.get(SYSTEM), _System)
    if system is not None and system.cpusetExclusive and _cpus(system.cpuset):
        found["system_cpus"] = system.cpuset
    ratio = notes.get(RATIO, "")
    if _RATIO.match(ratio):
        found["cpu_ratio_permille"] = quantity.milli(ratio)
    return found


def _cpus(said: str) -> bool:
    try:
        return bool(said) and bool(cpus_of(said))
    except ValueError:
        return False
