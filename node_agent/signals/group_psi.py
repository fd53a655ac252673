"""Each group's own pressure, from the unified hierarchy also where controllers are on v1.

A group under quota shows full pressure by being throttled: that is no sign of interference, so
these figures mean something for online groups only.
"""

from __future__ import annotations

from node_agent.signals.base import GroupSource, Input
from node_agent.signals.psi import parse_some

NAME = "group_psi"
SOURCES = (
    GroupSource(("psi_cpu_some_us",), None, Input(("psi_cpu",), parse_some)),
    GroupSource(("psi_memory_some_us",), None, Input(("psi_memory",), parse_some)),
    GroupSource(("psi_io_some_us",), None, Input(("psi_io",), parse_some)),
)
