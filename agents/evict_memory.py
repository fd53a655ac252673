"""Memory's last gate: when a node is nearly full, best-effort pods go until it is not.

`agents.step` calls `decide` for each wave. Formulas: koordinator
`qosmanager/plugins/memoryevict/memory_evict.go`. Only a `BestEffortPod` can be a victim, and only
`best_effort_pods` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import emit
from agents.classes import BEST_EFFORT, EVICTABLE, HOST, TERMINATING
from agents.fleet import budget_of
from agents.guards import cooled
from agents.table import ABSENT, Array, Field

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.log import Output
    from agents.state import PartitionState, Seat
    from agents.wave import Wave
    from schemas.records import Ack

NODE_FIELDS = (
    Field("evicted_ms", fill=ABSENT),  # log time of the last order
    Field("evictions_wanted"),  # pods, by the last sample
)
POD_FIELDS = (Field("ordered_ms", fill=ABSENT),)  # log time of the order that it goes


@dataclass(frozen=True, slots=True)
class BestEffortPod:
    """A pod that may be told to go: raw QoS BE, no host application."""

    uid: str
    slot: int
    priority: int
    used_bytes: int  # 0: unknown, or a transient zero
    evictable: bool
    going: bool  # terminating, or ordered out and the order still stands


def release_of(
    capacity: Array, used: Array, threshold_percent: int, lower_percent: int
) -> Array:  # fmt: skip
    """Bytes to free [w]: 0 below the threshold; whole percents, truncated. Capacity above 0."""
    percent = used * 100 // capacity
    release = capacity * np.maximum(percent - lower_percent, 0) // 100
    return np.where(percent >= threshold_percent, release, 0)


def victims(pods: list[BestEffortPod], release_bytes: int, most: int) -> list[BestEffortPod]:
    """At most ``most`` pods, in the peer's order, until ``release_bytes`` are covered.

    Priority ascending, then usage descending, unknown usage last, then uid. What nobody can say
    the size of is taken one at a time: a column of zeros must not clear a node.
    """
    order = sorted(
        (pod for pod in pods if pod.evictable and not pod.going),
        key=lambda pod: (pod.priority, pod.used_bytes <= 0, -pod.used_bytes, pod.uid),
    )
    sized = [pod for pod in order if pod.used_bytes > 0]
    chosen: list[BestEffortPod] = []
    left = release_bytes
    for pod in sized:
        if left <= 0 or len(chosen) >= most:
            return chosen
        chosen.append(pod)
        left -= pod.used_bytes
    if left > 0 and len(chosen) < most and not chosen:
        chosen = [pod for pod in order if pod.used_bytes <= 0][:1]
    return chosen


def best_effort_pods(state: PartitionState, seat: Seat, log_ms: int) -> list[BestEffortPod]:
    """The node's pods that are best effort by their raw QoS."""
    start = int(state.nodes["start"][seat.row])
    slots = np.arange(start, start + len(seat.uids), dtype=np.int64)
    roles = state.pods["roles"].take(slots)
    mine = np.flatnonzero((roles & (BEST_EFFORT | HOST)) == BEST_EFFORT)
    slots, roles = slots[mine], roles[mine]
    ordered_ms = state.pods["ordered_ms"].take(slots)
    stands = (ordered_ms >= 0) & (log_ms - ordered_ms < state.law.loop.command_ttl_ms)
    going = ((roles & TERMINATING) > 0) | stands
    return [
        BestEffortPod(seat.uids[place], slot, priority, max(size, 0), bool(bits & EVICTABLE), gone)
        for place, slot, priority, size, bits, gone in zip(
            mine.tolist(),
            slots.tolist(),
            state.pods["priority"].take(slots).tolist(),
            state.pods["size"].take(slots).tolist(),
            roles.tolist(),
            going.tolist(),
            strict=True,
        )
    ]


