"""Prediction in the loop: what prod pods use, minute by minute, and what of their requests is left.

`agents.step` calls `note` at each tick; `agents.capacity_terms` (mid) and `agents.reservation` ask
for `reclaimable`. Law: `agents.prediction`. Off, nothing is kept, done or even imported: its tables
are more than a MiB, which counts on a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import guards, windows
from agents.classes import HIGH, HOST, MID, TERMINATING
from agents.table import ABSENT, Array, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.tick_view import TickView

PERIOD_MS = 60_000
"""One sample a pod a minute, as the peer trains."""
PPM = 1_000_000
PERCENT = 100
MS_PER_S = 1000


def note(state: PartitionState, view: TickView) -> None:
    """Train the prod pods of the nodes whose moment this tick is, and ask their peaks anew.

    Each node has its moment of the minute by a stable hash of its name, wherever its pods lie. A
    silent node's pods learn nothing.
    """
    rule = state.law.prediction
    if not rule.enabled:
        state.models = None
        return
    from agents.prediction import fleet  # noqa: PLC0415
    from agents.prediction.held import Held  # noqa: PLC0415

    half_lives_ms = (rule.cpu_half_life_ms, rule.memory_half_life_ms)
    held = state.models
    if held is None or held.half_lives_ms != half_lives_ms:
        state.models = Held(half_lives_ms, view.log_ms, state.pods.size)
        return
    nodes, rows = state.nodes, view.rows
    due = guards.due(view.log_ms, held.at_ms, nodes["phase"].take(rows), PERIOD_MS)
    held.at_ms = view.log_ms
    rows = rows[due & ~view.silent]
    slots, owner = _prod(state, rows)
    if not len(slots):
        return
    usage = _last_minute(state, rows.take(owner), slots)
    models = held.models(rule.epsilon_ppm / PPM)
    fleet.train(models, slots, usage, view.log_ms)
    since_ms = held.table["since_ms"].take(slots)
    begins = (since_ms < 0) & (usage != ABSENT).all(axis=1)
    held.table["since_ms"][slots[begins]] = view.log_ms
    peaks = (rule.cpu_peak_percent / PERCENT,), (rule.memory_peak_percent / PERCENT,)
    cpu, memory = fleet.ask(models, slots, *peaks)
    held.table["peak"][slots] = np.concatenate([cpu, memory], axis=1)


def reclaimable(state: PartitionState, log_ms: int, rows: Ints, otherwise: Ints) -> Ints:
    """What prod pods leave of their requests on each of ``rows`` [r, 2], milli and bytes.

    ``otherwise`` [r, 2] stands while nothing is predicted. A pod that nobody reported for the whole
    short window counts as one without a model, as it counts with its request in batch's need.
    """
    held = state.models
    if held is None:
        return otherwise
    from agents.prediction import peak  # noqa: PLC0415

    rule, nodes = state.law.prediction, state.nodes
    slots, owner = _prod(state, rows)
    since_ms = held.table["since_ms"].take(slots)
    age_ms = np.where(since_ms >= 0, log_ms - since_ms, 0)
    percentile = held.table.take("peak", slots)
    percentile[state.pods.take("live", slots)[:, windows.SHORT] < 0] = ABSENT
    pods = peak.Pods(
        owner=owner,
        request=state.pods.take("request", slots),
        percentile=percentile,
        age_s=age_ms / MS_PER_S,
        ending=(state.pods["roles"].take(slots) & TERMINATING) > 0,
    )
    allocatable = np.maximum(nodes.take("capacity", rows) - nodes.take("reserved", rows), 0)
    cold_start_s = rule.cold_start_ms / MS_PER_S
    return peak.by_pod(allocatable, pods, rule.safety_margin_percent, cold_start_s).reclaimable


def _prod(state: PartitionState, rows: Ints) -> tuple[Ints, Ints]:
    """(slots, owner) of the prod and unclassed pods of ``rows``; owner indexes ``rows``."""
    slots, owner, _ = state.slots_of(rows)
    prod = (state.pods["roles"].take(slots) & (HIGH | MID | HOST)) == HIGH
    return slots[prod], owner[prod]


def _last_minute(state: PartitionState, rows: Ints, slots: Ints) -> Array:
    """[n, 2] milli and bytes: the most that pods on ``rows`` [n] used in the last whole minute."""
    place = (state.nodes["minute"].take(rows) - 1) % windows.SLOTS
    usage = state.pods["minutes"][slots, :, place].astype(np.int64)
    known = (usage >= 0).all(axis=1)
    usage[:, 1] *= windows.BYTES_PER_KIB
    usage[~known] = ABSENT
    return usage
