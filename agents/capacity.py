"""What batch work may borrow on each node: the usage policy and its guards, once a tick.

`agents.step` calls `decide` for all nodes side by side; conformance calls `lendable`. Formula:
koordinator `noderesource/plugins/util/util.go` (usage policy); amounts are millicores and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import emit, fold, guards, law
from agents.lending.batch import lendable, margin_of
from agents.log import Output
from agents.table import ABSENT, Bools, Field, Ints
from agents.windows import BYTES_PER_KIB, SYSTEM
from schemas.records import Capacity, Cause

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat
    from agents.tick_view import TickView

NODE_FIELDS = (
    Field("lent", shape=(2,)),  # milli, bytes, by the ledger
    Field("offer", shape=(2,), fill=ABSENT),  # what the guards allow now
    Field("offer_ms", fill=ABSENT),  # log time of the tick that said so
    Field("said", shape=(2,), fill=ABSENT),  # what was published last
    Field("said_ms", fill=ABSENT),
    Field("said_new", np.int8, fill=ABSENT),
)
POD_FIELDS: tuple[Field, ...] = ()
UNITS = ("cpu", "memory")
TERMS = ("capacity", "margin", "system", "reserved", "need", "lent")
REASONS = ("", "cold", "silent", "unknown_pods", "withdrawn", "disabled")
FRESH, COLD, SILENT, UNKNOWN_PODS, WITHDRAWN, DISABLED = range(len(REASONS))
"""Conditions of a node's numbers, and the reason each is published with."""


@dataclass(slots=True)
class _Sum:
    """All nodes with an inventory [r]; amounts [r, 2]."""

    rows: Ints
    seats: list[Seat]
    terms: dict[str, Ints]
    computed: Ints
    state: Ints  # FRESH .. DISABLED
    offer: Ints
    reasons: list[str]


