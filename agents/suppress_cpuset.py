"""The CPUs that best-effort work runs on, where the policy bounds it by CPU set.

`agents.suppress` calls `choose` once a wave, with the allowances it has settled. A set is chosen
anew only when its size or what others own changes; it grows one bounded step a tick's period, and
shrinks at once. Law: `agents.suppress_pass`, which takes CPUs of others out last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import law, machine
from agents.cpuset import lendable, select, wanted_cpus
from agents.suppress_pass import (
    CORE_MILLI,
    NO_QUOTA,
    UNSET,
    USING,
    Bounds,
    Facts,
    Manners,
    keep_off,
    reconcile,
)
from agents.table import ABSENT, Bools, Field, Ints
from schemas.records import CpuTopology

if TYPE_CHECKING:
    from agents.fold import Folded
    from agents.state import PartitionState, Seat
    from agents.wave import Wave
    from schemas.policy import Suppress

NODE_FIELDS = (
    Field("cpus_count", np.int32, fill=ABSENT),  # of the set in force; ABSENT: none
    Field("cpus_wanted", np.int32, fill=ABSENT),  # when it was chosen; ABSENT: choose anew
    Field("cpus_grown_ms", fill=ABSENT),  # log time of its last growth
)
POD_FIELDS: tuple[Field, ...] = ()
US_PER_MILLI = 100
"""Of a period of 100 ms."""
NO_CPUS = CpuTopology((), (), (), ())


def bound(state: PartitionState, rows: Ints) -> Bools:
    """Which nodes [w] are bounded by CPU set: by policy, and their CPUs are known."""
    wanted = law.choice(state, rows, "suppress.policy", "cpuset")
    if state.policy is None or not wanted.any():
        return np.zeros(len(rows), dtype=np.bool_)
    wanted &= law.switch(state, rows, "suppress.enabled")
    return wanted & (state.nodes["processors"].take(rows) > 0)


def choose(
    state: PartitionState, wave: Wave, folded: Folded, by_cpuset: Bools, allow_milli: Ints,
    sure: Bools,
) -> Bools:  # fmt: skip
    """Settle each seat's ``cpus`` for its allowance where that is ``sure``; says which changed [w].

    A node that is no longer bounded by CPU set is left without one.
    """
    nodes, rows = state.nodes, folded.rows
    count = nodes["cpus_count"].take(rows).astype(np.int64)
    anew = ~by_cpuset & (count >= 0)
    changed = np.zeros(len(rows), dtype=np.bool_)
    wanted = np.full(len(rows), ABSENT, dtype=np.int64)
    if by_cpuset.any():
        wanted = np.where(by_cpuset, _wanted(state, folded, count, allow_milli), ABSENT)
        anew |= by_cpuset & (wanted != nodes["cpus_wanted"].take(rows))
    for at in np.flatnonzero(anew & sure).tolist():
        seat, row = wave.seats[at], int(rows[at])
        bounded, size = bool(by_cpuset[at]), int(wanted[at])
        milli = min(int(allow_milli[at]), size * CORE_MILLI) if bounded else 0
        seen = Facts(0, int(folded.node_milli[at]), int(nodes["count"][row]), milli)
        cpus = _next(seat, seen, _manners(law.of(state, row).suppress, bounded=bounded))
        if len(cpus) > count[at]:
            nodes["cpus_grown_ms"][row] = folded.log_ms[at]
        nodes["cpus_wanted"][row] = wanted[at]
        nodes["cpus_count"][row] = len(cpus) or ABSENT
        changed[at] = cpus != seat.cpus
        seat.cpus = cpus
    return changed


def _wanted(state: PartitionState, folded: Folded, count: Ints, allow_milli: Ints) -> Ints:
    """Sizes [w]; best effort that is not bounded yet has every CPU."""
    nodes, rows = state.nodes, folded.rows
    total = nodes["processors"].take(rows).astype(np.int64)
    now = np.where(count >= 0, count, total)
    floor = law.column(state, rows, "suppress.floor_cpus")
    step = law.column(state, rows, "suppress.raise_permille")
    wanted = wanted_cpus(allow_milli, now, total, floor, step)
    grown_ms = nodes["cpus_grown_ms"].take(rows)
    early = (grown_ms >= 0) & (folded.log_ms - grown_ms < state.law.loop.tick_ms)
    return np.where(early, np.minimum(wanted, now), wanted)


def _next(seat: Seat, seen: Facts, how: Manners) -> tuple[int, ...]:
    """The set that is to be in force; none where the bound is lifted, or nothing may be lent."""
    topology = seat.machine.topology
    rows = machine.processors(topology if topology is not None else NO_CPUS)
    pins = machine.pins(seat.machine)
    held = np.array(seat.cpus, dtype=np.int64) if seat.cpus else np.sort(rows.cpu)
    now = Bounds(held, NO_QUOTA, USING if seat.cpus else UNSET)
    after = keep_off(reconcile(now, seen, rows, pins, how), pins)
    if after.cpuset_status != USING:
        return ()
    cpus = after.cpus
    if not lendable(cpus, pins).all():  # it stayed, and all of it was given to others since
        open_to = rows.where(lendable(rows.cpu, pins))
        cpus = np.sort(select(open_to, min(len(cpus), len(open_to.cpu))))
    return tuple(cpus.tolist())


def _manners(rule: Suppress, *, bounded: bool) -> Manners:
    return Manners(
        enabled=bounded,
        by_cpuset=True,
        floor_us=rule.floor_milli * US_PER_MILLI,
        floor_cpus=rule.floor_cpus,
        ignore_permille=rule.ignore_permille,
        raise_permille=rule.raise_permille,
    )
