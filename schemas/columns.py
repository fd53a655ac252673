"""The columns a node sample may carry: one row here is the only place a column is defined.

Read by both sample codecs, by the node agent's sampler (what to measure, how often) and by the
fold (what to expect). Ids and names are for life: a column is retired, never reused. A reader
passes over what it does not know, and over what no decider of its own reads.
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
    ``level`` is a momentary value. ``every_ms`` is the longest time between two samples that carry
    it: `PERIOD_MS` is each, `SECOND_MS` each but at most once a second; slower ones take turns, so
    that a sample of 50 pods stays within 3 KiB.
    """

    id: int
    name: str
    scope: Scope
    kind: Kind
    every_ms: int
    doc: str


PERIOD_MS, SECOND_MS, SLOW_MS, RARE_MS = 0, 1000, 10_000, 60_000
ZONES_MAX = 8
"""NUMA nodes that have columns of their own; a machine of more is not told apart by zone."""
CACHE_GROUPS = ("lsr", "ls", "be", "rest")
"""Whose cache and memory traffic is told apart: each class's, and that of what no class has."""
_CACHE_FIGURES: tuple[tuple[str, Kind, str], ...] = (
    ("llc", "level", "last-level cache held, all caches"),
    ("bandwidth", "counter", "memory traffic, all sockets"),
    ("bandwidth_local", "counter", "of it, within the socket"),
)

