"""Pressure of the whole machine.

To be shown and watched; suppression must not be fed by it, because a throttled best-effort group
drives it to its maximum (each online group's own pressure is in `group_psi`).
"""

from __future__ import annotations

from node_agent.signals.base import NodeSource
from node_agent.signals.psi import parse_some, parse_some_full

NAME = "node_psi"
SOURCES = (
    NodeSource(("psi_cpu_some_us",), "proc/pressure/cpu", parse_some),
    NodeSource(
        ("psi_memory_some_us", "psi_memory_full_us"), "proc/pressure/memory", parse_some_full
    ),
    NodeSource(("psi_io_some_us",), "proc/pressure/io", parse_some),
)
