"""What is measured: one signal a file, each named here. Read by `node_agent.sampler`.

A new signal is one file, one line below and one test. `memory_limits` is also asked between two
sweeps, so the sampler calls it by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.cgroup.handles import NodeFiles
from node_agent.cgroup.layout import Layout
from node_agent.signals import (
    best_effort,
    block_io,
    cold_memory,
    cpu_throttling,
    cpu_usage,
    cpus_online,
    disks,
    group_psi,
    memory_charge,
    memory_stat,
    network,
    node_cpu,
    node_memory,
    node_numa,
    node_psi,
    numa_memory,
    oom,
    perf,
    resctrl,
    runq_wait,
)
from node_agent.signals.base import GroupSignal, KeptSignal, NodeReader, NodeSignal, NodeSource

NODE_SIGNALS: tuple[NodeSignal, ...] = (node_cpu, node_memory, node_psi, cpus_online, node_numa)
BEST_EFFORT_SIGNALS: tuple[GroupSignal, ...] = (best_effort,)
GROUP_SIGNALS: tuple[GroupSignal, ...] = (
    cpu_usage,
    cpu_throttling,
    group_psi,
    memory_stat,
    memory_charge,
    block_io,
    numa_memory,
    cold_memory,
)


def node_sources(layout: Layout) -> list[tuple[str, Sequence[NodeSource]]]:
    """Name and sources of each signal of the machine."""
    found: list[tuple[str, Sequence[NodeSource]]] = [(s.NAME, s.SOURCES) for s in NODE_SIGNALS]
    for module, source in (
        (node_cpu, node_cpu.exact(layout)),
        (cold_memory, cold_memory.of_machine(layout)),
    ):
        if source is not None:
            found.append((module.NAME, (source,)))
    return found


def node_readers(files: NodeFiles) -> list[NodeReader]:
    """What reads several files of the machine."""
    return [disks.Disks(files), *resctrl.readers(files.root)]


def kept_signals(layout: Layout, period_ms: int) -> list[KeptSignal]:
    """What goes round the pods on this machine."""
    found: list[KeptSignal] = [
        runq_wait.RunqWait(layout.root, period_ms),
        network.Network(layout.root, period_ms),
        oom.OomKills(layout),
    ]
    if perf.there(layout.root.rstrip("/")):
        found.append(perf.Perf(layout))
    return found
