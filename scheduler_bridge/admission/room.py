"""What is left on nodes, and whether pods have a place on them all at once. Pure.

Made by `gang_keeper` from the mirrors of nodes and pods for each decision on gangs. It asks what
the scheduler's filters of resources, selectors, cordons and taints ask; affinity, spread, ports and
volumes are left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_bridge.admission.pod import amount, containers_of, requests_of

PODS = "pods"
HARD_EFFECTS = ("NoSchedule", "NoExecute")
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Wants:
    """What a pod needs of a node: amounts by resource name, labels, which taints it bears."""

    amounts: Amounts
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a node has; ``taints`` are those that keep pods off."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    open: bool = True  # ready and not cordoned


def node_of(node: Mapping[str, Any]) -> NodeView:
    """A node of core/v1 from its JSON. Raises ValueError for a quantity that is none."""
    about, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
    return NodeView(
        name=about["name"],
        allocatable=amounts_of(status.get("allocatable") or {}),
        labels=about.get("labels") or {},
        taints=tuple(one for one in spec.get("taints") or () if one.get("effect") in HARD_EFFECTS),
        open=ready and not spec.get("unschedulable"),
    )


def wants_of(spec: Mapping[str, Any]) -> Wants:
    """What a pod of this spec needs of a node. Raises ValueError for a quantity that is none."""
    named = {
        name
        for _, one in containers_of(spec)
        for kind in ("requests", "limits")
        for name in (one.get("resources") or {}).get(kind) or {}
    }
    whole = (spec.get("resources") or {}).get("requests") or {}
    names = tuple(sorted(named | whole.keys() | (spec.get("overhead") or {}).keys()))
    return Wants(
        requests_of(spec, names),
        spec.get("nodeSelector") or {},
        tuple(spec.get("tolerations") or ()),
    )


def amounts_of(said: Mapping[str, Any]) -> dict[str, int]:
    """Thousandths of native CPU, whole units of all else."""
    return {name: amount(quantity, name) for name, quantity in said.items()}


class Room:
    """Amounts left by node; `take` books places for all of a group, or for none."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._nodes = {node.name: node for node in nodes if node.open}
        self._left = {name: dict(node.allocatable) for name, node in self._nodes.items()}

    def put(self, node: str, amounts: Amounts) -> None:
        """A pod is bound there: its amounts are gone, whether they fit or not."""
        left = self._left.get(node)
        if left is not None:
            _subtract(left, amounts)

    def take(self, wanted: Sequence[Wants]) -> str:
        """Book a place for each, the largest first; "" when all have one, else what is lacking."""
        trial = {name: dict(left) for name, left in self._left.items()}
        for one in sorted(wanted, key=_size):
            place = self._place(trial, one)
            if place is None:
                return _lack(one)
            _subtract(trial[place], one.amounts)
        self._left = trial
        return ""

    def take_what_fits(self, wanted: Iterable[Wants]) -> None:
        """Book a place for each that has one: pods on their way to a node not yet known."""
        for one in wanted:
            place = self._place(self._left, one)
            if place is not None:
                _subtract(self._left[place], one.amounts)

    def _place(self, trial: Mapping[str, Mapping[str, int]], one: Wants) -> str | None:
        """The node with the least left that still fits, so that large places stay whole."""
        fits = [
            (sum(left.get(resource, 0) for resource in one.amounts), name)
            for name, left in trial.items()
            if _fits(left, one.amounts) and _takes(self._nodes[name], one)
        ]
        return min(fits)[1] if fits else None


def _fits(left: Mapping[str, int], amounts: Amounts) -> bool:
    return left.get(PODS, 0) >= 1 and all(
        left.get(resource, 0) >= amount for resource, amount in amounts.items()
    )


def _takes(node: NodeView, one: Wants) -> bool:
    return all(node.labels.get(key) == value for key, value in one.selector.items()) and all(
        any(_bears(toleration, taint) for toleration in one.tolerations) for taint in node.taints
    )


def _bears(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """As core/v1 has it: no key with Exists bears all, no effect bears each effect."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _subtract(left: dict[str, int], amounts: Amounts) -> None:
    for resource, asked in amounts.items():
        left[resource] = left.get(resource, 0) - asked
    left[PODS] = left.get(PODS, 0) - 1


def _size(one: Wants) -> tuple[tuple[int, ...], str]:
    return tuple(-one.amounts[key] for key in sorted(one.amounts)), repr(sorted(one.amounts))


def _lack(one: Wants) -> str:
    asked = ", ".join(f"{resource} {one.amounts[resource]}" for resource in sorted(one.amounts))
    return f"no node is left for a pod of {asked or 'nothing'}"
