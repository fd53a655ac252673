"""Samples into state: rates from pairs of raw counters, levels as they are, sums over pods.

`agents.step` calls `fold` once a wave and hands the answer to the fast deciders. Absent is never
zero: a counter that fell, or a value that is missing, leaves the last one standing with its age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import law, windows
from agents.classes import BEST_EFFORT, DEFAULT_PRIORITY, HIGH, HOST, LSE, MID, numbers_of
from agents.columns import COUNTERS, CPU, LEVELS, MEMORY, QUOTA, Payloads
from agents.lending import needs
from agents.reservation import expected, lines_of
from agents.table import ABSENT, Array, Bools, Field, Ints, spans

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.wave import Wave

NODE_FIELDS = (
    Field("phase"),  # stable hash of the name: staggers what is reported now and then
    Field("sample_ms", fill=ABSENT),  # log time of the last sample
    Field("full_ms", fill=ABSENT),  # log time of the last one whose pods could be folded
    Field("event_ms", fill=ABSENT),
    Field("since_ms", fill=ABSENT),  # event time at which history begins
    Field("counter", shape=(2,)),  # busy us, best-effort us
    Field("counter_us", shape=(2,), fill=ABSENT),  # monotonic time of each
    Field("usage", shape=(2,), fill=ABSENT),  # milli, bytes
    Field("sums", shape=(11,), fill=ABSENT),  # see SUMS
)
POD_FIELDS = (
    Field("counter"),  # cpu us
    Field("counter_us", fill=ABSENT),
    Field("milli", fill=ABSENT),
    Field("milli_ms", fill=ABSENT),  # event time
    Field("size", fill=ABSENT),  # bytes in use
    Field("size_ms", fill=ABSENT),
    Field("since_ms", fill=ABSENT),  # event time of its first value
)
SUMS = (
    "pods_milli", "pods_bytes", "online_milli", "online_bytes", "host_milli",
    "high_host_milli", "high_host_bytes", "need_milli", "need_bytes", "long_milli", "long_bytes",
)  # fmt: skip
"""Sums over the pods of one node. ``pods``: all, host applications too; ``online``: not best
effort, no host application; ``host``: host applications that are not best effort; ``high_host``:
those of a class above batch; ``need``: what the high-priority pods will need, by the policy of
batch; ``long``: what prod pods will use in the long term."""
(
    PODS, PODS_B, ONLINE, ONLINE_B, HOSTS, HIGH_HOST, HIGH_HOST_B, NEED, NEED_B, LONG, LONG_B,
) = range(len(SUMS))  # fmt: skip
LARGEST_DELTA = 1 << 43
"""Microseconds; times 1000 it stays below 2^53."""
LARGEST_LEVEL = 1 << 50
"""Bytes; a level beyond one pebibyte is not believed and counts as absent."""


@dataclass(slots=True)
class Folded:
    """One wave as the fast deciders need it; [w] a node, ``*_slots`` and ``owner`` [n] a pod."""

    rows: Ints
    mono_us: Ints
    event_ms: Ints
    log_ms: Ints
    known: Bools  # the pod set is the one in the inventory
    node_milli: Ints  # of this sample, else ABSENT
    be_milli: Ints
    memory_total: Ints
    memory_available: Ints
    memory_limit: Ints  # the next one above best-effort work; ABSENT: none
    memory_limited: Ints  # in use under it
    quota_milli: Ints  # in force; -1 none
    quota_known: Bools
    told_apart: Bools  # each pod's use is known, so what is left is the system's
    sums: Array  # [w, SUMS]
    slots: Ints
    owner: Ints
    place: Ints
    payloads: Payloads


def fold(state: PartitionState, wave: Wave) -> Folded:
    """Fold a wave into the state. Each node comes at most once."""
    nodes = state.nodes
    samples = [entry.sample for entry in wave.entries]
    rows = np.array([seat.row for seat in wave.seats], dtype=np.int64)
    mono_us = np.array([sample.mono_us for sample in samples], dtype=np.int64)
    event_ms = np.array(wave.event_ms, dtype=np.int64)
    log_ms = np.array(wave.log_ms, dtype=np.int64)
    if wave.fresh:
        _forget_counters(state, rows[wave.fresh])
    revisions = np.array([sample.pods_rev for sample in samples], dtype=np.int64)
    sizes = np.array([sample.pods for sample in samples], dtype=np.int64)
    count = nodes["count"].take(rows)
    known = (nodes["pods_rev"].take(rows) == revisions) & (count == sizes)
    state.counts["unknown_pods"] += len(rows) - int(np.count_nonzero(known))
    slots, owner, place = spans(nodes["start"].take(rows), np.where(known, count, 0))
    payloads = Payloads(samples)
    level = payloads.node
    has = payloads.node_has & (level >= 0) & (level <= LARGEST_LEVEL)
    rates = _node_rates(state, rows, mono_us, level[:, :COUNTERS], payloads.node_has[:, :COUNTERS])
    total, available, limit, limited, quota = (
        np.where(has[:, i], level[:, i], ABSENT) for i in LEVELS
    )
    folded = Folded(
        rows=rows,
        mono_us=mono_us,
        event_ms=event_ms,
        log_ms=log_ms,
        known=known,
        node_milli=rates[:, 0],
        be_milli=rates[:, 1],
        memory_total=total,
        memory_available=available,
        memory_limit=limit,
        memory_limited=limited,
        quota_milli=quota,
        quota_known=payloads.node_has[:, QUOTA],
        told_apart=known.copy(),
        sums=np.full((len(rows), len(SUMS)), ABSENT, dtype=np.int64),
        slots=slots,
        owner=owner,
        place=place,
        payloads=payloads,
    )
    folded.sums = _fold_pods(state, folded)
    _note_nodes(state, folded)
    return folded


def _forget_counters(state: PartitionState, rows: Ints) -> None:
    """A new start of the agent: its counters have nothing to do with the old ones."""
    state.nodes["counter_us"][rows] = ABSENT
    state.nodes["point_us"][rows] = ABSENT
    slots, _, _ = state.slots_of(rows)
    state.pods["counter_us"][slots] = ABSENT


def rate_milli(now: Array, last: Array, elapsed_us: Array, capacity_milli: Array) -> Array:
    """Millicores between two readings of a counter in us; ABSENT where it fell or time stood.

    Never above what the online CPUs could have done.
    """
    grown = now - last
    valid = (grown >= 0) & (elapsed_us > 0)
    rate = np.minimum(grown, LARGEST_DELTA) * 1000 // np.maximum(elapsed_us, 1)
    rate = np.where(capacity_milli >= 0, np.minimum(rate, capacity_milli), rate)
    return np.where(valid, rate, ABSENT)


def _node_rates(
    state: PartitionState, rows: Ints, mono_us: Ints, now: Ints, present: Bools
) -> Ints:
    """Millicores [w, 2] of node and best-effort root in this interval, ABSENT where unknown."""
    nodes = state.nodes
    last, last_us = nodes.take("counter", rows), nodes.take("counter_us", rows)
    elapsed_us = mono_us[:, None] - last_us
    has = present & (now >= 0) & ~_blank(state, now, last, elapsed_us)
    capacity = nodes.take("capacity", rows)[:, :1]
    rate = rate_milli(now, last, elapsed_us, capacity)
    rate = np.where(has & (last_us >= 0), rate, ABSENT)
    nodes["counter"][rows] = np.where(has, now, last)
    nodes["counter_us"][rows] = np.where(has, mono_us[:, None], last_us)
    return rate


def _blank(state: PartitionState, now: Array, last: Array, elapsed_us: Array) -> Bools:
    """Values that read zero all at once, for as long as that is no more than a bad reading.

    A counter's would be taken for a reset, and all that was ever used for the use of the next
    interval; a level's would book the pod's memory as the system's.
    """
    young = elapsed_us <= state.law.loop.silent_after_ms * 1000
    result: Bools = (now == 0) & (last > 0) & young
    return result


def _fold_pods(state: PartitionState, folded: Folded) -> Array:
    """Rates, levels and windows of the pods of a wave; returns the sums [w, SUMS]."""
    pods, slots, owner = state.pods, folded.slots, folded.owner
    event_ms = folded.event_ms.take(owner)
    milli, milli_now = _pod_rates(state, folded, event_ms)
    size, size_now = _pod_sizes(state, folded, event_ms)
    seen = np.stack([milli_now, windows.kib(size_now)], axis=1)
    live = windows.note_pods(state, folded.rows, folded.event_ms, slots, owner, seen)
    since_ms = pods["since_ms"].take(slots)
    begins = (since_ms < 0) & (milli_now >= 0)
    if begins.any():
        since_ms = np.where(begins, event_ms, since_ms)
        pods["since_ms"][slots] = since_ms
    roles = pods["roles"].take(slots)
    host = (roles & HOST) > 0
    online = (roles & BEST_EFFORT) == 0
    high = (roles & HIGH) > 0
    needy = np.flatnonzero(high & ~host)
    need, long = _needs(
        state, folded.rows.take(owner.take(needy)), slots.take(needy), live.take(needy, axis=0),
        (event_ms - since_ms).take(needy),
    )  # fmt: skip
    milli, size = np.maximum(milli, 0), np.maximum(size, 0)
    table = np.empty((len(SUMS), len(slots) + 1), dtype=np.int64)
    table[:, -1] = 0
    cells = table[:, :-1]
    cells[PODS], cells[PODS_B] = milli, size
    np.multiply(milli, online & ~host, out=cells[ONLINE])
    np.multiply(size, online & ~host, out=cells[ONLINE_B])
    cells[HOSTS:] = 0
    _hosts(cells, np.flatnonzero(host), roles)
    cells[NEED, needy], cells[NEED_B, needy] = need[:, 0], need[:, 1]
    cells[LONG, needy], cells[LONG_B, needy] = long[:, 0], long[:, 1]
    return _sums_by_node(table, owner, len(folded.rows))


def _hosts(cells: Array, hosts: Ints, roles: Array) -> None:
    """What the host applications ``hosts`` use, into the sums [SUMS, n] of the pods."""
    if not len(hosts):
        return
    roles, usage = roles[hosts], cells[PODS : PODS_B + 1, hosts].T
    cells[HOSTS, hosts] = usage[:, 0] * ((roles & BEST_EFFORT) == 0)
    high = needs.host_use(usage, numbers_of(roles), DEFAULT_PRIORITY["batch"])
    cells[HIGH_HOST, hosts], cells[HIGH_HOST_B, hosts] = high[:, 0], high[:, 1]


def _needs(
    state: PartitionState, rows: Ints, slots: Ints, live: Array, age_ms: Ints
) -> tuple[Ints, Ints]:
    """([n, 2] need by the policy of batch, [n, 2] long-term use of prod) of pods above batch.

    ``rows`` [n] are the nodes that the pods ``slots`` [n] run on.
    """
    request, roles = state.pods.take("request", slots), state.pods["roles"].take(slots)
    lse, prod = (roles & LSE) > 0, (roles & MID) == 0
    warm = age_ms >= law.column(state, rows, "reservation.warm_ms")
    short, long = (
        expected(line, request, warm) for line in lines_of(state, rows, slots, live)
    )  # fmt: skip
    need = needs.by_policy(law.columns(state, rows, needs.POLICY_KEYS), short, request, lse)
    long = needs.by_usage(long, request, lse)
    return need, long if prod.all() else long * prod[:, None]


def _sums_by_node(table: Array, owner: Ints, nodes: int) -> Array:
    """[nodes, k] sums of [k, n + 1] by owner; the last column is a zero that closes the runs."""
    counts = np.bincount(owner, minlength=nodes)
    start = np.cumsum(counts) - counts
    sums = np.add.reduceat(table, start, axis=1, dtype=np.int64).T
    sums[counts == 0] = 0  # reduceat answers an empty run with its first item
    return sums


def _pod_rates(state: PartitionState, folded: Folded, event_ms: Ints) -> tuple[Ints, Ints]:
    """(millicores, of this interval alone) [n]; ABSENT where unknown or too old."""
    pods, slots, owner = state.pods, folded.slots, folded.owner
    now, has = folded.payloads.pod(CPU, owner, folded.place)
    mono_us = folded.mono_us.take(owner)
    last, last_us = pods["counter"].take(slots), pods["counter_us"].take(slots)
    elapsed_us = mono_us - last_us
    has &= (now >= 0) & ~_blank(state, now, last, elapsed_us)
    capacity = state.nodes["capacity"].take(folded.rows, axis=0)[:, 0].take(owner)
    rate = rate_milli(now, last, elapsed_us, capacity)
    rate[~has | (last_us < 0)] = ABSENT
    folded.told_apart[owner[has & (last_us < 0)]] = False  # a first reading: the next has a rate
    pods["counter"][slots] = np.where(has, now, last)
    pods["counter_us"][slots] = np.where(has, mono_us, last_us)
    return _keep_last(state, "milli", slots, rate, event_ms), rate


def _pod_sizes(state: PartitionState, folded: Folded, event_ms: Ints) -> tuple[Ints, Ints]:
    """(bytes, of this sample alone) [n]; ABSENT where unknown or too old."""
    now, has = folded.payloads.pod(MEMORY, folded.owner, folded.place)
    last, last_ms = state.pods["size"].take(folded.slots), state.pods["size_ms"].take(folded.slots)
    has &= (now >= 0) & (now <= LARGEST_LEVEL)
    has &= ~_blank(state, now, last, (event_ms - last_ms) * 1000)
    size: Ints = np.where(has, now, ABSENT)
    return _keep_last(state, "size", folded.slots, size, event_ms), size


def _keep_last(state: PartitionState, name: str, slots: Ints, values: Ints, event_ms: Ints) -> Ints:
    """Store new values with their time; where there is none, the last one while it is young."""
    pods, has = state.pods, values >= 0
    if has.all():
        pods[name][slots] = values
        pods[f"{name}_ms"][slots] = event_ms
        return values
    kept, kept_ms = pods[name].take(slots), pods[f"{name}_ms"].take(slots)
    kept, kept_ms = np.where(has, values, kept), np.where(has, event_ms, kept_ms)
    pods[name][slots], pods[f"{name}_ms"][slots] = kept, kept_ms
    young = (kept >= 0) & (event_ms - kept_ms <= state.law.loop.silent_after_ms)
    result: Ints = np.where(young, kept, ABSENT)
    return result


def _note_nodes(state: PartitionState, folded: Folded) -> None:
    """What the node as a whole is at; only a known pod set says what the system itself uses."""
    nodes, rows, sums = state.nodes, folded.rows, folded.sums
    used = np.where(
        (folded.memory_total > 0) & (folded.memory_available > 0),
        folded.memory_total - folded.memory_available,
        ABSENT,
    )
    usage = np.stack([folded.node_milli, np.maximum(used, ABSENT)], axis=1)
    system = np.where(
        (usage >= 0) & folded.known[:, None], np.maximum(usage - sums[:, :2], 0), ABSENT
    )
    system[:, 0] = np.where(folded.told_apart, system[:, 0], ABSENT)
    online = np.where(folded.known[:, None], sums[:, ONLINE : ONLINE_B + 1], ABSENT)
    online[:, 0] = np.where(folded.node_milli >= 0, online[:, 0], ABSENT)
    values = np.stack([online, system, usage], axis=1)
    values[:, :, 1] = windows.kib(values[:, :, 1])
    windows.note_nodes(state, rows, folded.event_ms, values.reshape(len(rows), -1))
    nodes["usage"][rows] = np.where(usage >= 0, usage, nodes.take("usage", rows))
    nodes["sample_ms"][rows] = folded.log_ms
    nodes["event_ms"][rows] = folded.event_ms
    since_ms = nodes["since_ms"].take(rows)
    nodes["since_ms"][rows] = np.where(since_ms < 0, folded.event_ms, since_ms)
    whole = folded.known & (folded.node_milli >= 0) & (usage[:, 1] >= 0)
    nodes["full_ms"][rows] = np.where(whole, folded.log_ms, nodes["full_ms"].take(rows))
    nodes["sums"][rows[whole]] = sums[whole]
