"""What a node keeps for itself: the kubelet's part, or what its annotation says if that is more.

`agents.inventory` calls it once an inventory record. Formula: koordinator `pkg/util/node.go`.
"""

from __future__ import annotations

CORE_MILLI = 1000
LARGEST_CPU = 8192
"""The largest number of CPUs that a Linux kernel is built for."""


def reserved(capacity: int, allocatable: int, said: int) -> int:
    """The larger of capacity - allocatable and what was said; an amplified allocatable keeps 0."""
    return max(capacity - allocatable, said, 0)


def said_cpu_milli(cpu_milli: int, reserved_cpus: str) -> int:
    """Millicores of an annotation: a list of CPUs, when there is one, stands for the amount.

    Raises ValueError for a list that is none: such an annotation reserves nothing.
    """
    return len(cpus_of(reserved_cpus)) * CORE_MILLI if reserved_cpus else cpu_milli


def cpus_of(text: str) -> set[int]:
    """The CPUs that a list such as ``0-1,5`` names. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last < LARGEST_CPU:
            raise ValueError(f"no CPUs: {part!r:.40}")
        cpus.update(range(first, last + 1))
    return cpus
