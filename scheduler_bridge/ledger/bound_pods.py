"""What Kubernetes holds: bound pods that have not ended, by what they request of batch and mid.

`scheduler_bridge.ledger.kubernetes` lists and watches pods into it and publishes the sums. A pod
that is being deleted holds its slice until its object is gone (``releasing``), for its containers
run until then. A pod without a node waits for room. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.pod_requests import pod_request
from scheduler_bridge.kube.quantities import at_most, whole
from scheduler_bridge.ledger.amounts import NOTHING, total
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.reconcile import Amount
from schemas.records import LedgerEntry

ENDED = ("Succeeded", "Failed")
Names = tuple[str, str, str, str]
"""Resources of batch cpu (milli) and memory, mid cpu (milli) and memory."""


@dataclass(frozen=True, slots=True)
class BorrowingPod:
    """A pod that asks for something that is lent; ``node`` is empty while it waits."""

    node: str
    amount: Amount
    leaving: bool


def borrowing(pod: Any, names: Names) -> BorrowingPod | None:
    """What the ledger keeps of a pod object; None where it asks for nothing lent, or has ended.

    Raises ValueError for a quantity that is none.
    """
    spec, status = pod.spec, pod.status
    if spec is None or (status is not None and status.phase in ENDED):
        return None
    amount = Amount(*(_asked(spec, name) for name in names))
    if amount == NOTHING:
        return None
    leaving = pod.metadata is not None and pod.metadata.deletionTimestamp is not None
    return BorrowingPod(spec.nodeName or "", amount, leaving)


def held_by_node(pods: Iterable[BorrowingPod]) -> dict[str, Held]:
    """What is held on each node, and what of it is on its way out."""
    all_: dict[str, list[BorrowingPod]] = defaultdict(list)
    for pod in pods:
        if pod.node:
            all_[pod.node].append(pod)
    return {
        node: Held(
            total(pod.amount for pod in some), total(pod.amount for pod in some if pod.leaving)
        )
        for node, some in all_.items()
    }


def waiting(pods: Iterable[BorrowingPod]) -> Amount:
    """What pods without a node ask for in all."""
    return total(pod.amount for pod in pods if not pod.node and not pod.leaving)


def entry(node: str, scheduler: str, held: Held) -> LedgerEntry:
    """The record that says so."""
    amount, releasing = held.amount, held.releasing
    return LedgerEntry(
        node, scheduler, amount.cpu_milli, amount.memory_bytes,
        releasing.cpu_milli, releasing.memory_bytes, (),
        amount.mid_cpu_milli, amount.mid_memory_bytes,
    )  # fmt: skip


def _asked(spec: Any, name: str) -> int:
    """Of one resource, over the containers, in its own integer unit."""
    each = []
    for container in spec.initContainers or ():
        sidecar = getattr(container, "restartPolicy", None) == "Always"
        each.append(("sidecar" if sidecar else "init", _of(container.resources, name)))
    each += [("main", _of(container.resources, name)) for container in spec.containers or ()]
    return pod_request(each) + _quantity(spec.overhead, name)


def _of(resources: Any, name: str) -> int:
    """A request; where only a limit is said, that is the request too."""
    if resources is None:
        return 0
    return _quantity({**(resources.limits or {}), **(resources.requests or {})}, name)


def _quantity(amounts: Mapping[str, str] | None, name: str) -> int:
    said = (amounts or {}).get(name)
    return at_most(whole, said) if said is not None else 0
