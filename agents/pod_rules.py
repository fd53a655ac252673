"""What a pod may claim: legal pairs of QoS and priority class, and what an update may not change.

`agents.claims` asks for every pod of an inventory, which says no updates; whoever admits pods asks
with the pod before. Rules: koordinator `pkg/webhook/pod/validating/cluster_colocation_profile.go`.
Raw values are compared: a pod that says nothing of itself is bound by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import PriorityClass, Qos

CORE_MILLI = 1000
FORBIDDEN: dict[Qos, frozenset[PriorityClass]] = {
    "BE": frozenset({"", "prod"}),
    "LSR": frozenset({"", "mid", "batch", "free"}),
}
"""Priority classes, as said, that do not go with a QoS, as said."""
COMBINATION = "qos_priority_combination"
WHOLE_CORES = ("cpu_request_integer", "cpu_request_required")
RULES = (COMBINATION, *WHOLE_CORES)
"""What a pod can be asked by itself; other rules ask for its batch requests or the pod before."""
PINNED: tuple[Qos, ...] = ("LSR", "LSE")
"""QoS classes that own whole cores."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod says (raw classes, "" is nothing) and requests."""

    qos_raw: Qos
    priority_raw: PriorityClass
    sub_priority: str = ""  # the label's text, "" is none
    cpu_milli: int = 0  # native CPU
    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0


def violations(
    new: Claim, old: Claim | None, *, skip_sub_priority: bool = False
) -> tuple[str, ...]:
    """Identifiers of the rules that ``new`` breaks, sorted; empty: it is allowed.

    ``old`` is the pod before an update, None at its creation.
    """
    broken = _changed(new, old, skip_sub_priority) if old is not None else set()
    if (new.batch_cpu_milli or new.batch_memory_bytes) and new.qos_raw != "BE":
        broken.add("batch_requires_be")
    if new.priority_raw in FORBIDDEN.get(new.qos_raw, ()):
        broken.add(COMBINATION)
    if new.qos_raw in PINNED:
        if new.cpu_milli <= 0:
            broken.add("cpu_request_required")
        elif new.cpu_milli % CORE_MILLI:
            broken.add("cpu_request_integer")
    return tuple(sorted(broken))


def _changed(new: Claim, old: Claim, skip_sub_priority: bool) -> set[str]:
    """What stays for a pod's life, because quota and accounts were opened under it."""
    broken: set[str] = set()
    if new.qos_raw != old.qos_raw:
        broken.add("qos_immutable")
    if new.priority_raw != old.priority_raw:
        broken.add("priority_class_immutable")
    if new.sub_priority != old.sub_priority and not skip_sub_priority:
        broken.add("sub_priority_immutable")
    return broken
