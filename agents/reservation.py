"""The four lines of each pod and node: limit, usage, short-term and long-term reservation.

`agents.fold` asks `expected` what a pod will use; `agents.step` has each node reported now and
then. Both reservations are maxima of their window (the last 5 to 6 minutes, the last 50 to 60) and
a margin, capped at capacity; by policy the short-term one is predicted (`agents.predict`).
Percentiles are nearest-rank-floor, as the peer's (`metriccache/util.go`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from agents import claims, law, predict, windows
from agents.classes import HIGH, HOST
from agents.log import Output
from agents.table import ABSENT, Array, Bools, Field, Ints
from schemas.records import Reservation

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat
    from agents.tick_view import TickView

NODE_FIELDS = (Field("report_ms", fill=ABSENT),)  # log time of the last report
POD_FIELDS: tuple[Field, ...] = ()
PERCENTILES = (50, 90, 95, 99)
"""The peer's, without the average."""
UNBOUNDED = 1 << 62
"""Stands for a capacity that nobody knows."""
RANK_NAMES = tuple(
    f"{prefix}p{percent}" for prefix in ("online_", "system_", "") for percent in PERCENTILES
)
SCALES = (1, windows.BYTES_PER_KIB)
"""From what windows hold to what records say: millicores as they are, KiB to bytes."""
LINES = ("limit", "usage", "short", "long")


def line_of(peak: Array, margin_percent: Ints) -> Ints:
    """[n, 2] milli and bytes from peaks in milli and KiB, with margins [n]; ABSENT stays."""
    line = peak.astype(np.int64) * (100 + margin_percent[:, None]) // 100
    line[:, 1] *= windows.BYTES_PER_KIB
    line[peak < 0] = ABSENT
    return line


def lines_of(
    state: PartitionState, rows: Ints, slots: Ints, live: Array
) -> tuple[Ints, Ints]:  # fmt: skip
    """Short-term and long-term lines [n, 2] of the pods ``slots`` on ``rows`` [n], milli and bytes.

    ``live`` [n, 8] are their maxima; ABSENT without a value. The short-term one comes from the
    pods' models, or from what they use now, where the policy wants it.
    """
    peaks = _short_peaks(state, rows, slots, live)
    short, long = (
        line_of(peak, law.column(state, rows, f"reservation.{name}_margin_percent"))
        for name, peak in (("short", peaks), ("long", live[:, windows.LONG]))
    )
    return predict.short_lines(state, rows, slots, live, short), long


def _short_peaks(state: PartitionState, rows: Ints, slots: Ints, live: Array) -> Array:
    """Milli and KiB [n, 2]: the maxima of the window, or the newest use where the policy says so.

    A use that the last sample but one did not tell either is old: the window stands for it.
    """
    peaks = live[:, windows.SHORT]
    wanted = law.choice(state, rows, "reservation.short_model", "newest")
    if not wanted.any():
        return peaks
    pods, last_ms = state.pods, state.nodes["event_ms"].take(rows)
    use = np.stack([pods["milli"].take(slots), windows.kib(pods["size"].take(slots))], axis=1)
    told_ms = np.stack([pods[f"{name}_ms"].take(slots) for name in ("milli", "size")], axis=1)
    told = (use >= 0) & (told_ms >= last_ms[:, None])
    result: Array = np.where(wanted[:, None] & told, use, peaks)
    return result


def expected(line: Ints, request: Ints, warm: Bools) -> Ints:
    """What pods are expected to use [n, 2] (milli, bytes), for `agents.lending.needs`.

    ``line`` [n, 2], ABSENT without a value, which stays. While a pod's own history is young, the
    larger of request and line.
    """
    if warm.all():
        return line
    result: Ints = np.where(warm[:, None] | (line < 0), line, np.maximum(line, request))
    return result


