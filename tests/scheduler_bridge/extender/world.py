"""Records, pods and nodes as tests and the bench of the extender make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.extender import nodes, pods
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.records import Records
from scheduler_bridge.extender.settings import SCORE_ANNOTATION, Resources
from schemas import codec, ledger
from schemas.policy import Policy
from schemas.records import Capacity, Cause, LedgerEntry, Reservation, Signal

NOW_MS = 1_700_000_000_000
CPU, MEMORY = 16_000, 64 << 30
KINDS = ("p50", "p90", "p95", "p99")
NAMES = Resources()


def cause(at_ms: int, offset: int = 0) -> Cause:
    return Cause(1, 0, offset or at_ms % 1_000_000, at_ms, "abc", 1)


def reservation(
    node: str,
    system_milli: int,
    *,
    at_ms: int = NOW_MS,
    system_bytes: int = 1 << 30,
    pods: Mapping[str, tuple[int, int]] | None = None,
    rank_milli: Sequence[int] = (),
    rank_bytes: Sequence[int] = (),
) -> Reservation:
    """A report: what the system uses, what each pod uses, and percentiles as `KINDS`."""
    each = pods or {}
    return Reservation(
        node=node,
        cause=cause(at_ms),
        warm_ms=600_000,
        cpu_milli={},
        memory_bytes={},
        cpu_percentiles_milli=dict(zip(KINDS, rank_milli, strict=False)),
        memory_percentiles_bytes=dict(zip(KINDS, rank_bytes, strict=False)),
        system_cpu_milli=system_milli,
        system_memory_bytes=system_bytes,
        pods=tuple(each),
        pod_cpu_milli={"usage": [cpu for cpu, _ in each.values()]},
        pod_memory_bytes={"usage": [memory for _, memory in each.values()]},
    )


def capacity(
    node: str,
    milli: int,
    *,
    at_ms: int = NOW_MS,
    offset: int = 0,
    new_work: bool = True,
    workloads: tuple[str, ...] = (),
    mid_milli: int = 0,
) -> Capacity:
    return Capacity(
        node, cause(at_ms, offset), milli, milli << 20, "usage", new_work,
        mid_cpu_milli=mid_milli, mid_memory_bytes=mid_milli << 20, workloads=workloads,
    )  # fmt: skip


def document(
    name: str,
    *,
    asks: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: int | None = None,
    node: str = "",
    owner: str = "",
    phase: str = "Pending",
    uid: str = "",
) -> dict[str, Any]:
    """A pod as the API server shows it; without limits they are the requests."""
    asked = dict(asks or {})
    native = {"cpu", "memory"} & asked.keys()
    allowed = asked if limits is None else dict(limits)
    meta: dict[str, Any] = {
        "name": name, "namespace": "test", "uid": uid or f"uid-{name}",
        "labels": dict(labels or {}), "annotations": dict(annotations or {}),
    }  # fmt: skip
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}
        ]
    spec: dict[str, Any] = {
        "containers": [
            {"name": "main", "image": "none", "resources": {"requests": asked, "limits": allowed}}
        ]
    }
    if priority is not None:
        spec["priority"] = priority
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec,
        "status": {"phase": phase, "qosClass": "Burstable" if native else "BestEffort"},
    }  # fmt: skip


def batch(milli: int, size: int = 1 << 20) -> dict[str, str]:
    return {NAMES.batch_cpu: str(milli), NAMES.batch_memory: str(size)}


def row(name: str, **given: Any) -> PodRow:
    """The same pod as the extender keeps it."""
    return pods.read(msgspec.convert(document(name, **given), Pod), NAMES)


def node_document(
    name: str, cpu_milli: int = CPU, size: int = MEMORY, notes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": dict(notes or {})},
        "status": {"allocatable": {"cpu": f"{cpu_milli}m", "memory": str(size), "pods": "110"}},
    }  # fmt: skip


class World:
    """A fleet and the fold that feeds it, with records as bytes, as the reader has them."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.fleet = Fleet(policy or Policy())
        self.records = Records(self.fleet, "kubernetes")

    def join(self, *names: str, notes: Mapping[str, str] | None = None) -> None:
        for name in names:
            made = msgspec.convert(node_document(name, notes=notes), Node)
            self.fleet.set_node(name, nodes.read(made, SCORE_ANNOTATION))

    def hear(self, *records: Reservation | Signal | Capacity | LedgerEntry) -> list[str]:
        topics = {
            Reservation: "reservations", Signal: "signals", Capacity: "capacity",
            LedgerEntry: "ledger",
        }  # fmt: skip
        fates = []
        for record in records:
            key = record.node.encode()
            if isinstance(record, LedgerEntry):
                key = ledger.entry_key(record.node, record.scheduler)
            fates.append(self.records.fold(topics[type(record)], key, codec.encode(record), NOW_MS))
        return list(fates)
