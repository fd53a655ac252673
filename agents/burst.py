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
from agents.classes import HOST
from agents.columns import THROTTLED
from agents.isolation import burst_limiter, cpu_burst
from agents.isolation.by_class import BE, LS, LSE, LSR
from agents.table import ABSENT, Bools, Field, Ints

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
    Field("stalled_us", fill=ABSENT),  # throttled since the last look; ABSENT: no sample
    Field("burst_quota_us", fill=ABSENT),  # a period; ABSENT: its limit
    Field("burst_size"),  # of the bucket for which the tokens stand
    Field("burst_tokens"),  # percent x ms
)
LARGEST = 1 << 40
"""Microseconds, millicores and percent: no real figure is larger, and no product leaves 63 bits."""
CORE_MILLI, MS_PER_S = 1000, 1000
PERIOD_US_PER_MILLI = 100
"""Of a period of 100 ms."""
_OFF = {"throttled": ABSENT, "stalled_us": ABSENT, "burst_quota_us": ABSENT, "burst_size": 0}


def note(state: PartitionState, folded: Folded) -> None:
    """Sum up how long each pod was throttled since the last tick."""
    on = active(state, folded.rows)
    if not on.any():
        return
    mine = on.take(folded.owner)
    slots, pods = folded.slots[mine], state.pods
    now, has = folded.payloads.pod(THROTTLED, folded.owner[mine], folded.place[mine])
    last, stalled = pods["throttled"].take(slots), pods["stalled_us"].take(slots)
    has &= now >= 0
    grown = has & (last >= 0) & (now >= last)
    more = np.minimum(np.maximum(stalled, 0) + np.minimum(now - last, LARGEST), LARGEST)
    pods["stalled_us"][slots] = np.where(grown, more, stalled)
    pods["throttled"][slots] = np.where(has, now, last)


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
    slots, owner, _ = state.slots_of(rows)
    config = configs(state, rows, [view.seats[at].machine.wishes for at in chosen.tolist()], owner)
    room = _state_of_nodes(state, rows, slots, owner)
    tokens = _limit(state, view.log_ms, rows, slots, owner, config)
    base, now = _quotas(state, slots)
    what = cpu_burst.operation(
        room.take(owner), config.quota, config.quota_percent, config.period_s,
        burst_limiter.allows(tokens), pods["stalled_us"].take(slots),
    )  # fmt: skip
    up, down = (law.column(state, rows, f"cpu_burst.{way}_percent") for way in ("up", "down"))
    after = cpu_burst.quota_us(
        base, now, config.quota_percent, what, up.take(owner), down.take(owner)
    )
    after = cpu_burst.pod_quota_us(now, np.arange(len(now)), after - now)
    bursts = _bursts(state, slots)
    nodes["isolate_looked"][rows[owner[bursts & (after != now)]]] = 0
    pods["burst_quota_us"][slots] = np.where(bursts, after, ABSENT)
    pods["stalled_us"][slots] = ABSENT
    nodes["burst_ms"][rows], nodes["burst_state"][rows] = view.log_ms, room


def columns(
    state: PartitionState, rows: Ints, wishes: Sequence[Wishes], slots: Ints, owner: Ints
) -> dict[str, Ints]:
    """Knobs of each pod [n], us a period of 100 ms; ABSENT: not set."""
    config, bursts = configs(state, rows, wishes, owner), _bursts(state, slots)
    _, quota = _quotas(state, slots)
    limit = state.pods.take("limit", slots)[:, 0]
    burst = cpu_burst.burst_us(limit, config.cpu_percent, config.kernel)
    burst = cpu_burst.kernel_burst_us(burst, quota)
    return {
        "cpu_burst_us": np.where(bursts & config.kernel, burst, ABSENT),
        "cpu_quota_us": np.where(bursts & config.quota, quota, ABSENT),
    }


def _state_of_nodes(state: PartitionState, rows: Ints, slots: Ints, owner: Ints) -> Ints:
    """What the shared CPUs of each node [n] have left."""
    nodes, pods = state.nodes, state.pods
    qos = pods["qos"].take(slots)
    pinned = (qos == LSE) | (qos == LSR)
    outside = pinned | (qos == BE)
    requests, used = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    np.add.at(requests, owner[pinned], pods.take("request", slots[pinned])[:, 0])
    milli = np.clip(pods["milli"].take(slots[outside]), 0, LARGEST)
    np.add.at(used, owner[outside], milli)
    return cpu_burst.node_state(
        nodes.take("capacity", rows)[:, 0] // CORE_MILLI,
        requests,
        np.minimum(nodes.take("usage", rows)[:, 0], LARGEST),
        np.minimum(used, LARGEST),
        law.column(state, rows, "cpu_burst.share_pool_threshold_percent"),
        law.column(state, rows, "cpu_burst.cooling_percent"),
    )


def _limit(
    state: PartitionState, log_ms: int, rows: Ints, slots: Ints, owner: Ints, config: Configs
) -> Ints:
    """Spend and save the tokens of each pod [n]; time that nobody saw is not counted."""
    pods = state.pods
    size = burst_limiter.capacity(config.period_s * MS_PER_S, config.quota_percent)
    tokens, same = pods["burst_tokens"].take(slots), pods["burst_size"].take(slots) == size
    tokens = np.where(same, tokens, burst_limiter.start(size))
    last_ms = state.nodes["burst_ms"].take(rows)
    elapsed_ms = np.where(last_ms >= 0, log_ms - last_ms, 0)
    elapsed_ms = np.minimum(elapsed_ms, state.law.loop.silent_after_ms)
    milli, limit = pods["milli"].take(slots), pods.take("limit", slots)[:, 0]
    known = (milli >= 0) & (limit > 0)
    percent = np.minimum(milli, LARGEST) * 100 // np.maximum(limit, 1)
    percent = np.where(known, np.minimum(percent, LARGEST), ABSENT)
    below = law.column(state, rows, "cpu_burst.saving_below_percent")
    tokens = burst_limiter.spend(tokens, size, percent, elapsed_ms.take(owner), below.take(owner))
    pods["burst_size"][slots], pods["burst_tokens"][slots] = size, tokens
    return tokens


def _bursts(state: PartitionState, slots: Ints) -> Bools:
    """Pods [n] of class LS with a limit; host applications have none of ours."""
    pods = state.pods
    mine: Bools = (pods["qos"].take(slots) == LS) & (pods.take("limit", slots)[:, 0] > 0)
    mine &= (pods["roles"].take(slots) & HOST) == 0
    return mine


def _quotas(state: PartitionState, slots: Ints) -> tuple[Ints, Ints]:
    """(limit in milli, quota in force in us) of each pod [n]."""
    limit = state.pods.take("limit", slots)[:, 0]
    held = state.pods["burst_quota_us"].take(slots)
    return limit, np.where(held >= 0, held, np.maximum(limit, 0) * PERIOD_US_PER_MILLI)
