"""Labels and annotations that speak of eviction, read as the peer reads them.

Source: koordinator `apis/extension/evict.go`, `qosmanager/plugins/util/evict.go`. `facts` is called
where the facts of a Kubernetes pod are made; a text that cannot be read never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agents.classes import Classes

OPTED_IN_LABEL = "koordinator.sh/eviction-enabled"
SUB_PRIORITY_LABEL = "koordinator.sh/priority"
EVICTION_PRIORITY_ANNOTATION = "koordinator.sh/eviction-priority"
POLICIES_ANNOTATION = "koordinator.sh/eviction-policy"
COST_ANNOTATION = "scheduling.koordinator.sh/eviction-cost"
EVICTABLE_ANNOTATION = "slackwater.io/evictable"
RECOVERABLE_ANNOTATION = "slackwater.io/recoverable"
CHECKPOINTED_ANNOTATION = "slackwater.io/checkpointed"
RETRIES_LEFT_ANNOTATION = "slackwater.io/retries-left"

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
SOURCE_ANNOTATION, API = "kubernetes.io/config.source", "api"
"""A static pod has a mirror in the API, and another source in the kubelet's list."""

FEATURES = ("be_memory", "memory_allocatable", "memory", "be_cpu", "cpu_allocatable", "cpu")
"""What pods call the features that may evict them."""
GATES = {
    "BEMemoryEvict": "be_memory", "MemoryAllocatableEvict": "memory_allocatable",
    "MemoryEvict": "memory", "BECPUEvict": "be_cpu", "CPUAllocatableEvict": "cpu_allocatable",
    "CPUEvict": "cpu",
}  # fmt: skip
"""Some lists name features by their gates."""
NO_FEATURE = "none"
"""Stands in a pod's facts for a list that allows no feature at all."""

_DECIMAL = re.compile(r"[+-]?[0-9]+\Z")
_ANY_BASE = re.compile(r"[+-]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+)\Z")
_OCTAL = re.compile(r"[+-]?0[0-7]+\Z")
_DIGITS_MAX = 40
"""No number of 32 bits is longer, in any base with its prefix."""
INT32 = range(-(1 << 31), 1 << 31)
"""What the peer takes for such a number."""


def may_go(said: Classes, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a pod may be evicted at all, by what it says: no static pod, nobody who opted out.

    A pod that merely asks for nothing may be a daemon of the cluster: of best-effort pods only who
    says so is prey. Opted out by a label or annotation of ours, or by the peer's highest cost.
    """
    if MIRROR_ANNOTATION in annotations or annotations.get(SOURCE_ANNOTATION, API) != API:
        return False
    if "false" in (annotations.get(EVICTABLE_ANNOTATION), labels.get(EVICTABLE_ANNOTATION)):
        return False
    if eviction_priority(annotations.get(COST_ANNOTATION)) == INT32[-1]:
        return False
    return said.qos != "BE" or said.qos_raw == "BE" or said.priority_raw in ("batch", "free")


def opted_in(label: str | None) -> bool:
    """Whether a pod offers itself to eviction by priority: the word is ``true``, no other."""
    return label == "true"


def eviction_priority(annotation: str | None) -> int:
    """A decimal number of 32 bits; anything else ranks as 0."""
    if annotation is None or len(annotation) > _DIGITS_MAX or not _DECIMAL.match(annotation):
        return 0
    number = int(annotation)
    return number if number in INT32 else 0


def sub_priority(label: str | None) -> int | None:
    """A number of 32 bits in any base that its prefix names (0x, 0o, 0b, 0); None otherwise."""
    if label is None or len(label) > _DIGITS_MAX:
        return None
    if _OCTAL.match(label):
        number = int(label, 8)
    elif _ANY_BASE.match(label):
        number = int(label, 0)
    else:
        return None
    return number if number in INT32 else None


def policies(annotation: str | None) -> frozenset[str] | None:
    """Features that may evict the pod. None: no annotation, any; not a list of strings: none."""
    if annotation is None:
        return None
    try:
        return frozenset(msgspec.json.decode(annotation.encode(errors="replace"), type=list[str]))
    except (msgspec.DecodeError, RecursionError):
        return frozenset()


def allows(named: frozenset[str] | None, feature: str) -> bool:
    """Whether ``feature`` may evict a pod that names these policies."""
    return named is None or feature in named


def canonical(named: frozenset[str] | None) -> frozenset[str] | None:
    """The same list with features instead of their gates."""
    return None if named is None else frozenset(GATES.get(name, name) for name in named)


def facts(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """What a Kubernetes pod says of its eviction, as fields of `schemas.records.PodFact`."""
    named = canonical(policies(annotations.get(POLICIES_ANNOTATION)))
    retries = eviction_priority(annotations.get(RETRIES_LEFT_ANNOTATION, "-1"))
    return {
        "eviction_priority": eviction_priority(annotations.get(EVICTION_PRIORITY_ANNOTATION)),
        "sub_priority": sub_priority(labels.get(SUB_PRIORITY_LABEL)),
        "opted_in": opted_in(labels.get(OPTED_IN_LABEL)),
        "evict_features": () if named is None else tuple(sorted(named)) or (NO_FEATURE,),
        "recoverable": _YES_NO.get(annotations.get(RECOVERABLE_ANNOTATION, "")),
        "checkpointed": annotations.get(CHECKPOINTED_ANNOTATION) == "true",
        "retries_left": max(retries, -1),
    }


_YES_NO = {"true": True, "false": False}
