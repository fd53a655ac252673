"""When an online service leaves its objective, best-effort work beside it makes room.

`agents.step` calls `decide` at each tick, before capacity. On a node where such a service has pods
and borrowed work runs, no new work is admitted, and what is lent is called back class by class
(`agents.slo_ladder`), each step after a wait for the service's own word; after calm it comes back
as it went, slower. A gap moves nothing either way. `agents.capacity` and `agents.suppress` take
what `Guard` says (`agents.slo_state`); nothing else here acts on a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents import emit, law, slo_ladder
from agents.classes import BEST_EFFORT, HIGH, HOST, MID, PRIORITY_RANGES
from agents.eviction.node import MID_ABOVE
from agents.lending.amounts import PERMILLE
from agents.slo_state import GAP, RETURNING, STOPPED, Guard, Watches, suffering
from agents.slo_watch import broken, calm_for, code, fresh
from agents.table import ABSENT
from schemas.policy import Objective, SloGuard

if TYPE_CHECKING:
    from agents.log import Output
    from agents.state import PartitionState, Seat
    from agents.tick_view import TickView

FREE_MOST = next(high for _, high, name in PRIORITY_RANGES if name == "free")
"""Priorities above it, up to mid's, ask for batch."""
FOR = "for "
"""Begins the names of columns that say by 1 for which service it is done."""
Line = tuple[str, str, dict[str, int]]
"""Node, reason and figures."""


@dataclass(slots=True)
class Place:
    """One node that is looked at in a tick."""

    key: bytes
    seat: Seat
    rule: SloGuard
    objectives: dict[str, Objective]
    watches: Watches
    suffers: list[str]  # workloads that have left their objective here, in order

    def taken(self) -> list[str]:
        """Workloads for which capacity is called back here, in order."""
        return [name for name in sorted(self.watches) if self.watches[name].taken]