def percentiles(rings: Array) -> Array:
    """[n, PERCENTILES] nearest-rank-floor percentiles of [n, SECONDS]; ABSENT of an empty one."""
    ordered = np.sort(rings, axis=1)
    nothing = np.add.reduce(ordered < 0, axis=1, dtype=np.int64)
    count = rings.shape[1] - nothing
    rank = np.maximum(count[:, None] * np.array(PERCENTILES) // 100 - 1, 0) + nothing[:, None]
    result: Array = np.take_along_axis(ordered, np.minimum(rank, rings.shape[1] - 1), axis=1)
    return result


def report(state: PartitionState, view: TickView, chosen: Ints, out: list[Output]) -> None:
    """A `Reservation` for each node ``chosen`` (indexes of the view)."""
    if not len(chosen):
        return
    rows = view.rows[chosen]
    nodes = state.nodes
    slots, owner, _ = state.slots_of(rows)
    capacity = nodes.take("capacity", rows)
    lines, high = _pod_lines(state, rows, slots, owner, capacity)
    totals = _node_lines(lines, high, nodes["count"].take(rows), capacity)
    left = np.maximum(totals[:, 0] - totals[:, 2], 0)
    ring = nodes.take("ring", rows)
    ranks = percentiles(ring.reshape(-1, windows.SECONDS)).reshape(len(rows), -1, len(PERCENTILES))
    ranks = ranks.astype(np.int64)
    last = nodes["second"].take(rows) % windows.SECONDS
    system = ring[np.arange(len(rows)), windows.SYSTEM, last].astype(np.int64)
    figures: dict[str, Any] = {
        "warm": (nodes["event_ms"].take(rows) - nodes["since_ms"].take(rows)).tolist(),
        "totals": [
            [dict(zip(LINES, line, strict=True)) for line in totals[:, :, unit].tolist()]
            for unit in range(2)
        ],
        "ranks": [_by_name(ranks[:, unit::2], scale) for unit, scale in enumerate(SCALES)],
        "system": np.maximum(system, 0).tolist(),
        "left": predict.reclaimable(state, rows, left).tolist(),
        "stays": predict.stays(state, rows).tolist(),
    }
    end = np.cumsum(nodes["count"].take(rows)).tolist()
    begin = 0
    for i, at in enumerate(chosen.tolist()):
        seat = view.seats[at]
        rules = claims.by_rule(state, seat)
        pods = lines[:, :, begin : end[i]].tolist()
        record = _record(view, seat, i, pods, figures, rules)
        begin = end[i]
        key = seat.name.encode()
        out.append(Output("reservations", key, record, view.cause.offset, seat.name, "reservation"))


def _pod_lines(
    state: PartitionState, rows: Ints, slots: Ints, owner: Ints, capacity: Ints
) -> tuple[Array, Bools]:
    """[2, LINES, n] in milli and bytes, ABSENT where unknown; and which pods are high."""
    pods = state.pods
    short, long = lines_of(state, rows.take(owner), slots, pods.take("live", slots))
    oldest_ms = (state.nodes["event_ms"].take(rows) - state.law.loop.silent_after_ms).take(owner)
    request, bound = pods.take("request", slots), np.where(capacity >= 0, capacity, UNBOUNDED)
    lines = np.empty((2, len(LINES), len(slots)), dtype=np.int64)
    for unit, name in enumerate(("milli", "size")):
        young = pods[f"{name}_ms"].take(slots) >= oldest_ms
        most = bound[:, unit].take(owner)
        lines[unit, 0] = request[:, unit]
        lines[unit, 1] = np.where(young, pods[name].take(slots), ABSENT)
        np.minimum(short[:, unit], most, out=lines[unit, 2])
        np.minimum(long[:, unit], most, out=lines[unit, 3])
    roles = pods["roles"].take(slots)
    return lines, (roles & (HIGH | HOST)) == HIGH


def _node_lines(lines: Array, high: Bools, count: Ints, capacity: Ints) -> Array:
    """[r, LINES, 2]: sums over high pods; a reservation without a value stands at the request.

    ``count`` [r]: pods of each node, which lie one after the other in ``lines``.
    """
    filled = np.zeros((2, len(LINES), lines.shape[2] + 1), dtype=np.int64)
    each = filled[:, :, :-1]  # the last column is a zero that closes the runs
    np.maximum(lines, 0, out=each)
    each[:, 2:] = np.where(lines[:, 2:] >= 0, lines[:, 2:], lines[:, :1])
    each *= high
    sums = np.add.reduceat(filled, np.cumsum(count) - count, axis=2, dtype=np.int64)
    sums[:, :, count == 0] = 0  # reduceat answers an empty run with its first item
    totals = sums.transpose(2, 1, 0)
    most = np.where(capacity >= 0, capacity, UNBOUNDED)
    totals[:, 2:] = np.minimum(totals[:, 2:], most[:, None])
    return totals


def _record(
    view: TickView, seat: Seat, i: int, pods: list[list[list[int]]], figures: dict[str, Any],
    rules: dict[str, list[str]],
) -> Reservation:  # fmt: skip
    ranks = figures["ranks"]
    cpu, memory = figures["totals"][0][i], figures["totals"][1][i]
    system, left, stays = (figures[name][i] for name in ("system", "left", "stays"))
    return Reservation(
        node=seat.name,
        cause=view.cause,
        warm_ms=max(figures["warm"][i], 0),
        cpu_milli=cpu,
        memory_bytes=memory,
        cpu_percentiles_milli=ranks[0][i],
        memory_percentiles_bytes=ranks[1][i],
        system_cpu_milli=system[0],
        system_memory_bytes=system[1] * windows.BYTES_PER_KIB,
        reclaimable_cpu_milli=left[0],
        reclaimable_memory_bytes=left[1],
        peak_cpu_milli=stays[0],
        peak_memory_bytes=stays[1],
        pods=seat.uids,
        pod_cpu_milli=dict(zip(LINES, pods[0], strict=True)),
        pod_memory_bytes=dict(zip(LINES, pods[1], strict=True)),
        pods_against_rules=rules,
    )


def _by_name(ranks: Array, scale: int) -> list[dict[str, int]]:
    """One dict a node, from [r, 3, PERCENTILES] of online, system, node; empty windows left out."""
    values = ranks.reshape(len(ranks), -1)
    rows = np.where(values >= 0, values * scale, ABSENT).tolist()
    named = [dict(zip(RANK_NAMES, row, strict=True)) for row in rows]
    if (values >= 0).all():
        return named
    return [{name: value for name, value in one.items() if value >= 0} for one in named]
