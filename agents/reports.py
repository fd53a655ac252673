"""Reports of single nodes at ticks: reservations and signals, at most once a period a node.

Each node has its own moment in the period, by a stable hash of its name, so that the load is even.
A node that is silent, or whose pods are not known, is not reported: its last report stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents import guards, interference, law, reservation
from agents.log import Output

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.tick_view import TickView


def report(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Reports of the nodes whose moment this tick is."""
    nodes, rows, loop = state.nodes, view.rows, state.law.loop
    last_ms = nodes["report_ms"].take(rows)
    fresh = view.log_ms - nodes["full_ms"].take(rows) <= loop.silent_after_ms
    due = guards.due(view.log_ms, last_ms, nodes["phase"].take(rows), loop.report_ms)
    chosen = np.flatnonzero(due & fresh)
    nodes["report_ms"][rows[chosen]] = view.log_ms
    reservation.report(state, view, chosen, out)
    watched = chosen[law.switch(state, rows[chosen], "interference.enabled")]
    interference.report(state, view, watched, out)
