"""The columns a node sample may carry: one row here is the only place a column is defined.

Read by both sample codecs, by the node agent's sampler (what to measure, how often) and by the
fold (what to expect). Ids and names are for life: a column is retired, never reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["node", "pod"]
Kind = Literal["counter", "level"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a 64-bit integer for the node, or one for each pod of the pod set.

    ``counter`` only grows within one boot of the agent (a reset is the fold's business);
    ``level`` is a momentary value. ``slow`` columns rotate, one a period, so that a sample of
    50 pods stays within 3 KiB; each is due every ``SLOW_CADENCE_MS``.
    """

    id: int
    name: str
    scope: Scope
    kind: Kind
    slow: bool
    doc: str


SLOW_CADENCE_MS = 10_000

COLUMNS: tuple[Column, ...] = (
    Column(1, "cpu_busy_us", "node", "counter", False, "user+nice+system+irq+softirq, all CPUs"),
    Column(2, "cpu_steal_us", "node", "counter", False, "time the hypervisor took, all CPUs"),
    Column(3, "memory_total_bytes", "node", "level", False, "MemTotal"),
    Column(4, "memory_available_bytes", "node", "level", False, "MemAvailable"),
    Column(5, "psi_cpu_some_us", "node", "counter", False, "/proc/pressure/cpu some total"),
    Column(6, "psi_memory_some_us", "node", "counter", False, "/proc/pressure/memory some total"),
    Column(7, "psi_memory_full_us", "node", "counter", False, "/proc/pressure/memory full total"),
    Column(8, "psi_io_some_us", "node", "counter", False, "/proc/pressure/io some total"),
    Column(9, "be_cpu_usage_us", "node", "counter", False, "CPU of the best-effort root group"),
    Column(10, "be_cpu_throttled_us", "node", "counter", False, "throttled time of that group"),
    Column(11, "be_cpu_quota_milli", "node", "level", False, "quota in force there; -1: none"),
    Column(12, "samples_dropped", "node", "counter", False, "samples the outbox gave up"),
    Column(13, "oom_kills", "node", "counter", False, "oom_kill of /proc/vmstat"),
    Column(101, "cpu_usage_us", "pod", "counter", False, "CPU time"),
    Column(102, "cpu_throttled_us", "pod", "counter", False, "time throttled by quota"),
    Column(103, "memory_used_bytes", "pod", "level", False, "anon LRU + unevictable; no cache"),
    Column(104, "psi_cpu_some_us", "pod", "counter", False, "own cpu.pressure some total"),
    Column(105, "runq_wait_us", "pod", "counter", False, "run-queue wait, threads sampled"),
    Column(110, "memory_current_bytes", "pod", "level", True, "charged memory, cache included"),
    Column(111, "memory_file_bytes", "pod", "level", True, "page cache"),
    Column(112, "memory_inactive_file_bytes", "pod", "level", True, "reclaimable page cache"),
    Column(113, "memory_shmem_bytes", "pod", "level", True, "shared memory and tmpfs"),
    Column(114, "memory_unevictable_bytes", "pod", "level", True, "locked memory"),
    Column(115, "memory_limit_bytes", "pod", "level", True, "limit in force; -1: none"),
    Column(116, "psi_memory_some_us", "pod", "counter", True, "own memory.pressure some total"),
    Column(117, "psi_io_some_us", "pod", "counter", True, "own io.pressure some total"),
    Column(118, "io_bytes", "pod", "counter", True, "bytes read and written"),
    Column(119, "cpu_throttled_periods", "pod", "counter", True, "nr_throttled"),
)

BY_ID: dict[int, Column] = {column.id: column for column in COLUMNS}
NODE_COLUMNS: dict[str, Column] = {c.name: c for c in COLUMNS if c.scope == "node"}
POD_COLUMNS: dict[str, Column] = {c.name: c for c in COLUMNS if c.scope == "pod"}
FAST_POD_COLUMNS: tuple[str, ...] = tuple(
    c.name for c in COLUMNS if c.scope == "pod" and not c.slow
)
SLOW_POD_COLUMNS: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.scope == "pod" and c.slow)
