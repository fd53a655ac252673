"""Pod sets: which slot of the arena belongs to which column of a node's samples.

Called when a tick admits a record of topic `inventory`. The state of a pod is carried over by uid
whenever the set changes; a pod that has gone takes its state with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import claims, law, machine, predict, slo_watch
from agents.classes import HIGH, HOST, MID, priority_of, roles_of
from agents.eviction import worth
from agents.lending.reserved import reserved, said_cpu_milli
from agents.table import ABSENT, Field, Ints
from schemas.packed import MAX_PODS
from schemas.policy import ANNOTATION
from schemas.records import Inventory, PodFact

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat

MAX_ZONES = 8
"""NUMA nodes of one machine: two sockets of four; a machine of more is not told apart by zone."""
RATIOS_PERMILLE = range(1000, 5001)
"""Normalisation outside the peer's range from 1 to 5 is not believed."""
NODE_FIELDS = (
    Field("capacity", shape=(2,), fill=ABSENT),  # milli, bytes; ABSENT: no inventory yet
    Field("reserved", shape=(2,)),  # milli, bytes: kubelet's and the annotation's, the larger
    Field("third_party", shape=(2,)),  # milli, bytes of batch that another system gave away
    Field("ratio_permille", np.int16, fill=1000),  # normalisation of CPU
    Field("allocated", shape=(2,)),  # milli, bytes that prod pods ask for
    Field("zone_count", np.int8),
    Field("zones", shape=(MAX_ZONES, 2)),  # milli, bytes
    Field("pods_rev", fill=ABSENT),
    Field("start", np.int32),
    Field("count", np.int16),
    Field("room", np.int16),
)
POD_FIELDS = (
    Field("row", np.int32, fill=ABSENT),  # of its node
    Field("roles", np.uint8),
    Field("request", shape=(2,)),  # milli, bytes
    Field("priority"),
    Field("numa", np.uint8),  # bits of the zones it is bound to; 0: all
    *worth.POD_FIELDS,
)
LARGEST = 1 << 50
"""No capacity or request is larger: one pebibyte, or as many millicores."""


LABELS_KEPT = 128
"""Labels of a node that selectors see, the first by name."""
ANNOTATION_CHARACTERS = 16 * 1024
"""A longer annotation is refused unread: each node keeps its own."""


def apply(state: PartitionState, record: Inventory) -> bool:
    """Take over the facts of one node and its pod set.

    Says whether what the node says of its policy is new and something of it was refused.
    """
    seat = state.seat_of(record.node.encode())
    nodes = state.nodes
    row = seat.row
    capacity = (_known(record.cpu_capacity_milli), _known(record.memory_capacity_bytes))
    nodes["capacity"][row] = capacity
    nodes["reserved"][row] = (
        _kept(capacity[0], record.cpu_allocatable_milli, _said_cpu(state, record)),
        _kept(capacity[1], record.memory_allocatable_bytes, record.memory_reserved_bytes),
    )
    _extras(state, row, record)
    if len(record.pods) > MAX_PODS:
        state.counts["too_many_pods"] += 1  # no sample can name so many either
    pods = _distinct(record.pods[:MAX_PODS])
    uids = tuple(pod.uid for pod in pods)
    if uids != seat.uids:
        _move(state, seat, uids)
    nodes["pods_rev"][row] = _within(record.pods_rev)
    nodes["allocated"][row] = 0
    _facts(state, row, pods)
    machine.note(state, seat, record, pods)
    predict.forget_answers(state, row)
    return _own_policy(state, seat, record)


def _own_policy(state: PartitionState, seat: Seat, record: Inventory) -> bool:
    """Labels and annotation, when they are others than before."""
    labels, annotation = record.labels, record.annotations.get(ANNOTATION, "")
    if len(labels) > LABELS_KEPT:
        labels = dict(sorted(labels.items())[:LABELS_KEPT])
    too_long = len(annotation) > ANNOTATION_CHARACTERS
    said = "" if too_long else annotation
    if (labels, said) == (seat.labels, seat.annotation) and not too_long:
        return False
    seat.labels, seat.annotation = dict(labels), said
    refused = bool(law.settle(state, seat)) or too_long
    if refused:
        state.counts["node_policy_refused"] += 1
    return refused


