"""What is measured: one signal a file, each named here. Read by `node_agent.sampler`.

A new signal is one file, one line in a tuple below and one test. `runq_wait` keeps state between
sweeps and is therefore called by the sampler itself.
"""

from __future__ import annotations

from node_agent.signals import (
    best_effort,
    cpu_throttling,
    cpu_usage,
    group_psi,
    io_bytes,
    memory_charge,
    memory_stat,
    node_cpu,
    node_memory,
    node_psi,
)
from node_agent.signals.base import GroupSignal, NodeSignal

NODE_SIGNALS: tuple[NodeSignal, ...] = (node_cpu, node_memory, node_psi)
BEST_EFFORT_SIGNALS: tuple[GroupSignal, ...] = (best_effort,)
GROUP_SIGNALS: tuple[GroupSignal, ...] = (
    cpu_usage,
    cpu_throttling,
    group_psi,
    memory_stat,
    memory_charge,
    io_bytes,
)
