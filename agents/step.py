"""The law as one function: log entries of one partition in, outputs out.

Called by the worker, by replay, by the node agent on its own samples, and by the simulation. Pure:
what it knows of time is in the entries, and the same entries give the same outputs, however they
are cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from agents import (
    burst,
    capacity,
    evict_cpu,
    evict_memory,
    health,
    interference,
    isolate,
    predict,
    reports,
    slo_guard,
    suppress,
    tick_view,
    ticks,
)
from agents.admission import admit
from agents.fold import fold
from agents.log import Entry, Output, TickEntry
from agents.state import PartitionState
from agents.wave import Wave

IN_ORDER = attrgetter("offset", "node", "decider", "topic")


def step(state: PartitionState, batch: Sequence[Entry]) -> list[Output]:
    """Fold ``batch`` (offset order) into ``state``; entries at or below ``state.at`` are skipped.

    Outputs are sorted by (offset, node, decider, topic).
    """
    out: list[Output] = []
    wave = Wave()
    for entry in batch:
        if entry.offset <= state.at:
            continue
        state.at = entry.offset
        state.log_ms = max(state.log_ms, entry.log_ms)
        if isinstance(entry, TickEntry):
            _decide_samples(state, wave, out)
            wave = Wave()
            if ticks.accept(state, entry, out):
                _decide_tick(state, entry.offset, out)
            continue
        if entry.sample.node in wave.members:
            _decide_samples(state, wave, out)
            wave = Wave()
        admit(state, entry, wave, out)
    _decide_samples(state, wave, out)
    out.sort(key=IN_ORDER)
    return out


def _decide_samples(state: PartitionState, wave: Wave, out: list[Output]) -> None:
    """What is decided for a sample's own node, at once."""
    if wave.seats:
        folded = fold(state, wave)
        suppress.decide(state, wave, folded, out)
        evict_memory.decide(state, wave, folded, out)
        evict_cpu.decide(state, wave, folded, out)
        interference.note(state, folded)
        burst.note(state, folded)


def _decide_tick(state: PartitionState, offset: int, out: list[Output]) -> None:
    """What time decides: silence, the lease; for a fleet capacity, settings, reports too."""
    ticks.forget_silent(state)
    ticks.renew(state, offset, out)
    if state.fast_only:
        return
    view = tick_view.look(state, offset)
    predict.note(state, view)
    slo_guard.decide(state, view, out)
    capacity.decide(state, view, out)
    isolate.decide(state, view, out)
    reports.report(state, view, out)
    health.report(state, view, out)
