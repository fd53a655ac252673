"""What the extender needs of a node object: what it can hold and the bounds that it says itself.

Called for every node of the mirror. What an annotation says and cannot be read was not said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from lightkube.resources.core_v1 import Node
from msgspec import Meta

from agents.table import ABSENT
from scheduler_bridge.kube import quantities

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
THRESHOLDS_ANNOTATION = "scheduling.koordinator.sh/usage-thresholds"
"""The peer's: what a node can really hold, and its own bounds in percent by group."""
Percents = dict[str, Annotated[int, Meta(ge=0, le=100)]]
NO_GROUP = (ABSENT, ABSENT)


class NodeRow(msgspec.Struct, frozen=True, gc=False):
    """``allocatable`` in millicores and bytes; bounds in percent by group: usage, prod, aggregated.

    A group of ABSENTs was not said; a resource that a group does not name is ABSENT in it.
    """

    allocatable: tuple[int, int]
    bounds: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] = (NO_GROUP,) * 3
    score: str = ""


class _Aggregated(msgspec.Struct, rename="camel"):
    usage_thresholds: Percents | None = None
    usage_aggregation_type: str = ""


class _Thresholds(msgspec.Struct, rename="camel"):
    usage_thresholds: Percents | None = None
    prod_usage_thresholds: Percents | None = None
    aggregated_usage: _Aggregated | None = None


def read(node: Node, score_annotation: str) -> NodeRow:
    """Raises ValueError for an allocatable quantity that is none."""
    notes = (node.metadata.annotations if node.metadata is not None else None) or {}
    said: dict[str, Any] = dict((node.status.allocatable if node.status else None) or {})
    cpu = quantities.milli(str(said.get("cpu", "0")))
    memory = quantities.whole(str(said.get("memory", "0")))
    raw = _noted(notes, RAW_ALLOCATABLE, dict[str, str | int]) or {}
    with contextlib.suppress(ValueError):
        cpu, memory = (
            quantities.milli(str(raw.get("cpu", f"{cpu}m"))),
            quantities.whole(str(raw.get("memory", memory))),
        )
    return NodeRow((cpu, memory), _bounds(notes), notes.get(score_annotation, ""))


def _bounds(
    notes: Mapping[str, str],
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    said = _noted(notes, THRESHOLDS_ANNOTATION, _Thresholds)
    if said is None:
        return NO_GROUP, NO_GROUP, NO_GROUP
    by_rank = said.aggregated_usage
    # The peer: thresholds by percentile hold only where the kind of percentile is named too.
    ranked = by_rank.usage_thresholds if by_rank and by_rank.usage_aggregation_type else None
    return _pair(said.usage_thresholds), _pair(said.prod_usage_thresholds), _pair(ranked)


def _pair(said: Percents | None) -> tuple[int, int]:
    return ((said or {}).get("cpu", ABSENT), (said or {}).get("memory", ABSENT))


def _noted(notes: Mapping[str, str], key: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(notes[key], type=kind) if key in notes else None
    except msgspec.MsgspecError:
        return None
