"""What a node object shows of us, and the patch that makes it show more. Pure; for the sink.

Ours are four names in ``capacity`` (all that may be borrowed) and ``allocatable`` (what is offered:
without new work no more than is lent), one annotation that explains them, and one label. The
label stands only where no new work is wanted: a batch pod whose node affinity excludes it is placed
by any scheduler's own rules. A merge patch of these keys leaves every other as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler_bridge.kube.quantities import from_whole, whole
from scheduler_bridge.reconcile import Amount, Observed, Patch

if TYPE_CHECKING:  # the sink that only records needs no client
    from lightkube.models.core_v1 import Node

ANNOTATION = "slackwater.io/capacity"
LABEL = "slackwater.io/new-work"
REFUSED = "false"
Names = tuple[str, str, str, str]
"""Of batch CPU (integer millicores), batch memory (bytes), mid CPU and mid memory."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A version of a node object; ``observed`` is None where we never told anything."""

    version: str
    observed: Observed | None


class _Said(msgspec.Struct):
    """The annotation: where the numbers come from, and when (log time) they were born and told."""

    why: str
    reason: str
    cause: tuple[int, int]
    policy: str
    seen_ms: int
    at_ms: int


def shown(node: Node, names: Names) -> Shown:
    """What this object shows; keys that someone wiped count as 0."""
    meta = node.metadata
    assert meta is not None
    version = meta.resourceVersion or ""
    try:
        said = msgspec.json.decode((meta.annotations or {})[ANNOTATION], type=_Said)
    except (KeyError, msgspec.MsgspecError):
        return Shown(version, None)
    status = node.status
    has = (status.capacity if status else None) or {}
    offers = (status.allocatable if status else None) or {}
    return Shown(
        version,
        Observed(
            _amount(has, names),
            (meta.labels or {}).get(LABEL) != REFUSED,
            said.cause,
            said.seen_ms,
            said.at_ms,
            _amount(offers, names),
        ),
    )


def body(patch: Patch, names: Names, version: str | None = None) -> dict[str, Any]:
    """The merge patch of a node's status. With ``version``: of that version only, or 409."""
    said = _Said(patch.why, patch.reason, patch.order, patch.policy, patch.seen_ms, patch.at_ms)
    meta: dict[str, Any] = {
        "annotations": {ANNOTATION: msgspec.json.encode(said).decode()},
        "labels": {LABEL: None if patch.new_work else REFUSED},
    }
    if version is not None:
        meta["resourceVersion"] = version
    return {
        "metadata": meta,
        "status": {
            "capacity": _quantities(patch.amount, names),
            "allocatable": _quantities(patch.offered, names),
        },
    }


def _quantities(amount: Amount, names: Names) -> dict[str, str]:
    return dict(zip(names, map(from_whole, amount.each()), strict=True))


def _amount(resources: dict[str, str], names: Names) -> Amount:
    return Amount(*(_units(resources.get(name, "0")) for name in names))


def _units(quantity: str) -> int:
    """Someone else's nonsense is as good as nothing: it differs, so ours is written over it."""
    try:
        return whole(quantity)
    except ValueError:
        return 0
