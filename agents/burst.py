"""CPU burst in the loop: throttling of samples in, quotas of latency-sensitive pods out.

`agents.step` calls `note` for each wave; `agents.isolate` calls `look` at each tick and `columns`
for what it says. Law: `agents.isolation.cpu_burst` and its limiter. A pod is taken for one
container: the kernel does not sum its containers' throttling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from agents import law
from agents.burst_config import Configs, Wishes, active, configs
from agents.columns import THROTTLED
from agents.isolation import burst_limiter, cpu_burst
from agents.isolation.by_class import BE, LS, SYSTEM
from agents.lending.amounts import quotient
from agents.machine import AS_IT_WISHES
from agents.table import ABSENT, Field, Ints, spread

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.state import PartitionState
    from agents.tick_view import TickView

NODE_FIELDS = (
    Field("burst_ms", fill=ABSENT),  # log time of the last look; ABSENT: burst is off
    Field("burst_state", np.int8),  # of the shared CPUs, at that look
)
POD_FIELDS = (
    Field("throttled", fill=ABSENT),  # us, the last counter
    Field("stalled_us"),  # throttled since the last look
    Field("burst_quota_us", fill=ABSENT),  # a period; ABSENT: its limit
    Field("burst_size"),  # of the bucket for which the tokens stand
    Field("burst_tokens"),  # percent x ms
)
LARGEST = 1 << 40
"""Microseconds, millicores and percent: no real figure is larger, and no product leaves 63 bits."""
CORE_MILLI = 1000
PERIOD_US_PER_MILLI = 100
"""Of a period of 100 ms."""
_OFF = {"throttled": ABSENT, "stalled_us": 0, "burst_quota_us": ABSENT, "burst_size": 0}


def note(state: PartitionState, folded: Folded) -> None:
    """Sum up how long each pod that may burst was throttled since the last tick."""
    on = active(state, folded.rows)
    if not on.any():
        return
    pods = state.pods
    may = pods["may_burst"].take(folded.slots) > 0
    mine = np.flatnonzero(may & spread(on, folded.owner))
    slots, owner, place = (
        each.take(mine) for each in (folded.slots, folded.owner, folded.place)
    )  # fmt: skip
    now, has = folded.payloads.pod(THROTTLED, owner, place)
    last = pods["throttled"].take(slots)
    moved = np.flatnonzero(has & (now >= 0) & (now != last))
    slots, now, last = slots[moved], now[moved], last[moved]
    pods["throttled"][slots] = now
    grown = (last >= 0) & (now > last)
    more = np.where(grown, np.minimum(now - last, LARGEST), 0)
    pods["stalled_us"][slots] = np.minimum(pods["stalled_us"].take(slots) + more, LARGEST)


def look(state: PartitionState, view: TickView) -> None:
    """Move the quotas; nodes where one moved are to be told."""
    nodes, pods = state.nodes, state.pods
    on = active(state, view.rows)
    left = view.rows[~on & (nodes["burst_ms"].take(view.rows) >= 0)]
    if len(left):
        nodes["burst_ms"][left] = ABSENT
        slots, _, _ = state.slots_of(left)
        for name, value in _OFF.items():
            pods[name][slots] = value
    chosen = np.flatnonzero(on & ~view.silent)
    if not len(chosen):
        return
    rows = view.rows[chosen]
    room = _state_of_nodes(state, rows)
    slots, owner = state.pods_where(pods["may_burst"] > 0, rows)
    wishes: list[Wishes] = []
    if (pods["may_burst"].take(slots) == AS_IT_WISHES).any():
        wishes = [view.seats[at].machine.wishes for at in chosen.tolist()]
    config = configs(state, rows, wishes, slots, owner)
    tokens = _limit(state, view.log_ms, rows, slots, owner, config)
    waits = (pods["stalled_us"].take(slots) > 0) | (pods["burst_quota_us"].take(slots) >= 0)
    _move(state, rows, slots, owner, room, config, tokens, np.flatnonzero(waits))
    nodes["burst_ms"][rows], nodes["burst_state"][rows] = view.log_ms, room


def _move(
    state: PartitionState, rows: Ints, slots: Ints, owner: Ints, room: Ints, config: Configs,
    tokens: Ints, chosen: Ints,
) -> None:  # fmt: skip
    """The next quota of the pods ``chosen`` [n]: all others are at their limit and stay there."""
    if not len(chosen):
        return
    pods, slots, owner = state.pods, slots[chosen], owner[chosen]
    base, now = _quotas(state, slots)
    percent = config.quota_percent.take(chosen)
    what = cpu_burst.operation(
        room.take(owner), config.quota.take(chosen), percent, config.period_s.take(chosen),
        burst_limiter.allows(tokens.take(chosen)), pods["stalled_us"].take(slots),
    )  # fmt: skip
    up, down = (law.column(state, rows, f"cpu_burst.{way}_percent") for way in ("up", "down"))
    after = cpu_burst.quota_us(base, now, percent, what, up.take(owner), down.take(owner))
    after = cpu_burst.pod_quota_us(now, np.arange(len(now)), after - now)
    state.nodes["isolate_looked"][rows[owner[after != now]]] = 0
    pods["burst_quota_us"][slots] = np.where(after > base * PERIOD_US_PER_MILLI, after, ABSENT)
    pods["stalled_us"][slots] = 0


def columns(
    state: PartitionState, rows: Ints, wishes: Sequence[Wishes], slots: Ints, owner: Ints
) -> dict[str, Ints]:  # fmt: skip
    """Knobs of each pod [n], us a period of 100 ms; ABSENT: not set."""
    config = configs(state, rows, wishes, slots, owner)
    bursts = state.pods["may_burst"].take(slots) > 0
    limit, quota = _quotas(state, slots)
    burst = cpu_burst.burst_us(limit, config.cpu_percent, config.kernel)
    burst = cpu_burst.kernel_burst_us(burst, quota)
    return {
        "cpu_burst_us": np.where(bursts & config.kernel, burst, ABSENT),
        "cpu_quota_us": np.where(bursts & config.quota, quota, ABSENT),
    }


def _state_of_nodes(state: PartitionState, rows: Ints) -> Ints:
    """What the shared CPUs of each node [n] have left."""
    nodes, pods = state.nodes, state.pods
    qos = pods["qos"]
    slots, owner = state.pods_where((qos != LS) & (qos != SYSTEM), rows)
    used = np.minimum(np.maximum(pods["milli"].take(slots), 0), LARGEST)
    pinned = np.flatnonzero(qos.take(slots) != BE)
    requests = np.minimum(pods.take("request", slots[pinned])[:, 0], LARGEST)
    # Exact: 2^12 pods of at most 2^40 each.
    sums = [
        np.bincount(mine, values, len(rows)).astype(np.int64)
        for mine, values in ((owner[pinned], requests), (owner, used))
    ]
    return cpu_burst.node_state(
        nodes.take("capacity", rows)[:, 0] // CORE_MILLI,
        sums[0],
        np.minimum(nodes.take("usage", rows)[:, 0], LARGEST),
        np.minimum(sums[1], LARGEST),
        law.column(state, rows, "cpu_burst.share_pool_threshold_percent"),
        law.column(state, rows, "cpu_burst.cooling_percent"),
    )


def _limit(
    state: PartitionState, log_ms: int, rows: Ints, slots: Ints, owner: Ints, config: Configs
) -> Ints:
    """Spend and save the tokens of each pod [n]; time that nobody saw is not counted."""
    pods = state.pods
    size = config.size
    tokens, anew = pods["burst_tokens"].take(slots), pods["burst_size"].take(slots) != size
    if anew.any():
        tokens = np.where(anew, burst_limiter.start(size), tokens)
        pods["burst_size"][slots] = size
    last_ms = state.nodes["burst_ms"].take(rows)
    elapsed_ms = np.where(last_ms >= 0, log_ms - last_ms, 0)
    elapsed_ms = np.minimum(elapsed_ms, state.law.loop.silent_after_ms)
    milli, limit = pods["milli"].take(slots), pods.take("limit", slots)[:, 0]
    percent = quotient(np.minimum(np.maximum(milli, 0), LARGEST) * 100, np.maximum(limit, 1))
    known = (milli >= 0) & (limit > 0)
    percent = np.where(known, np.minimum(percent, LARGEST), ABSENT)
    below = law.column(state, rows, "cpu_burst.saving_below_percent")
    tokens = burst_limiter.spend(
        tokens, size, percent, spread(elapsed_ms, owner), spread(below, owner)
    )
    pods["burst_tokens"][slots] = tokens
    return tokens


def _quotas(state: PartitionState, slots: Ints) -> tuple[Ints, Ints]:
    """(limit in milli, quota in force in us) of each pod [n]."""
    limit = state.pods.take("limit", slots)[:, 0]
    held = state.pods["burst_quota_us"].take(slots)
    return limit, np.where(held >= 0, held, np.maximum(limit, 0) * PERIOD_US_PER_MILLI)
