"""Batch capacity of each NUMA zone, for the few nodes whose capacity is said in this tick.

`agents.capacity_record` asks; nodes whose inventory names no zones are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.capacity_terms import CAP_KEYS, margins_of, total
from agents.classes import HIGH, HOST, LSE
from agents.lending import needs
from agents.lending.shares import share_out
from agents.lending.zones import FINE, Zones, fine, lendable, split
from agents.reservation import expected, lines_of
from agents.table import Array, Bools, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState


def zones_of(
    state: PartitionState, log_ms: int, rows: Ints, system: Ints, offer: Array, held: Bools
) -> tuple[Ints, list[list[int]], list[list[int]]]:
    """(which of ``rows`` have zones, and for each of them its zones' millicores and bytes).

    ``system`` and ``offer`` are [r, 2] of the nodes; ``held`` [r]: the offer stands above the sum.
    """
    nodes = state.nodes
    chosen = np.flatnonzero(nodes["zone_count"].take(rows) > 0)
    if not len(chosen):
        return chosen, [], []
    rows = rows.take(chosen)
    zones = Zones.of(nodes["zone_count"].take(rows).astype(np.int64))
    place = np.arange(len(zones.node)) - zones.start.take(zones.node)
    each = rows.take(zones.node)
    capacity = nodes["zones"][each, place]
    amount = lendable(
        capacity, total(margins_of(state, log_ms, each, capacity)), system.take(chosen, axis=0),
        nodes.take("reserved", rows), _needs(state, rows, zones), zones,
        law.columns(state, each, CAP_KEYS),
    )  # fmt: skip
    amount = np.maximum(amount // FINE, 0)
    shared = share_out(amount, offer.take(chosen, axis=0), zones, held.take(chosen))
    cpu, memory = (np.split(shared[:, unit], zones.start[1:]) for unit in range(2))
    return chosen, [part.tolist() for part in cpu], [part.tolist() for part in memory]


def _needs(state: PartitionState, rows: Ints, zones: Zones) -> Ints:
    """[z, 2] fine: what the pods above batch need, as `agents.fold` takes it for the node."""
    pods = state.pods
    slots, owner, _ = state.slots_of(rows)
    roles = pods["roles"].take(slots)
    high = (roles & (HIGH | HOST)) == HIGH
    slots, owner, roles = slots[high], owner[high], roles[high]
    age_ms = state.nodes["event_ms"].take(rows).take(owner) - pods["since_ms"].take(slots)
    request, each = pods.take("request", slots), rows.take(owner)
    line, _ = lines_of(state, each, slots, pods.take("live", slots))
    short = expected(line, request, age_ms >= law.column(state, each, "reservation.warm_ms"))
    codes = law.columns(state, each, needs.POLICY_KEYS)
    need = needs.by_policy(codes, short, request, (roles & LSE) > 0)
    return split(fine(need), pods["numa"].take(slots).astype(np.int64), owner, zones)
