"""Whether a pod's claims are legal, in words. Pure.

Called by `validate`; judged by `agents.pod_rules`, whose identifiers become sentences here: what is
wrong, and what is allowed. Beyond the peer: work that can neither be retried nor go on from a
checkpoint borrows nothing of the classes that the rules name, and a free pod asks for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents.classes import PRIORITY_LABEL, PRIORITY_RANGES, QOS_LABEL
from agents.eviction import labels as eviction
from agents.pod_rules import COMBINATION, FORBIDDEN, violations
from scheduler_bridge.admission.names import NATIVE, Resources
from scheduler_bridge.admission.pod import PodView
from scheduler_bridge.admission.rules import Rules

NOT_RECOVERABLE = "not_recoverable"
FREE_ASKS = "free_asks"


def broken(new: PodView, old: PodView | None, rules: Rules, names: Resources) -> list[str]:
    """One sentence a broken rule, each beginning with the rule's identifier; empty: legal.

    ``old`` is the pod before an update, None at its creation. An update that changes no claim is
    legal, whatever the pod is: finalizers of a pod from before our time must come off.
    """
    claim, before = new.claim(names), None if old is None else old.claim(names)
    if claim == before:
        return []
    rule_names = list(violations(claim, before, skip_sub_priority=rules.sub_priority_may_change))
    if before is None:
        if is_free(new) and _asks(new, names):
            rule_names.append(FREE_ASKS)
        if borrows(new, names) in rules.recoverable and not new.recoverable():
            rule_names.append(NOT_RECOVERABLE)
    return [f"{name}: {_sentence(name, new, old, names)}" for name in rule_names]


def borrows(pod: PodView, names: Resources) -> str:
    """``batch`` or ``free``: whose capacity a pod would live on, by what it says; "" for others."""
    said = pod.classes.priority_raw
    if said in ("batch", "free"):
        return said
    batch = bool(pod.requests.get(names.batch_cpu) or pod.requests.get(names.batch_memory))
    return "batch" if batch or (pod.classes.qos_raw == "BE" and said != "mid") else ""


def is_free(pod: PodView) -> bool:
    """Whether it consumes as a free pod: of class free, and under no QoS of an online one."""
    return pod.classes.priority_class == "free" and pod.classes.qos_raw in ("", "BE")


def _asks(pod: PodView, names: Resources) -> bool:
    return any(pod.requests.get(resource) for resource in (*NATIVE, *names.each))


def _sentence(name: str, new: PodView, old: PodView | None, names: Resources) -> str:
    said = new.classes
    if name == COMBINATION:
        refused = FORBIDDEN[said.qos_raw]
        fine = [each for _, _, each in PRIORITY_RANGES if each not in refused]
        return (
            f"QoS {said.qos_raw} does not go with priority class {said.priority_raw or 'none'}; "
            f"allowed with it: {', '.join(fine)} ({_ranges(fine)}, or label {PRIORITY_LABEL})"
        )
    if name == "batch_requires_be":
        return (
            f"it asks for {names.batch_cpu} or {names.batch_memory} with QoS "
            f"{said.qos_raw or 'none'}; allowed: label {QOS_LABEL}: BE"
        )
    if name in ("cpu_request_integer", "cpu_request_required"):
        return (
            f"QoS {said.qos_raw} owns whole cores, and the pod asks for "
            f"{new.requests.get('cpu', 0)}m; allowed: a multiple of 1000m, not 0"
        )
    if name == FREE_ASKS:
        return (
            "a free pod asks no scheduler for cpu or memory; allowed: none, its wish stands in "
            "the note that the mutating webhook writes"
        )
    if name == NOT_RECOVERABLE:
        return (
            f"{borrows(new, names)} capacity is taken back at any time, and the pod does not say "
            f"that its work survives that; allowed: annotation {eviction.RECOVERABLE_ANNOTATION} "
            f'or {eviction.CHECKPOINTED_ANNOTATION}: "true", or '
            f"{eviction.RETRIES_LEFT_ANNOTATION} above 0"
        )
    return _changed(name, new, old)


def _changed(name: str, new: PodView, old: PodView | None) -> str:
    assert old is not None, "only an update changes"
    what, before, after = {
        "qos_immutable": ("QoS", old.classes.qos_raw, new.classes.qos_raw),
        "priority_class_immutable": (
            "priority class", old.classes.priority_raw, new.classes.priority_raw,
        ),
        "sub_priority_immutable": ("sub-priority", old.sub_priority, new.sub_priority),
    }[name]  # fmt: skip
    return (
        f"the {what} of a pod stays for its life, {before or 'none'} would become "
        f"{after or 'none'}; allowed: a new pod"
    )


def _ranges(classes: Sequence[str]) -> str:
    return ", ".join(
        f"priority {low} to {high}" for low, high, name in PRIORITY_RANGES if name in classes
    )
