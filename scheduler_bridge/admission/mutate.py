"""What a new pod becomes: profiles, resources of its class, the note, the gate of its gang. Pure.

Called by `webhook` for CREATE. The same pod twice is the same pod: what a first call made, a second
leaves as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_bridge.admission import gang, legal, profile, translate
from scheduler_bridge.admission.names import GANG_GATE, Resources
from scheduler_bridge.admission.patch import Operation, difference
from scheduler_bridge.admission.pod import PodView, read
from scheduler_bridge.admission.profile import Priority
from scheduler_bridge.admission.rules import Rules


@dataclass(frozen=True, slots=True)
class Changed:
    """The patch, and what was done, for the audit log: names of profiles, of the class."""

    patch: list[Operation]
    notes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def mutate(
    pod: dict[str, Any],
    namespace: str,
    namespace_labels: Mapping[str, str],
    lot: str,
    rules: Rules,
    names: Resources,
    priorities: Mapping[str, Priority],
) -> Changed:
    """The patch of a pod to be created; ``lot`` decides draws of profiles for a part of all pods.

    Raises ProfileError for a profile that the cluster cannot serve, ValueError for a bad quantity.
    """
    after = copy.deepcopy(pod)
    after.setdefault("metadata", {})
    labels = after["metadata"].get("labels") or {}
    chosen = profile.matching(rules.profiles, labels, namespace_labels)
    taken = profile.drawn(chosen, after, lot)
    for one in taken:
        profile.apply(one, after, priorities)
    changed = Changed([], {"profiles": ",".join(one.name for one in taken)} if taken else {})
    view = read(after, names, namespace)
    _translate(after, view, bool(chosen) and all(one.translate for one in chosen), names, changed)
    if rules.gangs.enabled:
        _gate(after, view)
    changed.patch.extend(difference(pod, after))
    return changed


def _translate(
    after: dict[str, Any], view: PodView, by_profile: bool, names: Resources, changed: Changed
) -> None:
    """Resources of the class if profiles say so; a free pod's always become its wish."""
    if legal.is_free(view) and not view.node:
        translate.to_wish(after, names)
        return
    if by_profile:
        translate.to_class(after, view.classes.priority_class, names)
        if names.of_class(view.classes.priority_class) and after["spec"].get("resources"):
            changed.warnings.append(
                "spec.resources of the whole pod stays native: say requests by container"
            )
    translate.note(after, names)


def _gate(after: dict[str, Any], view: PodView) -> None:
    """A member of a gang of more than one waits for the others; what is bound already, cannot."""
    try:
        found = gang.membership(view.labels, view.annotations)
    except ValueError:
        return  # the validating webhook says what is wrong
    spec = after["spec"]
    if found is None or found.least < 2 or spec.get("nodeName"):
        return
    gates = list(spec.get("schedulingGates") or ())
    if all(gate.get("name") != GANG_GATE for gate in gates):
        spec["schedulingGates"] = [*gates, {"name": GANG_GATE}]
