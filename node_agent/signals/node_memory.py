"""Memory of the whole machine: total and available from /proc/meminfo, events from vmstat.

MemAvailable, not free memory: page cache that can be dropped is not in use, on any version.
"""

from __future__ import annotations

from node_agent.signals.base import NodeSource, Value, number_after

NAME = "node_memory"


def parse(data: bytes) -> tuple[Value, ...]:
    """(MemTotal, MemAvailable) in bytes; available is absent on kernels that do not say it."""
    return _kibibytes(b"\n" + data, b"\nMemTotal:"), _kibibytes(data, b"\nMemAvailable:")


def parse_vmstat(data: bytes) -> tuple[Value, ...]:
    """(processes killed by the kernel for want of memory); absent before kernel 4.13."""
    return (number_after(data, b"\noom_kill "),)


def parse_refaults(data: bytes) -> tuple[Value, ...]:
    """(pages of page cache that were read again soon after they had been dropped)."""
    found = number_after(data, b"\nworkingset_refault_file ")
    # Kernels before 5.9 have one line for file and anon pages.
    return (number_after(data, b"\nworkingset_refault ") if found is None else found,)


def _kibibytes(data: bytes, key: bytes) -> Value:
    at = data.find(key)
    if at < 0:
        return None
    amount, unit = data[at + len(key) :].split(None, 2)[:2]
    if unit != b"kB":
        raise ValueError(f"{key.decode().strip()} is not in kB")
    return int(amount) * 1024


SOURCES = (
    NodeSource(("memory_total_bytes", "memory_available_bytes"), "proc/meminfo", parse),
    NodeSource(("oom_kills",), "proc/vmstat", parse_vmstat),
    NodeSource(("refault_pages",), "proc/vmstat", parse_refaults),
)
