"""Lists of CPUs as the kernel writes them; read by the inventory and by the cpuset actuator."""

from __future__ import annotations


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers of a kernel list such as ``0,2,4-6``. Raises ValueError when it is none."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, dash, last = part.partition("-")
            cpus.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(cpus))
