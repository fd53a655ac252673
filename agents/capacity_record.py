"""Capacity as it is published: one record a node with its terms, one decision for all of them.

`agents.capacity` calls `publish` with the nodes whose capacity is worth saying in this tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agents import emit, law
from agents.capacity_terms import MID_TERMS, TERMS
from agents.capacity_zones import zones_of
from agents.log import Output
from agents.table import Bools, Ints
from schemas.records import Capacity, Cause

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat

NAMES = ("batch_cpu_milli", "batch_memory_bytes", "mid_cpu_milli", "mid_memory_bytes")
COMPUTED = (
    "computed_cpu_milli", "computed_memory_bytes", "computed_mid_cpu_milli",
    "computed_mid_memory_bytes",
)  # fmt: skip
SLO = "slo"
"""The reason where an online service has left its objective, and no new work is taken for it."""
REASONS = ("", "cold", "silent", "unknown_pods", "withdrawn", "disabled")
FRESH, COLD, SILENT, UNKNOWN_PODS, WITHDRAWN, DISABLED = range(len(REASONS))
"""Conditions of a node's numbers, and the reason each is published with."""
LENT = ("lent_cpu_milli", "lent_memory_bytes", "lent_mid_cpu_milli", "lent_mid_memory_bytes")


@dataclass(slots=True)
class Whole:
    """All nodes with an inventory [r]; ``terms`` [r, 2] by name, amounts [r, AMOUNTS]."""

    rows: Ints
    seats: list[Seat]
    terms: dict[str, Ints]
    mid_terms: dict[str, Ints]
    computed: Ints
    state: Ints  # FRESH .. DISABLED, of batch
    mid_state: Ints
    new_work: Bools
    offer: Ints


def publish(
    state: PartitionState, cause: Cause, whole: Whole, chosen: Ints, before: Ints,
    out: list[Output],
) -> None:  # fmt: skip
    """Say the capacity of ``chosen`` (indexes of ``whole``) and note what was said.

    ``before`` [r, AMOUNTS]: what was offered until now.
    """
    if not len(chosen):
        return
    nodes, rows = state.nodes, whole.rows[chosen]
    offer, held = whole.offer[chosen].tolist(), before[chosen].tolist()
    computed = whole.computed[chosen].tolist()
    batch_terms = _rows_of(whole.terms, TERMS, chosen)
    mid_terms = _rows_of(whole.mid_terms, MID_TERMS, chosen)
    condition, mid_condition = whole.state[chosen].tolist(), whole.mid_state[chosen].tolist()
    welcome = whole.new_work[chosen].tolist()
    zones = _zones(state, cause, whole, chosen)
    outcome: list[str] = []
    names: list[str] = []
    for i, at in enumerate(chosen.tolist()):
        name = whole.seats[at].name
        now, was = offer[i], held[i]
        slo = "" if welcome[i] else SLO
        reason = REASONS[condition[i]] or slo or _direction(was[:2], now[:2])
        record = Capacity(
            node=name,
            cause=cause,
            reason=reason,
            new_work=welcome[i],
            cpu_terms=dict(zip(TERMS, batch_terms[0][i], strict=True)),
            memory_terms=dict(zip(TERMS, batch_terms[1][i], strict=True)),
            workloads=law.of(state, int(rows[i])).rollout.workloads,
            mid_reason=REASONS[mid_condition[i]] or slo or _direction(was[2:], now[2:]),
            mid_cpu_terms=dict(zip(MID_TERMS, mid_terms[0][i], strict=True)),
            mid_memory_terms=dict(zip(MID_TERMS, mid_terms[1][i], strict=True)),
            **dict(zip(NAMES, now, strict=True)),
            **dict(zip(COMPUTED, computed[i], strict=True)),
            **zones.get(i, {}),
        )
        out.append(Output("capacity", name.encode(), record, cause.offset, name, "capacity"))
        outcome.append(reason)
        names.append(name)
    lent = nodes.take("lent", rows).tolist()
    columns = {
        name: list(column)
        for titles, values in ((NAMES, offer), (COMPUTED, computed), (LENT, lent))
        for name, column in zip(titles, zip(*values, strict=True), strict=True)
    }
    emit.decision(cause, "capacity", tuple(names), tuple(outcome), columns, out)
    nodes.put("said", rows, whole.offer[chosen])
    nodes["said_ms"][rows] = cause.log_ms
    nodes["said_new"][rows] = whole.new_work[chosen]
    nodes["said_rev"][rows] = nodes["pods_rev"].take(rows)


def _rows_of(terms: dict[str, Ints], order: tuple[str, ...], chosen: Ints) -> Any:
    """[2][chosen][terms]: for each resource and node the terms in ``order``."""
    return np.stack([terms[name][chosen] for name in order], axis=1).transpose(2, 0, 1).tolist()


def _zones(
    state: PartitionState, cause: Cause, whole: Whole, chosen: Ints
) -> dict[int, dict[str, Any]]:
    """Fields of the records of nodes that have zones, by place in ``chosen``."""
    at, cpu, memory = zones_of(
        state, cause.log_ms, whole.rows[chosen], whole.terms["system"][chosen],
        whole.offer[chosen, :2], whole.state[chosen] != FRESH,
    )  # fmt: skip
    return {
        place: {"zone_cpu_milli": milli, "zone_memory_bytes": size}
        for place, milli, size in zip(at.tolist(), cpu, memory, strict=True)
    }


def _direction(before: list[int], now: list[int]) -> str:
    if before[0] < 0:
        return "first"
    if now[0] < before[0] or now[1] < before[1]:
        return "fall"
    return "raise" if now != before else "steady"
