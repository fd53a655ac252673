"""The machines themselves: time, capacity, how busy they were, whom the kernel killed for memory.

Core-microseconds and milliseconds. A node's time is that between two samples that follow each other
within `GAP_MS`; ``silent_ms`` is the rest of the time between its first and its last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from streams.accounts.sums import DAY_MS, MS_PER_HOUR, US_PER_HOUR, Sums, ratio

GAP_MS = 900_000
"""As long as capacity is held for a silent node; longer silence is no time of the account."""


@dataclass(slots=True)
class Machines(Sums):
    """Of nodes, and of the pods on them (``*_pod_ooms``)."""

    nodes: set[str] = field(default_factory=set)
    node_ms: int = 0
    silent_ms: int = 0
    capacity_us: int = 0
    busy_us: int = 0
    node_ooms: int = 0
    online_pod_ooms: int = 0
    best_effort_pod_ooms: int = 0


class MachineFigures(Struct, frozen=True):
    """``ooms``: processes that the kernel killed for memory, anywhere on the nodes; of these
    what was counted in pods.
    """

    nodes: int
    node_hours: float
    node_days: float
    silent_node_hours: float
    capacity_core_hours: float
    busy_core_hours: float
    utilisation: float | None
    ooms: int
    online_pod_ooms: int
    best_effort_pod_ooms: int


def figures(sums: Machines) -> MachineFigures:
    """The sums in hours and days."""
    return MachineFigures(
        nodes=len(sums.nodes),
        node_hours=sums.node_ms / MS_PER_HOUR,
        node_days=sums.node_ms / DAY_MS,
        silent_node_hours=sums.silent_ms / MS_PER_HOUR,
        capacity_core_hours=sums.capacity_us / US_PER_HOUR,
        busy_core_hours=sums.busy_us / US_PER_HOUR,
        utilisation=ratio(sums.busy_us, sums.capacity_us),
        ooms=sums.node_ooms,
        online_pod_ooms=sums.online_pod_ooms,
        best_effort_pod_ooms=sums.best_effort_pod_ooms,
    )
