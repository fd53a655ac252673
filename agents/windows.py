"""Event-time windows as rings of integers: what a node and its pods used lately.

`agents.fold` writes them, `agents.reservation` and `agents.capacity` read them. A node has a ring
of 300 buckets of 1 s; a pod has the maxima of 6 minutes and of 6 times 10 minutes, the current one
included. Data that comes late goes to its own bucket; data older than the ring is dropped and
counted; buckets that time skipped hold nothing, which is not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.table import ABSENT, Array, Bools, Field, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState

SECONDS = 300  # buckets of a node's ring
SERIES = ("online_milli", "online_kib", "system_milli", "system_kib", "node_milli", "node_kib")
SYSTEM = slice(2, 4)  # the system's among SERIES
SLOTS = 6  # buckets of a pod's rings
SHORT_MS, LONG_MS = 60_000, 600_000  # their widths
SECOND_MS = 1000  # width of a node's
LARGEST = (1 << 31) - 1  # 32 bits hold 2 TiB in KiB
BYTES_PER_KIB = 1024  # memory is held in KiB, rounded up

NODE_FIELDS = (
    Field("ring", np.int32, (len(SERIES), SECONDS), ABSENT),
    Field("system_peak", np.int32, (2,), ABSENT),  # the system's maxima over the ring
    Field("second", fill=ABSENT),  # the newest bucket, in seconds of event time
    Field("minute", np.int32, fill=ABSENT),
    Field("tenth", np.int32, fill=ABSENT),  # the newest 10 minutes
)
POD_FIELDS = (
    # maxima of cpu milli and memory KiB: current minute, current 10 minutes, short, long window
    Field("live", np.int32, (8,), ABSENT),
    Field("minutes", np.int32, (2, SLOTS), ABSENT),
    Field("tenths", np.int32, (2, SLOTS), ABSENT),
)
NOW_SHORT, NOW_LONG, SHORT, LONG = (slice(i, i + 2) for i in range(0, 8, 2))
_RINGS = (
    ("minute", "minutes", SHORT_MS, NOW_SHORT, SHORT),
    ("tenth", "tenths", LONG_MS, NOW_LONG, LONG),
)


def kib(size_bytes: Ints) -> Ints:
    """KiB, rounded up; ABSENT stays ABSENT."""
    result: Ints = np.where(size_bytes < 0, ABSENT, -(-size_bytes // BYTES_PER_KIB))
    return result


def note_nodes(state: PartitionState, rows: Ints, event_ms: Ints, values: Array) -> None:
    """Maxima of one second each; ``values`` [w, SERIES], ABSENT where nothing is known."""
    ring, nodes = state.nodes["ring"], state.nodes
    second = event_ms // SECOND_MS
    latest = nodes["second"].take(rows)
    ahead = second - latest
    values = np.minimum(values, LARGEST)
    for i in np.flatnonzero(ahead > 1):  # after a gap; rare
        row, skipped = rows[i], min(int(ahead[i]) - 1, SECONDS)
        ring[row][:, (int(second[i]) - 1 - np.arange(skipped)) % SECONDS] = ABSENT
    at = second % SECONDS
    seen = ring[rows, :, at]
    fits = ahead > -SECONDS
    values = np.where((ahead > 0)[:, None], values, np.maximum(values, seen))
    ring[rows[fits], :, at[fits]] = values[fits]
    if not state.fast_only:  # a node's own law lends nothing
        now = np.where(fits[:, None], values, seen)[:, SYSTEM]
        _note_peaks(state, rows, now, seen[:, SYSTEM], ahead > 1)
    state.counts["late"] += int(np.count_nonzero(~fits))
    nodes["second"][rows] = np.maximum(second, latest)


def _note_peaks(
    state: PartitionState, rows: Ints, now: Array, seen: Array, skipped: Bools
) -> None:  # fmt: skip
    """Keep the system's maxima over the ring; looked for anew only where one may have left it.

    ``seen`` [w, 2] stood where ``now`` stands; ``skipped`` [w]: other buckets were emptied too.
    """
    nodes = state.nodes
    peak = nodes.take("system_peak", rows)
    fell = (now < seen) & (seen >= peak)
    left = np.flatnonzero(skipped | fell.any(axis=1))
    peak = np.maximum(peak, now)
    peak[left] = nodes["ring"][rows[left], SYSTEM].max(axis=2)
    nodes.put("system_peak", rows, peak)


def note_pods(
    state: PartitionState, rows: Ints, event_ms: Ints, slots: Ints, owner: Ints, values: Ints
) -> Array:
    """Fold one value a pod into its windows; ``values`` [n, 2] milli and KiB, or ABSENT.

    Returns the pods' live maxima [n, 8].
    """
    late = np.zeros(len(rows), dtype=np.bool_)
    for name, ring, width_ms, _, _ in _RINGS:
        late |= _turn(state, name, ring, rows, event_ms // width_ms)
    values = np.minimum(values, LARGEST)
    live = state.pods.take("live", slots)
    if late.any():
        _note_late(state, rows, event_ms, slots, owner, values, live)
    else:
        np.maximum(
            live, np.tile(values, live.shape[1] // values.shape[1]), out=live, casting="unsafe"
        )
    state.pods.put("live", slots, live)
    return live


def _turn(state: PartitionState, name: str, ring: str, rows: Ints, index: Ints) -> Bools:
    """Move to a new bucket where time has come to one; says which nodes are behind instead.

    All pods of such a node move, also those of a set that this sample does not know: what they
    used last belongs to the bucket that is over, and the buckets between hold nothing.
    """
    nodes, pods = state.nodes, state.pods
    latest = nodes[name].take(rows)
    ahead = index - latest
    moved = np.flatnonzero(ahead > 0)
    if len(moved):
        here, whose, _ = state.slots_of(rows[moved])
        buckets, live = pods.take(ring, here), pods.take("live", here)
        _, _, _, now, window = _RINGS[0] if ring == "minutes" else _RINGS[1]
        each = np.arange(len(here))
        old, steps = latest[moved].take(whose), ahead[moved].take(whose)
        buckets[each, :, old % SLOTS] = live[:, now]
        for step in range(1, SLOTS + 1):
            cleared = each[steps >= step]
            buckets[cleared, :, (old[cleared] + step) % SLOTS] = ABSENT
        live[:, now] = ABSENT
        live[:, window] = buckets.max(axis=2)
        pods.put(ring, here, buckets)
        pods.put("live", here, live)
        nodes[name][rows[moved]] = index[moved]
    return ahead < 0


def _note_late(
    state: PartitionState,
    rows: Ints,
    event_ms: Ints,
    slots: Ints,
    owner: Ints,
    values: Ints,
    live: Array,
) -> None:
    """The same where some data belongs to a bucket that is over; changes ``live`` in place."""
    for name, ring, width_ms, now, window in _RINGS:
        behind = (state.nodes[name].take(rows) - event_ms // width_ms).take(owner)
        current, fits = behind == 0, behind < SLOTS
        live[current, now] = np.maximum(live[current, now], values[current])
        live[fits, window] = np.maximum(live[fits, window], values[fits])
        old = np.flatnonzero((behind > 0) & fits)
        bucket = (event_ms // width_ms).take(owner[old]) % SLOTS
        ring_of = state.pods[ring]
        ring_of[slots[old], :, bucket] = np.maximum(ring_of[slots[old], :, bucket], values[old])
        state.counts["late"] += int(np.count_nonzero(~fits))
