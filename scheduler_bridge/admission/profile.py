"""Co-location profiles: which of them a pod is chosen by, and what they make of it. Pure.

Called by `mutate` for each pod that is created. As koordinator's ClusterColocationProfile
(`pkg/webhook/pod/mutating/cluster_colocation_profile.go`): all that match apply, in the order of
their names, a later one over an earlier one. Here a second call finds the same profiles and changes
nothing: `check` refuses selectors that look at what a profile sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.classes import PRIORITY_LABEL, QOS_LABEL
from agents.eviction.labels import SUB_PRIORITY_LABEL
from scheduler_bridge.admission.names import DRAWN_ANNOTATION
from scheduler_bridge.admission.rules import AS_IS, Expression, Profile, Selector
from schemas.errors import BadPolicy

HUNDRED = 100
Labels = Mapping[str, str]


class ProfileError(ValueError):
    """A profile cannot be applied as the cluster is; says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Priority:
    """A PriorityClass of the cluster."""

    value: int
    preemption: str = "PreemptLowerPriority"


def selects(selector: Selector, labels: Labels) -> bool:
    """Whether all of it is true of the labels; one that says nothing does not restrict."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(one, labels) for one in selector.match_expressions
    )


def matching(profiles: Iterable[Profile], pod: Labels, namespace: Labels) -> list[Profile]:
    """Those that choose the pod, in the order in which they apply."""
    return sorted(
        (one for one in profiles if selects(one.pods, pod) and selects(one.namespaces, namespace)),
        key=lambda one: one.name,
    )


def drawn(profiles: list[Profile], pod: dict[str, Any], lot: str) -> list[Profile]:
    """Those whose percentage takes this pod; lots are drawn by ``lot`` once and noted on the pod.

    Exactly ``percent`` of 100 lots take a pod: the same lot and name give the same answer anywhere.
    """
    rare = [one for one in profiles if one.percent < HUNDRED]
    if not rare:
        return profiles
    notes = pod["metadata"].setdefault("annotations", {})
    said = notes.get(DRAWN_ANNOTATION)
    if said is None:
        takes = {one.name for one in rare if _lot(lot, one.name) < one.percent}
        notes[DRAWN_ANNOTATION] = ",".join(sorted(takes))
    else:
        takes = set(said.split(","))
    return [one for one in profiles if one.percent >= HUNDRED or one.name in takes]


def apply(profile: Profile, pod: dict[str, Any], priorities: Mapping[str, Priority]) -> None:
    """Change the pod's document in place. Raises ProfileError for a class that is not there."""
    about = pod["metadata"]
    labels = dict(about.get("labels") or {})
    notes = dict(about.get("annotations") or {})
    labels |= profile.labels
    notes |= profile.annotations
    labels |= {key: labels.get(source, "") for key, source in profile.label_from.items()}
    notes |= {key: notes.get(source, "") for key, source in profile.annotation_from.items()}
    for key, suffix in profile.label_suffixes.items():
        if key in labels and not labels[key].endswith(suffix):
            labels[key] += suffix
    for key, value in (
        (QOS_LABEL, profile.qos),
        (PRIORITY_LABEL, profile.priority_class),
        (SUB_PRIORITY_LABEL, profile.sub_priority),
    ):
        if value not in ("", AS_IS):
            labels[key] = value
    _put(about, "labels", labels)
    _put(about, "annotations", notes)
    spec = pod["spec"]
    if profile.scheduler_name:
        spec["schedulerName"] = profile.scheduler_name
    if profile.priority_class_name:
        found = priorities.get(profile.priority_class_name)
        if found is None:
            raise ProfileError(
                f"profile {profile.name} gives the PriorityClass {profile.priority_class_name}, "
                "which the cluster does not have: create it, or name another"
            )
        spec["priorityClassName"] = profile.priority_class_name
        spec["priority"] = found.value
        spec["preemptionPolicy"] = found.preemption


def check(profiles: Iterable[Profile], source: str) -> None:
    """Refuse what would make a second call answer differently. Raises BadPolicy."""
    every = list(profiles)
    setters = {key: one.name for one in every for key in _sets(one)}
    noted = {key: one.name for one in every for key in _annotates(one)}
    for i, one in enumerate(every):
        looked = [("pods", key) for key in _keys(one.pods)]
        looked += [("label_from", key) for key in one.label_from.values()]
        for what, key in looked:
            if key in setters:
                raise BadPolicy(
                    f"{source}: profiles[{i}].{what} looks at label {key}, which profile "
                    f"{setters[key]} sets; allowed: labels that no profile sets"
                )
        for key in one.annotation_from.values():
            if key in noted:
                raise BadPolicy(
                    f"{source}: profiles[{i}].annotation_from looks at annotation {key}, which "
                    f"profile {noted[key]} sets; allowed: annotations that no profile sets"
                )


def _sets(profile: Profile) -> Iterator[str]:
    yield from (*profile.labels, *profile.label_from, *profile.label_suffixes)
    if profile.qos != AS_IS:
        yield QOS_LABEL
    if profile.priority_class != AS_IS:
        yield PRIORITY_LABEL
    if profile.sub_priority:
        yield SUB_PRIORITY_LABEL


def _annotates(profile: Profile) -> Iterator[str]:
    yield from (*profile.annotations, *profile.annotation_from)


def _keys(selector: Selector) -> Iterator[str]:
    yield from selector.match_labels
    yield from (one.key for one in selector.match_expressions)


def _holds(one: Expression, labels: Labels) -> bool:
    match one.operator:
        case "In":
            return labels.get(one.key) in one.values
        case "NotIn":
            return labels.get(one.key) not in one.values
        case "Exists":
            return one.key in labels
        case "DoesNotExist":
            return one.key not in labels


def _lot(lot: str, name: str) -> int:
    digest = hashlib.sha256(f"{name}/{lot}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % HUNDRED


def _put(about: dict[str, Any], key: str, values: dict[str, str]) -> None:
    """Set it, unless there was nothing and is nothing."""
    if values or about.get(key):
        about[key] = values
