"""What is kept of services that have objectives, and of nodes where one of them is protected.

Both are few beside a partition's nodes, so they lie beside the arenas, by node. `agents.slo_watch`
and `agents.slo_guard` write them, `agents.capacity` and `agents.suppress` ask for columns of their
rows; without objectives there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agents.lending.amounts import PERMILLE
from agents.table import ABSENT, Bools, Ints

if TYPE_CHECKING:
    from agents.state import PartitionState

AMOUNTS = 4  # as in `agents.capacity`
STOPPED, GAP, RETURNING = range(3)
"""No new work is taken; the same, and the service is unheard of; what was called back returns."""


class Watch(msgspec.Struct):
    """One service on one node. Times are log times of what was measured; ABSENT: never."""

    rounds: int = 0  # reports beyond the objective, in a row
    beyond_ms: int = ABSENT  # the first of them
    seen_ms: int = ABSENT  # the newest report
    calm_ms: int = ABSENT  # since when every report was calm
    taken: bool = False  # capacity is called back for it
    bounded: bool = False  # it was told that it has as many nodes as one service may have
    p99_us: int = ABSENT  # of the newest report
    errors_permille: int = ABSENT
    requests: int = ABSENT


class Guard(msgspec.Struct):
    """One node where capacity is called back; amounts as in `agents.capacity`."""

    base: list[int]  # offered when it began
    best_effort: int  # millicores that best-effort work might use when it began
    mode: int = STOPPED
    called: int = 0  # the rung, see `agents.slo_ladder`
    moved_ms: int = ABSENT  # log time of the last step
    cap: list[int] = []  # the most to offer now; msgspec copies an empty default
    free_permille: int = PERMILLE  # of what nobody was lent
    bound_milli: int = ABSENT  # best-effort work may use no more


Watches = dict[str, Watch]
"""By workload."""


def suffering(watches: Watches) -> bool:
    """Whether any of these services was beyond its objective when it was last heard."""
    return any(watch.rounds for watch in watches.values())


def of_rows(state: PartitionState, rows: Ints) -> tuple[list[Guard], Ints]:
    """The guards of these nodes [g], and their places in ``rows`` [g]."""
    if not state.guards:
        return [], np.zeros(0, dtype=np.int64)
    place = np.full(state.nodes.size, ABSENT, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    keys = sorted(state.guards)
    at = place.take([state.seats[key].row for key in keys])
    mine = np.flatnonzero(at >= 0)
    return [state.guards[keys[i]] for i in mine.tolist()], at[mine]


def stopped(state: PartitionState, rows: Ints) -> Bools:
    """Which of these nodes [n] take no new work."""
    result = np.zeros(len(rows), dtype=np.bool_)
    guards, at = of_rows(state, rows)
    result[at] = [guard.mode != RETURNING for guard in guards]
    return result


def bounds(state: PartitionState, rows: Ints) -> Ints | None:
    """Millicores that best-effort work may use [n], ABSENT: as much as it may; None: everywhere."""
    guards, at = of_rows(state, rows)
    if not guards:
        return None
    result = np.full(len(rows), ABSENT, dtype=np.int64)
    result[at] = [guard.bound_milli for guard in guards]
    return result


def image(by_node: Mapping[bytes, Any]) -> dict[str, Any]:
    """Watches or guards as an image says them."""
    return {key.decode(): msgspec.to_builtins(kept) for key, kept in by_node.items()}


def watches_of(said: dict[str, Any]) -> dict[bytes, Watches]:
    """Watches out of an image."""
    return {key.encode(): msgspec.convert(kept, Watches) for key, kept in said.items()}


def guards_of(said: dict[str, Any]) -> dict[bytes, Guard]:
    """Guards out of an image."""
    return {key.encode(): msgspec.convert(kept, Guard) for key, kept in said.items()}