def decide(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Capacity records of this tick and one decision record for all of them."""
    if state.policy is None:
        return
    has = state.nodes.take("capacity", view.rows)[:, 0] >= 0
    enabled = law.switch(state, view.rows, "capacity.enabled")
    has &= enabled | (state.nodes["said_ms"].take(view.rows) >= 0)
    if not has.any():
        return
    whole = _sum(state, view, view.rows[has], [view.seats[i] for i in np.flatnonzero(has)])
    before = state.nodes.take("offer", whole.rows)
    _guard(state, view, whole)
    send = _worth_saying(state, view, whole)
    _publish(state, view.cause, whole, np.flatnonzero(send), before, out)


def _sum(state: PartitionState, view: TickView, rows: Ints, seats: list[Seat]) -> _Sum:
    """The terms of the sum and what may be made of them."""
    nodes = state.nodes
    capacity = nodes.take("capacity", rows)
    sums = np.maximum(nodes.take("sums", rows), 0)
    system = nodes["ring"][:, SYSTEM].max(axis=2).take(rows, axis=0).astype(np.int64)
    system[:, 1] *= BYTES_PER_KIB
    percent = [law.column(state, rows, f"capacity.{name}_reclaim_percent") for name in UNITS]
    terms = {
        "capacity": capacity,
        "margin": np.stack([margin_of(capacity[:, i], percent[i]) for i in range(2)], axis=1),
        "system": np.maximum(system, 0) + sums[:, fold.HIGH_HOST : fold.HIGH_HOST_B + 1],
        "reserved": nodes.take("reserved", rows),
        "need": sums[:, fold.NEED : fold.NEED_B + 1],
        "lent": nodes.take("lent", rows),
    }
    computed = lendable(*(terms[name] for name in TERMS[:-1]))
    computed = np.minimum(computed, _cap(state, rows, capacity))
    computed[nodes["full_ms"].take(rows) < 0] = 0  # nothing was ever measured
    return _Sum(rows, seats, terms, computed, _condition(state, view, rows), computed, [])


def _cap(state: PartitionState, rows: Ints, capacity: Ints) -> Ints:
    """The most that policy lets be lent [r, 2]."""
    percent = [law.column(state, rows, f"capacity.{name}_cap_percent") for name in UNITS]
    cap: Ints = np.maximum(capacity, 0) * np.stack(percent, axis=1) // 100
    return cap


def _condition(state: PartitionState, view: TickView, rows: Ints) -> Ints:
    """How far each node's numbers can be trusted."""
    nodes, loop = state.nodes, state.law.loop
    full_ms, event_ms = nodes["full_ms"].take(rows), nodes["event_ms"].take(rows)
    age_ms = view.log_ms - full_ms
    young = event_ms - nodes["since_ms"].take(rows) < law.column(state, rows, "reservation.warm_ms")
    silent = view.log_ms - nodes["sample_ms"].take(rows) > loop.silent_after_ms
    condition = np.where(silent, SILENT, UNKNOWN_PODS)
    condition = np.where(age_ms <= loop.silent_after_ms, FRESH, condition)
    condition = np.where(young, COLD, condition)
    condition = np.where(age_ms > loop.withdraw_after_ms, WITHDRAWN, condition)
    condition = np.where(full_ms < 0, COLD, condition)
    enabled = law.switch(state, rows, "capacity.enabled")
    return np.where(enabled, condition, DISABLED)


def _guard(state: PartitionState, view: TickView, whole: _Sum) -> None:
    """What is offered: down at once, up slowly, and held where the number cannot be trusted.

    What was lent meanwhile, within what was computed last, is no rise: a successor that begins
    cold, or a node that falls silent, does not take it back.
    """
    nodes, rows = state.nodes, whole.rows
    lent, held, held_ms = whole.terms["lent"], nodes.take("offer", rows), nodes["offer_ms"][rows]
    computed = np.maximum(whole.computed, 0)
    start = np.where(held >= 0, np.maximum(held, np.minimum(lent, computed)), lent)
    elapsed_ms = np.where(held_ms >= 0, view.log_ms - held_ms, 0)
    per_min = law.column(state, rows, "capacity.raise_permille_per_min")
    rise = guards.rise(whole.terms["capacity"], per_min[:, None], elapsed_ms[:, None])
    condition = whole.state[:, None]
    offer = np.where(condition == FRESH, np.minimum(computed, start + rise), start)
    offer = np.where(condition == COLD, lent, offer)
    offer = np.where(condition >= WITHDRAWN, np.minimum(start, lent), offer)
    nodes.put("offer", rows, offer)
    nodes["offer_ms"][rows] = view.log_ms
    whole.offer = offer


def _worth_saying(state: PartitionState, view: TickView, whole: _Sum) -> Bools:
    """New, changed enough, other in kind, or not said for long."""
    nodes, rows = state.nodes, whole.rows
    said, said_ms = nodes.take("said", rows), nodes["said_ms"].take(rows)
    new_work = whole.state == FRESH
    permille = law.column(state, rows, "capacity.change_permille")
    changed = guards.changed(said, whole.offer, whole.terms["capacity"], permille[:, None])
    due = view.log_ms - said_ms >= law.column(state, rows, "capacity.refresh_ms")
    other_kind = new_work != nodes["said_new"].take(rows)
    result: Bools = changed.any(axis=1) | other_kind | due | (said_ms < 0)
    return result


def _publish(
    state: PartitionState,
    cause: Cause,
    whole: _Sum,
    chosen: Ints,
    before: Ints,
    out: list[Output],
) -> None:
    if not len(chosen):
        return
    nodes, rows = state.nodes, whole.rows[chosen]
    offer, computed = whole.offer[chosen].tolist(), whole.computed[chosen].tolist()
    cpu_terms, memory_terms = (
        np.stack([values[chosen] for values in whole.terms.values()], axis=1)
        .transpose(2, 0, 1)
        .tolist()
    )
    lent = whole.terms["lent"][chosen].tolist()
    held, condition = before[chosen].tolist(), whole.state[chosen].tolist()
    outcome: list[str] = []
    names: list[str] = []
    for i, at in enumerate(chosen.tolist()):
        seat = whole.seats[at]
        reason = REASONS[condition[i]] or _direction(held[i], offer[i])
        record = Capacity(
            node=seat.name,
            cause=cause,
            batch_cpu_milli=offer[i][0],
            batch_memory_bytes=offer[i][1],
            reason=reason,
            new_work=condition[i] == FRESH,
            computed_cpu_milli=computed[i][0],
            computed_memory_bytes=computed[i][1],
            cpu_terms=dict(zip(TERMS, cpu_terms[i], strict=True)),
            memory_terms=dict(zip(TERMS, memory_terms[i], strict=True)),
        )
        key = seat.name.encode()
        out.append(Output("capacity", key, record, cause.offset, seat.name, "capacity"))
        outcome.append(reason)
        names.append(seat.name)
    columns = {
        f"{name}_{unit}": [pair[k] for pair in pairs]
        for name, pairs in (("batch", offer), ("computed", computed), ("lent", lent))
        for k, unit in enumerate(("cpu_milli", "memory_bytes"))
    }
    emit.decision(cause, "capacity", tuple(names), tuple(outcome), columns, out)
    nodes.put("said", rows, whole.offer[chosen])
    nodes["said_ms"][rows] = cause.log_ms
    nodes["said_new"][rows] = whole.state[chosen] == FRESH


def _direction(before: list[int], now: list[int]) -> str:
    if before[0] < 0:
        return "first"
    if now[0] < before[0] or now[1] < before[1]:
        return "fall"
    return "raise" if now != before else "steady"