COLUMNS: tuple[Column, ...] = (
    Column(1, "cpu_busy_us", "node", "counter", PERIOD_MS, "user+nice+system+irq+softirq"),
    Column(2, "cpu_steal_us", "node", "counter", PERIOD_MS, "time the hypervisor took, all CPUs"),
    Column(3, "memory_total_bytes", "node", "level", PERIOD_MS, "MemTotal"),
    Column(4, "memory_available_bytes", "node", "level", PERIOD_MS, "MemAvailable"),
    Column(5, "psi_cpu_some_us", "node", "counter", PERIOD_MS, "/proc/pressure/cpu some total"),
    Column(6, "psi_memory_some_us", "node", "counter", PERIOD_MS, "/proc/pressure/memory some"),
    Column(7, "psi_memory_full_us", "node", "counter", PERIOD_MS, "/proc/pressure/memory full"),
    Column(8, "psi_io_some_us", "node", "counter", PERIOD_MS, "/proc/pressure/io some total"),
    Column(9, "be_cpu_usage_us", "node", "counter", PERIOD_MS, "CPU of the best-effort root group"),
    Column(10, "be_cpu_throttled_us", "node", "counter", PERIOD_MS, "throttled time of that group"),
    Column(11, "be_cpu_quota_milli", "node", "level", PERIOD_MS, "quota in force there; -1: none"),
    Column(12, "samples_dropped", "node", "counter", PERIOD_MS, "samples the outbox gave up"),
    Column(13, "oom_kills", "node", "counter", SECOND_MS, "oom_kill of /proc/vmstat"),
    Column(14, "cpus_online", "node", "level", SECOND_MS, "CPUs that are online"),
    Column(15, "evictions", "node", "counter", PERIOD_MS, "pods ended by this start of the agent"),
    Column(16, "refault_pages", "node", "counter", SLOW_MS, "page cache missed soon after it went"),
    Column(17, "memory_cold_bytes", "node", "level", SLOW_MS, "page cache idle for five scans"),
    Column(18, "be_memory_limit_bytes", "node", "level", SECOND_MS, "next limit above; -1: none"),
    Column(19, "be_memory_used_bytes", "node", "level", SECOND_MS, "in use under it, no cache"),
    Column(20, "disk_read_us", "node", "counter", SLOW_MS, "time of all reads, all disks"),
    Column(21, "disk_write_us", "node", "counter", SLOW_MS, "time of all writes, all disks"),
    Column(22, "disk_reads", "node", "counter", SLOW_MS, "reads done, all disks"),
    Column(23, "disk_writes", "node", "counter", SLOW_MS, "writes done, all disks"),
    Column(24, "disk_busy_us", "node", "counter", SLOW_MS, "time at work, summed over disks"),
    *(
        Column(30 + zone, f"numa{zone}_available_bytes", "node", "level", SLOW_MS, "free and cache")
        for zone in range(ZONES_MAX)
    ),
    *(
        Column(40 + 3 * place + row, f"{name}_{group}_bytes", "node", kind, SLOW_MS, doc)
        for place, group in enumerate(CACHE_GROUPS)
        for row, (name, kind, doc) in enumerate(_CACHE_FIGURES)
    ),
    Column(101, "cpu_usage_us", "pod", "counter", PERIOD_MS, "CPU time"),
    Column(102, "cpu_throttled_us", "pod", "counter", PERIOD_MS, "time throttled by quota"),
    Column(103, "memory_used_bytes", "pod", "level", SECOND_MS, "anon LRU + unevictable; no cache"),
    Column(104, "psi_cpu_some_us", "pod", "counter", PERIOD_MS, "own cpu.pressure some total"),
    Column(105, "runq_wait_us", "pod", "counter", PERIOD_MS, "run-queue wait, threads sampled"),
    Column(110, "memory_current_bytes", "pod", "level", SLOW_MS, "charged memory, cache included"),
    Column(111, "memory_file_bytes", "pod", "level", SLOW_MS, "page cache"),
    Column(112, "memory_inactive_file_bytes", "pod", "level", SLOW_MS, "reclaimable page cache"),
    Column(113, "memory_shmem_bytes", "pod", "level", RARE_MS, "shared memory and tmpfs"),
    Column(114, "memory_unevictable_bytes", "pod", "level", RARE_MS, "locked memory"),
    Column(115, "memory_limit_bytes", "pod", "level", RARE_MS, "limit in force; -1: none"),
    Column(116, "psi_memory_some_us", "pod", "counter", SLOW_MS, "own memory.pressure some total"),
    Column(117, "psi_io_some_us", "pod", "counter", SLOW_MS, "own io.pressure some total"),
    Column(118, "io_bytes", "pod", "counter", SLOW_MS, "bytes read and written"),
    Column(119, "cpu_throttled_periods", "pod", "counter", RARE_MS, "nr_throttled"),
    Column(120, "net_receive_bytes", "pod", "counter", RARE_MS, "received, without lo"),
    Column(121, "net_transmit_bytes", "pod", "counter", RARE_MS, "sent, without lo"),
    Column(122, "oom_kills", "pod", "counter", RARE_MS, "processes the kernel killed for memory"),
    Column(123, "cpu_cycles", "pod", "counter", RARE_MS, "counted while its turn lasted"),
    Column(124, "cpu_instructions", "pod", "counter", RARE_MS, "counted in the same turns"),
    Column(125, "refault_pages", "pod", "counter", RARE_MS, "page cache missed soon after it went"),
    Column(126, "memory_cold_bytes", "pod", "level", RARE_MS, "page cache idle for five scans"),
    Column(127, "io_operations", "pod", "counter", RARE_MS, "reads and writes done"),
    Column(128, "io_latency_us", "pod", "level", RARE_MS, "mean of late, slowest device"),
    *(
        Column(130 + zone, f"memory_numa{zone}_bytes", "pod", "level", RARE_MS, "used on that node")
        for zone in range(ZONES_MAX)
    ),
)

BY_ID: dict[int, Column] = {column.id: column for column in COLUMNS}
NODE_COLUMNS: dict[str, Column] = {c.name: c for c in COLUMNS if c.scope == "node"}
POD_COLUMNS: dict[str, Column] = {c.name: c for c in COLUMNS if c.scope == "pod"}
FAST_NODE_COLUMNS: tuple[str, ...] = tuple(
    c.name for c in COLUMNS if c.scope == "node" and c.every_ms <= SECOND_MS
)
FAST_POD_COLUMNS: tuple[str, ...] = tuple(
    c.name for c in COLUMNS if c.scope == "pod" and c.every_ms <= SECOND_MS
)
SLOW_POD_COLUMNS: tuple[str, ...] = tuple(
    c.name for c in COLUMNS if c.scope == "pod" and c.every_ms > SECOND_MS
)
