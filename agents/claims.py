"""Pods that claim what no pod may: counted by node and rule, told when it changes, reported.

`agents.inventory` has each pod judged with its pod set (`note`), `agents.side` tells what changed,
`agents.health` and `agents.reservation` report. Nothing is decided by it: such a pod is treated by
its QoS and its class as any other. Law: `agents.pod_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.classes import priority_class_of
from agents.pod_rules import RULES, WHOLE_CORES, Claim, violations
from agents.table import Array, Field, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat
    from schemas.records import PodFact

COUNTS = ("pods", *RULES)
"""Of one node: pods that break any rule, and those that break each."""
NODE_FIELDS = (Field("claims", np.uint16, (len(COUNTS),)),)  # as told last; MAX_PODS fit
POD_FIELDS = (Field("broken", np.uint8),)  # bits of RULES
BREAK, KEEP = "pods_break_rules", "pods_keep_rules"
_BITS = {rule: 1 << place for place, rule in enumerate(RULES)}


def note(state: PartitionState, here: slice, pods: Sequence[PodFact]) -> None:
    """Judge the pods of a set; a node's own law reports nothing and judges nobody."""
    if not state.fast_only:
        state.pods["broken"][here] = [sum(_BITS[rule] for rule in broken(pod)) for pod in pods]


def broken(pod: PodFact) -> tuple[str, ...]:
    """Rules that a pod breaks as it is: by its effective class, and its QoS.

    Whole cores are asked only of a pod that said its QoS itself.
    """
    claim = Claim(pod.qos, priority_class_of(pod), cpu_milli=pod.cpu_request_milli)
    found = violations(claim, None)
    return tuple(rule for rule in found if pod.qos_said or rule not in WHOLE_CORES)


def changed(state: PartitionState, seats: Sequence[Seat]) -> list[tuple[str, str, dict[str, int]]]:
    """(node, reason, figures) of the nodes whose counts are others than were told last."""
    rows = np.array([seat.row for seat in seats], dtype=np.int64)
    now, before = _counts(state, rows), state.nodes.take("claims", rows)
    state.nodes.put("claims", rows, now)
    differ = np.flatnonzero((now != before).any(axis=1)).tolist()
    return [
        (
            seats[at].name,
            BREAK if now[at, 0] else KEEP,
            dict(zip(COUNTS, now[at].tolist(), strict=True)),
        )
        for at in differ
    ]


def by_rule(state: PartitionState, seat: Seat) -> dict[str, list[str]]:
    """Uids of the node's pods by the rule that they break; none where the policy does not ask."""
    if not state.nodes["claims"][seat.row, 0]:
        return {}
    start = int(state.nodes["start"][seat.row])
    bits = state.pods["broken"][start : start + len(seat.uids)].tolist()
    found = {
        rule: [uid for uid, each in zip(seat.uids, bits, strict=True) if each & bit]
        for rule, bit in _BITS.items()
    }
    return {rule: uids for rule, uids in found.items() if uids}


def _counts(state: PartitionState, rows: Ints) -> Array:
    """[n, COUNTS]; nothing where the policy does not ask."""
    slots, owner, _ = state.slots_of(rows)
    bits = state.pods["broken"].take(slots)
    some = np.flatnonzero(bits)
    bits, owner = bits[some].astype(np.int64), owner[some]
    each = [bits > 0, *((bits & bit) > 0 for bit in _BITS.values())]
    counts = np.stack([np.bincount(owner[one], minlength=len(rows)) for one in each], axis=1)
    counts[~law.switch(state, rows, "pod_rules.enabled")] = 0
    return counts
