"""Isolation settings of each node: said when they change, and again now and then.

`agents.step` calls `decide` at each tick. A node is looked at when its inventory, its policy or a
pod's burst changed; it is told only when what follows differs from what stands. Nothing is said
to a node on which nothing was ever switched on; where all is switched off again, one command with
empty settings gives everything back. Laws: `agents.isolation`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from agents import burst, emit, guards
from agents.isolation import columns
from agents.isolation.columns import Common
from agents.isolation.memory_qos import NO_LIMIT, TIERS
from agents.table import ABSENT, Array, Field, Ints
from schemas.records import IsolationSettings, ResctrlFacts

if TYPE_CHECKING:
    from agents.log import Output
    from agents.state import PartitionState, Seat
    from agents.tick_view import TickView

NODE_FIELDS = (
    Field("isolate_looked", np.int8),  # 0: something changed since it was looked at
    Field("isolate_said"),  # digest of the settings that stand; 0: none
    Field("isolate_ms", fill=ABSENT),  # log time when they were said
)
POD_FIELDS: tuple[Field, ...] = ()
NOTHING = IsolationSettings()
DIGEST_BYTES = 8  # of a column of integers


def decide(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Commands of this tick, and one decision record for all of them."""
    burst.look(state, view)
    nodes, rows = state.nodes, view.rows
    said, said_ms = nodes["isolate_said"].take(rows), nodes["isolate_ms"].take(rows)
    refresh_ms = state.law.loop.refresh_ms
    due = guards.due(view.log_ms, said_ms, nodes["phase"].take(rows), refresh_ms) & (said != 0)
    todo = (due | (nodes["isolate_looked"].take(rows) == 0)) & ~view.silent
    todo &= nodes["pods_rev"].take(rows) >= 0
    chosen = np.flatnonzero(todo)
    if not len(chosen):
        return
    nodes["isolate_looked"][rows[chosen]] = 1
    lines: list[tuple[str, str, str, dict[str, int]]] = []
    numbers = nodes["policy_no"].take(rows[chosen])
    for number in np.unique(numbers).tolist():
        common = columns.common(state.laws[number])
        mine = chosen[numbers == number]
        if common.idle:
            mine = mine[said[mine] != 0]
        if len(mine):
            _tell(state, view, mine, common, due, lines, out)
    if lines:
        names, reasons, ids, terms = zip(*sorted(lines, key=lambda line: line[0]), strict=True)
        table = {name: [one[name] for one in terms] for name in terms[0]}
        emit.decision(view.cause, "isolate", names, reasons, table, out, ids)


def _tell(
    state: PartitionState, view: TickView, chosen: Ints, common: Common, due: Array,
    lines: list[tuple[str, str, str, dict[str, int]]], out: list[Output],
) -> None:  # fmt: skip
    """The nodes ``chosen`` of one policy, each told if it has something to hear."""
    nodes, rows = state.nodes, view.rows[chosen]
    said = nodes["isolate_said"].take(rows).tolist()
    for i, settings in enumerate(_settings(state, view, chosen, common)):
        now = digest(settings)
        at, row = int(chosen[i]), int(rows[i])
        if now == said[i] and not (now and due[at]):
            continue
        reason = "changed" if said[i] else "first"
        if now in (0, said[i]):
            reason = "refresh" if now else "released"
        seat = view.seats[at]
        terms = {
            "pods": len(settings.pods),
            "classes": len(settings.classes),
            "knobs": _count(settings),
            "burst_state": int(nodes["burst_state"][row]),
        }
        command_id = emit.order(
            state, seat, view.cause, "isolate", reason, terms, out, settings=settings
        )
        nodes["isolate_said"][row], nodes["isolate_ms"][row] = now, view.log_ms
        lines.append((seat.name, reason, command_id, terms))


