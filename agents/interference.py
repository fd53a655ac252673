"""Interference as each online pod feels it: a robust z-score against its own last hour.

`agents.step` calls `note` for each wave: every 10 s of a node's monotonic time it takes a point of
CPU pressure (stalled us per s) and run-queue wait (us per s) of each online pod. The group's own
pressure counts, never the node's: a throttled best-effort group drags that to 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.classes import BEST_EFFORT
from agents.columns import PRESSURE, WAIT
from agents.histogram import BUCKETS, bucket_of, median_and_mad
from agents.log import Output
from agents.table import ABSENT, Array, Bools, Field, Ints
from schemas.records import Signal

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.state import PartitionState
    from agents.tick_view import TickView

SEGMENTS = 6  # an hour in all
SEGMENT_MS = 600_000  # 10 minutes
POINT_US = 10_000_000  # 10 s, by the node's own clock
POINT_MS = 10_000  # the same, for counting history
BASELINE_MS = 60_000
"""A baseline is taken anew once a minute: it moves slowly and costs more than a point."""
FULL = 255  # counts and streaks of 8 bits stop here
UNKNOWN_SCORE = -(1 << 62)  # no real score is so low
LARGEST_US = 1_000_000_000_000  # bounds the product below 2^63
LARGEST_RATE = 1_000_000_000  # us per s: a thousand threads that all wait
MAD_TO_SIGMA = (10_000, 14_826)
"""A normal deviation is 1.4826 times the median absolute one."""
SIGNALS = (PRESSURE, WAIT)

NODE_FIELDS = (
    Field("point_us", fill=ABSENT),  # monotonic time of the last point
    Field("segment", np.int32, fill=ABSENT),
    Field("baseline", np.int32, fill=ABSENT),  # the minute it was taken in
    Field("ill", np.uint8),
)
POD_FIELDS = (
    Field("point", shape=(2,), fill=ABSENT),  # counters at the last point
    Field("rate", np.int32, (2,), ABSENT),  # us per s over the last 10 s
    Field("middle", np.int32, (2,), ABSENT),  # median of the last hour; ABSENT: too little of it
    Field("spread", np.int32, (2,), ABSENT),  # median absolute deviation
    Field("score", shape=(2,), fill=UNKNOWN_SCORE),  # permille
    Field("streak", np.uint8),  # points in a row beyond the policy's score
    Field("hour", np.uint8, (2, SEGMENTS, BUCKETS)),
)


def score_permille(rate: Array, middle: Array, spread: Array) -> Array:
    """(rate - median) / (1.4826 x MAD) in permille, rounded down."""
    up, down = MAD_TO_SIGMA
    return (rate.astype(np.int64) - middle) * (1000 * up) // (spread.astype(np.int64) * down)


def note(state: PartitionState, folded: Folded) -> None:
    """Take the points that are due in this wave."""
    nodes = state.nodes
    last_us = nodes["point_us"].take(folded.rows)
    enabled = law.switch(state, folded.rows, "interference.enabled")
    due = enabled & folded.known & ((last_us < 0) | (folded.mono_us - last_us >= POINT_US))
    if not due.any():
        return
    mine = due.take(folded.owner)
    mine &= (state.pods["roles"].take(folded.slots) & BEST_EFFORT) == 0
    slots, owner, place = folded.slots[mine], folded.owner[mine], folded.place[mine]
    turned = _turn(state, folded, due)
    if turned.any():
        state.pods["hour"][slots[turned.take(owner)]] = 0  # an hour's gap leaves nothing
    _clear_segments(state, folded, slots, owner)
    rate = _rates(state, folded, slots, owner, place, last_us)
    _count(state, folded, slots, owner, rate)
    _baselines(state, folded, due, slots, owner)
    _score(state, folded, due, slots, owner, rate)
    nodes["point_us"][folded.rows[due]] = folded.mono_us[due]


def _turn(state: PartitionState, folded: Folded, due: Bools) -> Bools:
    """Nodes whose last segment is more than an hour old."""
    segment = folded.event_ms // SEGMENT_MS
    return due & (segment - state.nodes["segment"].take(folded.rows) >= SEGMENTS)


def _clear_segments(state: PartitionState, folded: Folded, slots: Ints, owner: Ints) -> None:
    """Empty the segments that time has come to."""
    segment, latest = folded.event_ms // SEGMENT_MS, state.nodes["segment"].take(folded.rows)
    ahead = segment - latest
    for step in range(1, SEGMENTS):
        moved = (ahead >= step).take(owner)
        if moved.any():
            at = (latest.take(owner[moved]) + step) % SEGMENTS
            state.pods["hour"][slots[moved], :, at] = 0


def _rates(
    state: PartitionState, folded: Folded, slots: Ints, owner: Ints, place: Ints, last_us: Ints
) -> Ints:
    """Us per s [n, 2] since the last point; ABSENT without a pair."""
    elapsed_us = (folded.mono_us - last_us).take(owner)
    paired = (last_us >= 0).take(owner)
    before = state.pods.take("point", slots)
    rate = np.empty((len(slots), len(SIGNALS)), dtype=np.int64)
    for k, column in enumerate(SIGNALS):
        now, has = folded.payloads.pod(column, owner, place)
        has &= now >= 0
        grown = now - before[:, k]
        valid = has & paired & (before[:, k] >= 0) & (grown >= 0)
        speed = np.minimum(grown, LARGEST_US) * 1_000_000 // np.maximum(elapsed_us, 1)
        rate[:, k] = np.where(valid, np.minimum(speed, LARGEST_RATE), ABSENT)
        before[:, k] = np.where(has, now, ABSENT)
    state.pods.put("point", slots, before)
    state.pods.put("rate", slots, rate)
    return rate


def _count(state: PartitionState, folded: Folded, slots: Ints, owner: Ints, rate: Ints) -> None:
    """Put each point into the histogram of its segment, unless that is over."""
    segment, latest = folded.event_ms // SEGMENT_MS, state.nodes["segment"].take(folded.rows)
    fits = (segment > latest - SEGMENTS).take(owner)
    at = (segment % SEGMENTS).take(owner)
    flat = state.pods["hour"].reshape(-1)
    for k in range(len(SIGNALS)):
        valid = np.flatnonzero((rate[:, k] >= 0) & fits)
        cell = (slots[valid] * len(SIGNALS) + k) * SEGMENTS + at[valid]
        cell = cell * BUCKETS + bucket_of(rate[valid, k])
        flat[cell] = np.minimum(flat[cell].astype(np.int64) + 1, FULL)
    state.nodes["segment"][folded.rows] = np.where(
        np.bincount(owner, minlength=len(folded.rows)) > 0, np.maximum(segment, latest), latest
    )


def _baselines(state: PartitionState, folded: Folded, due: Bools, slots: Ints, owner: Ints) -> None:
    """Median and MAD of the last hour, for nodes whose baseline is of another minute."""
    minute = (folded.event_ms + state.nodes["phase"].take(folded.rows) % BASELINE_MS) // BASELINE_MS
    old = due & (minute != state.nodes["baseline"].take(folded.rows))
    if not old.any():
        return
    state.nodes["baseline"][folded.rows[old]] = minute[old]
    asked = old.take(owner)
    mine = slots[asked]
    if not len(mine):
        return
    history_ms = law.column(state, folded.rows.take(owner[asked]), "interference.history_ms")
    hour = np.add.reduce(state.pods.take("hour", mine), axis=2, dtype=np.int32)
    counts = hour.reshape(-1, BUCKETS)
    points = np.add.reduce(counts, axis=1, dtype=np.int64)
    enough = (points > 0) & (points * POINT_MS >= history_ms.repeat(len(SIGNALS)))
    middle, spread = median_and_mad(counts)
    state.pods.put("middle", mine, np.where(enough, middle, ABSENT).reshape(-1, len(SIGNALS)))
    state.pods.put("spread", mine, np.where(enough, spread, ABSENT).reshape(-1, len(SIGNALS)))


def _score(
    state: PartitionState, folded: Folded, due: Bools, slots: Ints, owner: Ints, rate: Ints
) -> None:
    """Scores of the new points, and which nodes are ill by them."""
    pods, nodes, of_pod = state.pods, state.nodes, folded.rows.take(owner)
    ill_score = law.column(state, of_pod, "interference.ill_score_permille")
    middle, spread = pods.take("middle", slots), pods.take("spread", slots)
    known = (rate >= 0) & (spread > 0)
    score = np.where(known, score_permille(rate, middle, np.maximum(spread, 1)), UNKNOWN_SCORE)
    pods.put("score", slots, score)
    streak = pods["streak"].take(slots).astype(np.int64)
    beyond = (score > ill_score[:, None]).any(axis=1)
    streak = np.where(known.any(axis=1), np.where(beyond, np.minimum(streak + 1, FULL), 0), streak)
    pods["streak"][slots] = streak
    lasts = streak >= law.column(state, of_pod, "interference.ill_points")
    ill = np.bincount(owner[lasts], minlength=len(folded.rows)) > 0
    nodes["ill"][folded.rows[due]] = ill[due]


def report(state: PartitionState, view: TickView, chosen: Ints, out: list[Output]) -> None:
    """A `Signal` for each node ``chosen`` (indexes of the view) that has a point."""
    rows = view.rows[chosen]
    slots, owner, place = state.slots_of(rows)
    online = (state.pods["roles"].take(slots) & BEST_EFFORT) == 0
    slots, owner, place = slots[online], owner[online], place[online]
    if not len(slots):
        return
    columns = [
        _nullable(state.pods.take(name, slots)[:, k], nothing)
        for k in range(len(SIGNALS))
        for name, nothing in (("rate", ABSENT), ("middle", ABSENT), ("score", UNKNOWN_SCORE))
    ]
    count = np.bincount(owner, minlength=len(rows))
    end = np.cumsum(count).tolist()
    ill, names = state.nodes["ill"].take(rows).tolist(), place.tolist()
    has_rate = (state.pods.take("rate", slots) >= 0).any(axis=1)
    pointed = (np.bincount(owner[has_rate], minlength=len(rows)) > 0).tolist()
    begin = 0
    for i, at in enumerate(chosen.tolist()):
        seat, here = view.seats[at], slice(begin, end[i])
        begin = end[i]
        if not pointed[i]:
            continue
        uids = seat.uids
        record = Signal(
            seat.name, view.cause, bool(ill[i]), tuple(map(uids.__getitem__, names[here])),
            *(column[here] for column in columns),
        )  # fmt: skip
        key = seat.name.encode()
        out.append(Output("signals", key, record, view.cause.offset, seat.name, "interference"))


def _nullable(values: Array, nothing: int) -> list[int | None]:
    """The values as Python numbers, with None for ``nothing``."""
    result: list[int | None] = values.tolist()
    for at in np.flatnonzero(values == nothing).tolist():
        result[at] = None
    return result