def decide(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Steps of this tick, and one decision record for all of them."""
    if not state.beyond and not state.guards:
        return
    lines: list[Line] = []
    looked = [_look(state, view, key, lines) for key in _stirred(state)]
    places = [place for place in looked if place is not None]
    _take(state, places, view.log_ms, lines)
    for place in places:
        _move(state, place, view.log_ms, lines)
    if lines:
        lines.sort(key=lambda line: line[0])
        nodes, reasons, figures = zip(*lines, strict=True)
        names = dict.fromkeys(name for one in figures for name in one)
        columns = {name: [one.get(name, ABSENT) for one in figures] for name in names}
        emit.decision(view.cause, "slo_guard", nodes, reasons, columns, out)


def _stirred(state: PartitionState) -> list[bytes]:
    """Nodes where capacity is called back, or a service is beyond its objective, in order."""
    for key in [key for key, guard in state.guards.items() if _over(guard)]:
        del state.guards[key]
    for key in [key for key in state.beyond if not suffering(state.watches.get(key, {}))]:
        state.beyond.discard(key)
    return sorted(state.beyond | state.guards.keys())


def _over(guard: Guard) -> bool:
    """All is given back; it stood one tick longer, so that capacity said so."""
    return guard.mode == RETURNING and guard.called == 0


def _look(state: PartitionState, view: TickView, key: bytes, lines: list[Line]) -> Place | None:
    """What is to be judged on a node; None, and all given back, where the policy wants nothing."""
    seat, watches = state.seats[key], state.watches.get(key, {})
    rule = law.of(state, seat.row).slo_guard
    objectives = {one.workload: one for one in rule.objectives} if rule.enabled else {}
    here = _codes(state, seat)
    for name in [name for name in watches if name not in objectives]:
        del watches[name]
    if not watches:
        state.watches.pop(key, None)
    if not objectives:
        guard = state.guards.get(key)
        if guard is not None:
            _end(guard, view.log_ms)
            lines.append((seat.name, "slo_off", {}))
        return None
    suffers = []
    for name, watch in sorted(watches.items()):
        watch.taken &= code(name) in here
        if not watch.rounds:
            continue
        if code(name) not in here or not fresh(watch, objectives[name], view.log_ms):
            watch.rounds = 0
        elif broken(watch, objectives[name]):
            suffers.append(name)
    return Place(key, seat, rule, objectives, watches, suffers)


def _codes(state: PartitionState, seat: Seat) -> set[int]:
    """Workloads of the node's online pods."""
    start = int(state.nodes["start"][seat.row])
    return set(state.pods["workload"][start : start + len(seat.uids)].tolist())


def _take(state: PartitionState, places: list[Place], now_ms: int, lines: list[Line]) -> None:
    """Who is called back for: nodes where it is so already, then the first to suffer, no more than
    one service may have.
    """
    nodes: dict[str, int] = {}
    for place in places:
        for name, watch in place.watches.items():
            nodes[name] = nodes.get(name, 0) + watch.taken
    new = {
        (place.watches[name].beyond_ms, place.seat.name, name): place
        for place in places
        for name in place.suffers
        if not place.watches[name].taken
    }
    for first in sorted(new):
        place, (_, node, name) = new[first], first
        watch = place.watches[name]
        most = max(len(state.seats) * place.rule.most_nodes_permille // PERMILLE, 1)
        room = nodes[name] < most
        if (watch.bounded and not room) or not _borrowed(state, place.seat):
            continue
        if room:
            nodes[name] += 1
            watch.taken, watch.bounded = True, False
        else:
            watch.bounded = True
            if place.key not in state.guards:
                lines.append((node, "slo_bounded", {"most_nodes": most} | _of(place, name, now_ms)))


def _borrowed(state: PartitionState, seat: Seat) -> bool:
    """Whether work runs there that could make room: best effort, or of a class below prod."""
    start = int(state.nodes["start"][seat.row])
    roles = state.pods["roles"][start : start + len(seat.uids)].astype(np.int64)
    makes_room = (roles & BEST_EFFORT > 0) | (roles & HIGH == 0) | (roles & MID > 0)
    return bool((makes_room & (roles & HOST == 0)).any())


def _move(state: PartitionState, place: Place, now_ms: int, lines: list[Line]) -> None:
    """One node's next step, if it is time for one."""
    rule, guard = place.rule, state.guards.get(place.key)
    taken = place.taken()
    worse = [name for name in place.suffers if name in taken]
    if guard is None:
        if worse:
            guard = state.guards[place.key] = _begun(state, place.seat)
            _step(state, place, guard, "slo_breach", slo_ladder.down(rule, 0), now_ms, lines)
    elif worse:
        was, guard.mode = guard.mode, STOPPED
        heard = any(place.watches[name].seen_ms > guard.moved_ms for name in worse)
        waited = now_ms - guard.moved_ms >= rule.step_wait_ms or was == RETURNING
        deeper = guard.called < slo_ladder.bottom(rule)
        if heard and waited and deeper and _borrowed(state, place.seat):
            called = slo_ladder.down(rule, guard.called)
            _step(state, place, guard, "slo_call_back", called, now_ms, lines)
    elif any(not fresh(place.watches[n], place.objectives[n], now_ms) for n in taken):
        if guard.mode == STOPPED:
            guard.mode = GAP
            lines.append((place.seat.name, "slo_gap", _figures(place, guard, now_ms)))
    else:
        guard.mode = RETURNING if guard.mode == RETURNING else STOPPED
        calm = [calm_for(place.watches[name], guard.moved_ms) for name in taken]
        if min(calm, default=now_ms - guard.moved_ms) >= rule.calm_ms:
            guard.mode = RETURNING
            called = slo_ladder.up(rule, guard.called)
            reason = "slo_return" if called else "slo_over"
            _step(state, place, guard, reason, called, now_ms, lines)


def _begun(state: PartitionState, seat: Seat) -> Guard:
    """What there was is remembered, so that every share is one of that."""
    nodes, row = state.nodes, seat.row
    said, whole = int(nodes["said_milli"][row]), int(nodes["capacity"][row, 0])
    bounded = said >= 0 and not nodes["said_free"][row]
    return Guard(np.maximum(nodes["offer"][row], 0).tolist(), said if bounded else whole)


def _step(
    state: PartitionState, place: Place, guard: Guard, reason: str, called: int, now_ms: int,
    lines: list[Line],
) -> None:  # fmt: skip
    """Go to a rung and settle what follows; at the top again, all is over."""
    guard.called, guard.moved_ms = called, now_ms
    shares = slo_ladder.kept(place.rule, called)
    of_kind = (shares["batch"], shares["batch"], shares["mid"], shares["mid"])
    guard.cap = [
        amount * share // PERMILLE for amount, share in zip(guard.base, of_kind, strict=True)
    ]
    guard.free_permille = shares["free"]
    batch, mid = _asked(state, place.seat)
    bound = slo_ladder.bound_milli(guard.best_effort, batch, mid, shares)
    guard.bound_milli = bound if called and guard.best_effort >= 0 else ABSENT
    lines.append((place.seat.name, reason, _figures(place, guard, now_ms)))
    if reason == "slo_over":
        _end(guard, now_ms)
        for watch in place.watches.values():
            watch.taken = False


def _end(guard: Guard, now_ms: int) -> None:
    """Nothing is called back any more."""
    guard.mode, guard.called, guard.moved_ms = RETURNING, 0, now_ms
    guard.cap, guard.free_permille, guard.bound_milli = [], PERMILLE, ABSENT


def _asked(state: PartitionState, seat: Seat) -> tuple[int, int]:
    """CPU that best-effort pods of the node ask for on batch and on mid."""
    start = int(state.nodes["start"][seat.row])
    here = slice(start, start + len(seat.uids))
    pods = state.pods
    mine = (pods["roles"][here] & (BEST_EFFORT | HOST)) == BEST_EFFORT
    request, priority = pods["request"][here, 0][mine], pods["priority"][here][mine]
    most = int(state.nodes["capacity"][seat.row, 0])
    asked = np.minimum(request, max(most, 0))
    of_mid, of_batch = priority > MID_ABOVE, (priority <= MID_ABOVE) & (priority > FREE_MOST)
    batch = int(np.add.reduce(asked[of_batch], dtype=np.int64))
    return batch, int(np.add.reduce(asked[of_mid], dtype=np.int64))


def _figures(place: Place, guard: Guard, now_ms: int) -> dict[str, int]:
    """How far down the node is, and of the service that suffers most what it said."""
    told = {"called_permille": guard.called, "bound_milli": guard.bound_milli}
    shares = slo_ladder.kept(place.rule, guard.called)
    told |= {f"{name}_permille": share for name, share in shares.items()}
    taken = place.taken()
    told |= {f"{FOR}{name}": 1 for name in taken}
    first = next((name for name in place.suffers if name in taken), taken[0] if taken else "")
    return told | (_of(place, first, now_ms) if first else {})


def _of(place: Place, name: str, now_ms: int) -> dict[str, int]:
    """What one service said last, beside its objective."""
    watch, objective = place.watches[name], place.objectives[name]
    return {
        f"{FOR}{name}": 1,
        "p99_us": watch.p99_us,
        "p99_most_us": objective.p99_us,
        "errors_permille": watch.errors_permille,
        "errors_most_permille": objective.errors_permille,
        "requests": watch.requests,
        "age_ms": now_ms - watch.seen_ms,
    }