def _settings(
    state: PartitionState, view: TickView, chosen: Ints, common: Common
) -> list[IsolationSettings]:
    """What each node ``chosen`` gets; all of one policy."""
    if common.idle:
        return [NOTHING] * len(chosen)
    nodes, rows = state.nodes, view.rows[chosen]
    seats = [view.seats[at] for at in chosen.tolist()]
    policy = state.laws[int(nodes["policy_no"][rows[0]])]
    slots, owner, place = state.slots_of(rows)
    qos = state.pods["qos"].take(slots).astype(np.int64)
    capacity = nodes.take("capacity", rows)
    pods: dict[str, Ints] = {}
    tiers: dict[str, Array] = {}
    if common.memory:
        allocatable = np.maximum(capacity - nodes.take("reserved", rows), 0)[:, 1]
        request = state.pods.take("request", slots)[:, 1]
        limit = state.pods.take("limit", slots)[:, 1]
        pods = columns.memory(policy, qos, request, limit, allocatable.take(owner))
        tiers = columns.tier_memory(owner, qos, pods, len(rows))
    if common.burst:
        wishes = [seat.machine.wishes for seat in seats]
        pods |= burst.columns(state, rows, wishes, slots, owner)
    daemons = columns.daemons(policy, capacity)
    lines: dict[ResctrlFacts, dict[str, str]] = {}  # machines are of a few kinds
    found = []
    for i, (seat, (uids, knobs)) in enumerate(
        zip(seats, _of_pods(seats, pods, owner, place), strict=True)
    ):
        facts = seat.machine.resctrl
        if facts is not None and facts not in lines:
            lines[facts] = columns.schemata(policy, facts) if common.resctrl else {}
        found.append(
            IsolationSettings(
                classes=common.classes,
                pods=uids,
                pod_knobs=knobs,
                tiers=_of_tiers(common, {name: each[i] for name, each in tiers.items()}),
                daemons=daemons[i],
                schemata=lines[facts] if facts is not None else {},
                bandwidths=common.bandwidths,
            )
        )
    return found


def _of_pods(
    seats: Sequence[Seat], pods: dict[str, Ints], owner: Ints, place: Ints
) -> Iterator[tuple[tuple[str, ...], dict[str, list[int | None]]]]:
    """Of each node: pods of which something is set, and the columns in which something is."""
    names = tuple(pods)
    if not names:
        yield from [((), {})] * len(seats)
        return
    table = np.stack([pods[name] for name in names])
    has = table != ABSENT
    chosen = np.flatnonzero(has.any(axis=0))
    owner, place = owner[chosen], place[chosen].tolist()
    ends = np.searchsorted(owner, np.arange(len(seats) + 1)).tolist()
    used = np.stack([np.bincount(owner, each, len(seats)) > 0 for each in has[:, chosen]], axis=1)
    amounts = table[:, chosen]
    said = amounts.astype(object)
    said[amounts == ABSENT] = None
    said[amounts == NO_LIMIT] = columns.UNLIMITED
    values = said.tolist()
    for i, seat in enumerate(seats):
        here = slice(ends[i], ends[i + 1])
        kept = [k for k, some in enumerate(used[i].tolist()) if some]
        knobs = {names[k]: values[k][here] for k in kept}
        yield tuple(map(seat.uids.__getitem__, place[here])), knobs


def _of_tiers(common: Common, memory: dict[str, Ints]) -> dict[str, dict[str, int]]:
    """The policy's part of the groups above the pods, and the sums over this node's pods."""
    found = {}
    for place, tier in enumerate(TIERS):
        sums = {name: int(each[place]) for name, each in memory.items() if each[place] != ABSENT}
        knobs = common.tiers.get(tier, {}) | sums
        if knobs:
            found[tier] = knobs
    return found


def _count(settings: IsolationSettings) -> int:
    """Values that are set, of whatever group."""
    groups = (settings.classes, settings.tiers, settings.bandwidths)
    tables = chain.from_iterable(each.values() for each in groups)
    of_pods = sum(len(each) - each.count(None) for each in settings.pod_knobs.values())
    return sum(map(len, tables)) + of_pods + len(settings.daemons) + len(settings.schemata)


def digest(settings: IsolationSettings) -> int:
    """What stands for settings in the state; not 0 but for empty ones."""
    if settings == NOTHING:
        return 0
    whole = hashlib.sha256(msgspec.json.encode(settings)).digest()
    return int.from_bytes(whole[:DIGEST_BYTES], "little", signed=True) or 1