def _extras(state: PartitionState, row: int, record: Inventory) -> None:
    """What only some machines have: zones, a CPU of other speed, another system that lends."""
    nodes = state.nodes
    nodes["third_party"][row] = (
        _within(record.third_party_cpu_milli),
        _within(record.third_party_memory_bytes),
    )
    ratio = record.cpu_ratio_permille
    if ratio not in RATIOS_PERMILLE:
        state.counts["bad_cpu_ratio"] += 1
    nodes["ratio_permille"][row] = ratio if ratio in RATIOS_PERMILLE else RATIOS_PERMILLE[0]
    zones = record.zones
    if len(zones) > MAX_ZONES:
        state.counts["too_many_zones"] += 1
        zones = ()
    nodes["zone_count"][row] = len(zones)
    for place, zone in enumerate(zones):
        nodes["zones"][row, place] = (_within(zone.cpu_milli), _within(zone.memory_bytes))


def _said_cpu(state: PartitionState, record: Inventory) -> int:
    try:
        return said_cpu_milli(record.cpu_reserved_milli, record.reserved_cpus)
    except ValueError:
        state.counts["bad_reserved_cpus"] += 1
        return 0


def _move(state: PartitionState, seat: Seat, uids: tuple[str, ...]) -> None:
    """Give the node slots for its new pod set, carrying known pods' state over by uid."""
    nodes, row = state.nodes, seat.row
    start = int(nodes["start"][row])
    old = {uid: start + i for i, uid in enumerate(seat.uids)}
    kept = [(i, old[uid]) for i, uid in enumerate(uids) if uid in old]
    came_from = np.array([slot for _, slot in kept], dtype=np.int64)
    carried = [table.copy_rows(came_from) for table in state.by_slot()]
    state.clear_slots(slice(start, start + len(seat.uids)))
    if len(uids) > int(nodes["room"][row]):
        state.release_slots(start, int(nodes["room"][row]))
        start, room = state.take_slots(len(uids))
        nodes["start"][row], nodes["room"][row] = start, room
    goes_to: Ints = np.array([start + i for i, _ in kept], dtype=np.int64)
    for table, values in zip(state.by_slot(), carried, strict=True):
        table.write_rows(goes_to, values)
    state.pods["row"][start : start + len(uids)] = row
    nodes["count"][row] = len(uids)
    seat.uids = uids


def _facts(state: PartitionState, row: int, pods: tuple[PodFact, ...]) -> None:
    if not pods:
        return
    start = int(state.nodes["start"][row])
    here = slice(start, start + len(pods))
    arena = state.pods
    arena["roles"][here] = [roles_of(pod) for pod in pods]
    arena["request"][here] = [
        (_within(pod.cpu_request_milli), _within(pod.memory_request_bytes)) for pod in pods
    ]
    prod = (arena["roles"][here] & (HIGH | MID | HOST)) == HIGH
    state.nodes["allocated"][row] = np.add.reduce(
        arena["request"][here][prod], axis=0, dtype=np.int64
    )
    arena["numa"][here] = [_mask(pod) for pod in pods]
    arena["workload"][here] = [slo_watch.code_of(pod) for pod in pods]
    worth.note(arena, here, pods)
    claims.note(state, here, pods)
    arena["priority"][here] = [max(-LARGEST, min(priority_of(pod), LARGEST)) for pod in pods]


def _distinct(pods: tuple[PodFact, ...]) -> tuple[PodFact, ...]:
    """A uid that comes twice keeps its column but no name, so that no order can hit its twin."""
    seen: set[str] = set()
    if len({pod.uid for pod in pods}) == len(pods):
        return pods
    result: list[PodFact] = []
    for place, pod in enumerate(pods):
        if pod.uid in seen:
            result.append(PodFact(uid=f"{pod.uid}#{place}", name=pod.name, evictable=False))
        else:
            result.append(pod)
        seen.add(pod.uid)
    return tuple(result)


def _mask(pod: PodFact) -> int:
    bits = 0
    for zone in pod.numa_nodes:
        bits |= 1 << zone if 0 <= zone < MAX_ZONES else 0
    return bits


def _known(amount: int) -> int:
    """A capacity of nothing is no capacity that is known."""
    return _within(amount) if amount > 0 else ABSENT


def _within(amount: int) -> int:
    return max(0, min(amount, LARGEST))


def _kept(capacity: int, allocatable: int, said: int) -> int:
    """An allocatable below 0 was not said: then it is the capacity."""
    whole = max(capacity, 0)
    return reserved(whole, _within(allocatable) if allocatable >= 0 else whole, _within(said))
