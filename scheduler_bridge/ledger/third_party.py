"""The peer's contract with allocators that are no Kubernetes schedulers, both ways. Pure.

Two annotations of a node (peer: apis/slo/v1alpha1/node.go, batch only). `ORIGIN` says what could be
lent before anything of third parties was taken off; we write it. In `ALLOCATIONS` each allocator
says, under a name of its own, what it has given out of batch: we write ours by name and leave the
others, and what others wrote counts in the ledger as held by a scheduler of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import orjson

from scheduler_bridge.kube.quantities import at_most, from_whole, whole
from scheduler_bridge.ledger.amounts import NOTHING, total
from scheduler_bridge.reconcile import Amount
from schemas.ledger import NAME

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
BATCH = "koord-batch"


def origin(lendable: Amount, cpu_name: str, memory_name: str) -> str:
    """The annotation of what could be lent in batch, third parties' part included."""
    return orjson.dumps({"resources": _resources(lendable, cpu_name, memory_name)}).decode()


def with_ours(
    standing: str | None, ours: Mapping[str, Amount], cpu_name: str, memory_name: str
) -> str:
    """The annotation with our allocators' amounts in place of what it said under their names.

    One that cannot be read is replaced: nobody could read it.
    """
    try:
        others = [one for one in _allocations(standing) if one.get("name") not in ours]
    except ValueError:
        others = []
    own = [
        {
            "name": name,
            "priority": BATCH,
            "resources": _resources(amount, cpu_name, memory_name),
        }
        for name, amount in sorted(ours.items())
    ]
    return orjson.dumps({"allocations": [*others, *own]}).decode()


def of_others(
    standing: str | None, ours: Collection[str], cpu_name: str, memory_name: str
) -> dict[str, Amount]:
    """What each other allocator has given out of batch; several lines of one name are summed.

    Raises ValueError where the annotation cannot be read: what counted before goes on counting.
    """
    found: dict[str, Amount] = {}
    for one in _allocations(standing):
        name = one.get("name")
        if one.get("priority") != BATCH or name in ours:
            continue
        if not NAME.fullmatch(name if isinstance(name, str) else ""):
            raise ValueError(f"{ALLOCATIONS}: an allocator's name is {name!r:.80}")
        resources = one.get("resources")
        if not isinstance(resources, dict):
            resources = {}
        amount = Amount(*(_figure(resources, of) for of in (cpu_name, memory_name)))
        found[str(name)] = total([found.get(str(name), NOTHING), amount])
    return found


class _Allocations(msgspec.Struct):
    allocations: list[dict[str, Any]] | None = None


def _allocations(standing: str | None) -> list[dict[str, Any]]:
    if not standing:
        return []
    try:
        return msgspec.json.decode(standing, type=_Allocations).allocations or []
    except msgspec.MsgspecError as error:
        raise ValueError(f"{ALLOCATIONS}: {error}") from None


def _resources(amount: Amount, cpu_name: str, memory_name: str) -> dict[str, str]:
    return {
        cpu_name: from_whole(amount.cpu_milli), memory_name: from_whole(amount.memory_bytes),
    }  # fmt: skip


def _figure(resources: dict[str, Any], name: str) -> int:
    return at_most(whole, str(resources.get(name, 0)))
