"""What batch and mid work may borrow on each node: the sums and their guards, once a tick.

`agents.step` calls `decide` for all nodes side by side. The sums are those of
`agents.capacity_terms`, by the laws of `agents.lending`; amounts are millicores and bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import guards, law, slo_state
from agents.capacity_record import (
    COLD,
    DISABLED,
    FRESH,
    SILENT,
    UNKNOWN_PODS,
    WITHDRAWN,
    Whole,
    publish,
)
from agents.capacity_terms import look
from agents.lending.amounts import permille_of
from agents.lending.batch import degraded
from agents.log import Output
from agents.table import ABSENT, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.tick_view import TickView

AMOUNTS = 4
"""Side by side: batch milli and bytes, mid milli and bytes."""
NODE_FIELDS = (
    Field("lent", shape=(AMOUNTS,)),  # by the ledger
    Field("offer", shape=(AMOUNTS,), fill=ABSENT),  # what the guards allow now
    Field("offer_ms", fill=ABSENT),  # log time of the tick that said so
    Field("said", shape=(AMOUNTS,), fill=ABSENT),  # what was published last
    Field("said_ms", fill=ABSENT),
    Field("said_new", np.int8, fill=ABSENT),
    Field("said_rev", fill=ABSENT),  # the pod set whose zones were published last
)
POD_FIELDS: tuple[Field, ...] = ()


def decide(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Capacity records of this tick and one decision record for all of them."""
    if state.policy is None:
        return
    has = state.nodes.take("capacity", view.rows)[:, 0] >= 0
    enabled = law.switch(state, view.rows, "capacity.enabled")
    has &= enabled | (state.nodes["said_ms"].take(view.rows) >= 0)
    if not has.any():
        return
    rows, seats = view.rows[has], [view.seats[i] for i in np.flatnonzero(has)]
    seen = look(state, view.log_ms, rows)
    condition = _condition(state, view, rows)
    mid = np.where(law.switch(state, rows, "mid.enabled"), condition, DISABLED)
    new_work = (condition == FRESH) & ~slo_state.stopped(state, rows)
    whole = Whole(
        rows, seats, seen.terms, seen.mid_terms, seen.computed, condition, mid, new_work,
        seen.computed,
    )  # fmt: skip
    before = state.nodes.take("offer", whole.rows)
    _guard(state, view, whole)
    free = np.minimum(whole.offer, whole.computed)[:, :2] - whole.terms["lent"]
    free = np.where((condition == FRESH)[:, None], np.maximum(free, 0), 0)
    for guard, at in zip(*slo_state.of_rows(state, rows), strict=True):
        free[at] = permille_of(free[at], guard.free_permille)
    whole.terms["free"] = free
    send = np.flatnonzero(_worth_saying(state, view, whole))
    publish(state, view.cause, whole, send, before, out)


def _condition(state: PartitionState, view: TickView, rows: Ints) -> Ints:
    """How far each node's numbers can be trusted."""
    nodes, loop = state.nodes, state.law.loop
    full_ms, event_ms = nodes["full_ms"].take(rows), nodes["event_ms"].take(rows)
    age_ms = np.where(full_ms < 0, ABSENT, np.maximum(view.log_ms - full_ms, 0))
    young = event_ms - nodes["since_ms"].take(rows) < law.column(state, rows, "reservation.warm_ms")
    silent = view.log_ms - nodes["sample_ms"].take(rows) > loop.silent_after_ms
    condition = np.where(silent, SILENT, UNKNOWN_PODS)
    condition = np.where(degraded(age_ms, loop.silent_after_ms), condition, FRESH)
    condition = np.where(young, COLD, condition)
    condition = np.where(degraded(age_ms, loop.withdraw_after_ms), WITHDRAWN, condition)
    condition = np.where(full_ms < 0, COLD, condition)
    enabled = law.switch(state, rows, "capacity.enabled")
    return np.where(enabled, condition, DISABLED)


def _guard(state: PartitionState, view: TickView, whole: Whole) -> None:
    """What is offered: down at once, up slowly, and held where the number cannot be trusted.

    What was lent meanwhile, within what was computed last, is no rise: a successor that begins
    cold, or a node that falls silent, does not take it back.
    """
    nodes, rows = state.nodes, whole.rows
    held, held_ms = nodes.take("offer", rows), nodes["offer_ms"][rows]
    lent = nodes.take("lent", rows)
    computed = np.maximum(whole.computed, 0)
    start = np.where(held >= 0, np.maximum(held, np.minimum(lent, computed)), lent)
    elapsed_ms = np.where(held_ms >= 0, view.log_ms - held_ms, 0)
    per_min = law.column(state, rows, "capacity.raise_permille_per_min")
    capacity = np.tile(whole.terms["capacity"], 2)
    rise = guards.rise(capacity, per_min[:, None], elapsed_ms[:, None])
    condition = np.stack([whole.state, whole.mid_state], axis=1).repeat(2, axis=1)
    offer = np.minimum(computed, start + rise)
    for guard, at in zip(*slo_state.of_rows(state, rows), strict=True):
        if guard.cap:
            offer[at] = np.minimum(offer[at], guard.cap)
    offer = np.where(condition == FRESH, offer, start)
    offer = np.where(condition == COLD, lent, offer)
    offer = np.where(condition >= WITHDRAWN, np.minimum(start, lent), offer)
    nodes.put("offer", rows, offer)
    nodes["offer_ms"][rows] = view.log_ms
    whole.offer = offer


def _worth_saying(state: PartitionState, view: TickView, whole: Whole) -> Bools:
    """New, changed enough, other in kind, called back, zones of other pods, or old."""
    nodes, rows = state.nodes, whole.rows
    said, said_ms = nodes.take("said", rows), nodes["said_ms"].take(rows)
    capacity = np.tile(whole.terms["capacity"], 2)
    permille = law.column(state, rows, "capacity.change_permille")
    changed = guards.changed(said, whole.offer, capacity, permille[:, None])
    due = view.log_ms - said_ms >= law.column(state, rows, "capacity.refresh_ms")
    other_kind = whole.new_work != nodes["said_new"].take(rows)
    stepped = np.zeros(len(rows), dtype=np.bool_)
    for guard, at in zip(*slo_state.of_rows(state, rows), strict=True):
        stepped[at] = guard.moved_ms == view.log_ms
    other_pods = nodes["pods_rev"].take(rows) != nodes["said_rev"].take(rows)
    other_pods &= nodes["zone_count"].take(rows) > 0
    result: Bools = changed.any(axis=1) | other_kind | stepped | other_pods | due | (said_ms < 0)
    return result
