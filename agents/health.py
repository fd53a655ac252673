"""What one partition says of its nodes at each tick; the fleet processor adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.log import Output
from schemas.records import PartitionHealth

if TYPE_CHECKING:
    from agents.state import PartitionState
    from agents.tick_view import TickView


def report(state: PartitionState, view: TickView, out: list[Output]) -> None:
    """Counts of nodes: all, silent, ill (of those that speak), and evictions they want; of pods
    those that break a rule.
    """
    nodes, speaks = state.nodes, ~view.silent
    wanted = nodes["evictions_wanted"].take(view.rows)
    record = PartitionHealth(
        cause=view.cause,
        nodes=len(view.rows),
        silent=int(np.count_nonzero(view.silent)),
        ill=int(np.count_nonzero((nodes["ill"].take(view.rows) > 0) & speaks)),
        pods_against_rules=int(np.add.reduce(nodes["claims"][view.rows, 0], dtype=np.int64)),
        evictions_wanted=int(np.add.reduce(np.where(speaks, wanted, 0), dtype=np.int64)),
    )
    key = f"partition/{state.partition}".encode()
    out.append(Output("fleet", key, record, view.cause.offset, "", "health"))
