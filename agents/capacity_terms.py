"""The terms of what each node may lend, batch and mid, out of what was folded.

`agents.capacity` asks `look` once a tick; the arithmetic is that of `agents.lending`. Amounts are
millicores and bytes; four of them side by side are batch's two and mid's two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import fold, law, predict
from agents.lending import batch, margins, mid
from agents.lending.amounts import permille_of, share_of
from agents.lending.needs import POLICY_KEYS
from agents.lending.publish import THOUSANDTHS, left_over, normalised
from agents.table import Array, Ints
from agents.windows import BYTES_PER_KIB

if TYPE_CHECKING:
    from agents.state import PartitionState

RECLAIM_KEYS = ("capacity.cpu_reclaim_percent", "capacity.memory_reclaim_percent")
CAP_KEYS = ("capacity.cpu_cap_percent", "capacity.memory_cap_percent")
MID_CAP_KEYS = ("mid.cpu_cap_percent", "mid.memory_cap_percent")
STATIC_KEYS = ("mid.static_cpu_percent", "mid.static_memory_percent")
MARGINS = ("prediction_error", "machine_failure", "scale_out", "rollout")
TERMS = (
    "capacity", "margin", *MARGINS, "expected_peak", "system", "reserved", "need", "cap",
    "normalised", "third_party", "lent", "free",
)  # fmt: skip
"""Batch: capacity - margins - max(system, reserved) - need, at most cap; + normalised, -
third_party. ``lent`` and ``free`` (what nobody was lent, for work without a quota) follow it."""
MID_TERMS = (
    "capacity", "margins", "system", "reserved", "long", "allocated", "reclaimable", "unallocated",
    "cap", "lent",
)  # fmt: skip
"""Mid: min(reclaimable, ...) and a share of unallocated, at most cap, and at most what lies above
the long-term reservation: capacity - margins - max(system, reserved) - long."""


@dataclass(slots=True)
class Looked:
    """Nodes [r]: terms [r, 2] by name, and what they come to [r, 4], which may be negative."""

    terms: dict[str, Ints]
    mid_terms: dict[str, Ints]
    computed: Ints


def look(state: PartitionState, log_ms: int, rows: Ints) -> Looked:
    """The sums of these nodes; nothing where nothing was ever measured."""
    nodes = state.nodes
    kept = margins_of(state, log_ms, rows, nodes.take("capacity", rows))
    sums = np.maximum(nodes.take("sums", rows), 0)
    system = nodes.take("system_peak", rows).astype(np.int64)
    system[:, 1] *= BYTES_PER_KIB
    system = np.maximum(system, 0) + sums[:, fold.HIGH_HOST : fold.HIGH_HOST_B + 1]
    terms, lendable = _batch(state, rows, kept, system, sums[:, fold.NEED : fold.NEED_B + 1])
    long = sums[:, fold.LONG : fold.LONG_B + 1]
    left = np.maximum(nodes.take("allocated", rows) - long, 0)
    left = predict.reclaimable(state, rows, left)
    mid_terms, lendable_mid = _mid(state, rows, kept, system, long, left)
    computed = np.concatenate([lendable, lendable_mid], axis=1)
    computed[nodes["full_ms"].take(rows) < 0] = 0
    return Looked(terms, mid_terms, computed)


def margins_of(state: PartitionState, log_ms: int, rows: Ints, capacity: Array) -> dict[str, Ints]:
    """Each margin by name, [r, 2] as ``capacity``, as the policies of ``rows`` [r] have it now."""
    permille = {
        name: law.column(state, rows, f"margins.{name}_permille")[:, None] for name in MARGINS
    }
    permille["expected_peak"] = _peaks(state, log_ms, rows)[:, None]
    kept = {"margin": batch.margin_of(capacity, law.columns(state, rows, RECLAIM_KEYS))}
    for name, share in permille.items():
        kept[name] = permille_of(capacity, share) if share.any() else np.zeros_like(capacity)
    return kept


def _peaks(state: PartitionState, log_ms: int, rows: Ints) -> Ints:
    """Permille that each node's calendar keeps back now."""
    now = [
        margins.expected_peak(
            log_ms, ((at.start_minute, at.end_minute, at.permille) for at in one.margins.peaks)
        )
        for one in state.laws.policies()
    ]
    return np.array(now, dtype=np.int64).take(state.nodes["policy_no"].take(rows))


def total(kept: dict[str, Ints]) -> Ints:
    """All margins together."""
    whole = np.zeros_like(kept["margin"])
    for one in kept.values():
        whole += one
    return whole


def _batch(
    state: PartitionState, rows: Ints, kept: dict[str, Ints], system: Ints, need: Ints
) -> tuple[dict[str, Ints], Ints]:
    nodes = state.nodes
    capacity, reserved = nodes.take("capacity", rows), nodes.take("reserved", rows)
    system = batch.system_of(law.columns(state, rows, POLICY_KEYS), system)
    cap = law.columns(state, rows, CAP_KEYS)
    amount = batch.lendable(capacity, total(kept), system, reserved, need)
    amount = batch.capped(amount, capacity, cap)
    origin = amount.copy()
    ratio = nodes["ratio_permille"].take(rows) / THOUSANDTHS
    origin[:, 0] = normalised(amount[:, 0], ratio) // THOUSANDTHS
    third_party = nodes.take("third_party", rows)
    terms = {
        "capacity": capacity, **kept, "system": system, "reserved": reserved, "need": need,
        "cap": share_of(capacity, cap), "normalised": origin - amount, "third_party": third_party,
        "lent": nodes.take("lent", rows)[:, :2],
    }  # fmt: skip
    return terms, np.where(origin > 0, left_over(origin, third_party), origin)


def _mid(
    state: PartitionState,
    rows: Ints,
    kept: dict[str, Ints],
    system: Ints,
    long: Ints,
    reclaimable: Ints,
) -> tuple[dict[str, Ints], Ints]:
    """What mid or batch use themselves displaces nothing: unused is what prod will leave."""
    nodes = state.nodes
    capacity, reserved = nodes.take("capacity", rows), nodes.take("reserved", rows)
    allocated, whole = nodes.take("allocated", rows), total(kept)
    idle = mid.unallocated(capacity, system, reserved, allocated)
    idle_percent = law.column(state, rows, "mid.unallocated_percent")[:, None]
    amount = np.where(
        law.column(state, rows, "mid.mode")[:, None] == mid.STATIC,
        mid.fixed(capacity, law.columns(state, rows, STATIC_KEYS)),
        mid.predicted(capacity, system + long, reclaimable, idle, idle_percent),
    )
    cap = law.columns(state, rows, MID_CAP_KEYS)
    amount = mid.bounded(amount, capacity, cap)
    above = batch.lendable(capacity, whole, system, reserved, long)
    terms = {
        "capacity": capacity, "margins": whole, "system": system, "reserved": reserved,
        "long": long, "allocated": allocated, "reclaimable": reclaimable, "unallocated": idle,
        "cap": share_of(capacity, cap), "lent": nodes.take("lent", rows)[:, 2:],
    }  # fmt: skip
    return terms, np.minimum(amount, above)