def decide(state: PartitionState, wave: Wave, folded: Folded, out: list[Output]) -> None:
    """Orders of this wave, in log order, because all nodes draw on one budget."""
    nodes, rows = state.nodes, folded.rows
    nodes["evictions_wanted"][rows] = 0
    if state.policy is None or not state.policy.evict_memory.enabled:
        return
    rule = state.policy.evict_memory
    capacity = nodes.take("capacity", rows)[:, 1]
    total, available = folded.memory_total, folded.memory_available
    sure = folded.known & (capacity > 0) & (available > 0) & (available <= total)
    used = np.where(sure, total - available, 0)
    release = release_of(
        np.maximum(capacity, 1), used, rule.threshold_percent, rule.lower_percent
    )  # fmt: skip
    for at in np.flatnonzero(sure & (release > 0)).tolist():
        _gate(state, wave, at, (int(capacity[at]), int(used[at]), int(release[at])), out)


def _gate(
    state: PartitionState, wave: Wave, at: int, figures: tuple[int, int, int], out: list[Output]
) -> None:
    """One node that is over the threshold."""
    assert state.policy is not None, "nobody is evicted without a policy"
    rule = state.policy.evict_memory
    seat, log_ms = wave.seats[at], wave.log_ms[at]
    capacity, used, release = figures
    pods = best_effort_pods(state, seat, log_ms)
    credited = _bytes_of([pod for pod in pods if pod.going])
    left = release - credited
    if left <= 0:
        return
    wanted = len(victims(pods, left, len(pods)))
    state.nodes["evictions_wanted"][seat.row] = wanted
    if not cooled(log_ms, int(state.nodes["evicted_ms"][seat.row]), rule.cooldown_ms):
        return
    budget, reason = _budget(state, log_ms)
    chosen = victims(pods, left, budget)
    if not chosen:
        return
    state.nodes["evicted_ms"][seat.row] = log_ms
    if not rule.dry_run:
        state.orders_ms += [log_ms] * len(chosen)
        state.pods["ordered_ms"][[pod.slot for pod in chosen]] = log_ms
    terms = {
        "capacity": capacity,
        "used": used,
        "percent": used * 100 // capacity,
        "release": release,
        "credited": credited,
        "wanted": wanted,
        "budget": budget,
    }
    emit.command(
        state, wave, at, "evict_memory", reason, terms, out, dry_run=rule.dry_run,
        pods=tuple(pod.uid for pod in chosen), release_bytes=left,
    )  # fmt: skip


def _budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now, and why so many."""
    facts, blast = state.facts, state.law.blast
    stale = facts is None or log_ms - state.facts_ms > blast.facts_stale_ms
    oldest = log_ms - state.law.evict_memory.cooldown_ms
    state.orders_ms = [order_ms for order_ms in state.orders_ms if order_ms > oldest]
    if facts is None or stale:
        return 1, "memory_full_fleet_unknown"
    if facts.ill_permille >= blast.stop_ill_permille:
        return 0, "fleet_ill"
    left = budget_of(facts, state.partition) - len(state.orders_ms)
    return max(left, 0), "memory_full"


def note_ack(state: PartitionState, ack: Ack) -> None:
    """What the node did: an order that it refused no longer counts as released."""
    seat = state.seats.get(ack.node.encode())
    if seat is None or ack.decider != "evict_memory" or ack.dry_run:
        return
    if ack.outcome == "duplicate":
        return
    when_ms = ABSENT if ack.outcome in ("refused", "failed") else state.log_ms
    start = int(state.nodes["start"][seat.row])
    gone = set(ack.pods)
    for place, uid in enumerate(seat.uids):
        if uid in gone and int(state.pods["roles"][start + place]) & BEST_EFFORT:
            state.pods["ordered_ms"][start + place] = when_ms


def _bytes_of(pods: list[BestEffortPod]) -> int:
    size = 0
    for pod in pods:
        size += pod.used_bytes
    return size
