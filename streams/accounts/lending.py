"""Predicted against lent against used: core-hours and GiB-hours of what batch and mid borrowed.

Sums are core-microseconds (1 milli x 1 ms) and byte-milliseconds. *Predicted* is the computed
figure of `capacity` (before guards, nothing where it is negative), *offered* what was published,
*lent* what schedulers hold by the `ledger`, *used* what the pods ran by their counters in
`samples`. Batch and mid draw on one machine: their predictions may not be added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from streams.accounts.sums import GIB, MS_PER_HOUR, US_PER_HOUR, Sums, ratio

CLASSES = ("batch", "mid")
RESOURCES = ("cpu", "memory")
PER_HOUR = {"cpu": US_PER_HOUR, "memory": GIB * MS_PER_HOUR}
NAMES = tuple((name, resource) for name in CLASSES for resource in RESOURCES)
"""In the order of capacity's amounts: batch cpu and memory, mid cpu and memory."""


@dataclass(slots=True)
class Line(Sums):
    """One class and resource."""

    predicted: int = 0
    offered: int = 0
    lent: int = 0
    used: int = 0


@dataclass(slots=True)
class Lending(Sums):
    """The four lines; ``said_ms``: for how long a capacity was known of a node."""

    batch_cpu: Line = field(default_factory=Line)
    batch_memory: Line = field(default_factory=Line)
    mid_cpu: Line = field(default_factory=Line)
    mid_memory: Line = field(default_factory=Line)
    said_ms: int = 0

    def line(self, name: str, resource: str) -> Line:
        """The line of a class and a resource."""
        line: Line = getattr(self, f"{name}_{resource}")
        return line


class Fulfilment(Struct, frozen=True):
    """Hours of cores (cpu) or of GiB (memory), and what share of each became of the one before.

    None: not known, or a share of nothing.
    """

    predicted_hours: float | None
    offered_hours: float | None
    lent_hours: float
    used_hours: float
    lent_of_predicted: float | None
    used_of_lent: float | None
    used_of_predicted: float | None


class LendingFigures(Struct, frozen=True):
    """``reclaimed_core_hours``: what borrowed work used, batch and mid together."""

    batch_cpu: Fulfilment
    batch_memory: Fulfilment
    mid_cpu: Fulfilment
    mid_memory: Fulfilment
    reclaimed_core_hours: float
    reclaimed_gib_hours: float


def figures(sums: Lending) -> LendingFigures:
    """The sums in hours."""
    known = sums.said_ms > 0
    lines = {
        f"{name}_{resource}": _fulfilment(sums.line(name, resource), PER_HOUR[resource], known)
        for name, resource in NAMES
    }
    return LendingFigures(
        **lines,
        reclaimed_core_hours=reclaimed_us(sums) / US_PER_HOUR,
        reclaimed_gib_hours=reclaimed_byte_ms(sums) / (GIB * MS_PER_HOUR),
    )


def reclaimed_us(sums: Lending) -> int:
    """Core-microseconds that borrowed work used."""
    return sums.batch_cpu.used + sums.mid_cpu.used


def reclaimed_byte_ms(sums: Lending) -> int:
    """Byte-milliseconds that borrowed work used."""
    return sums.batch_memory.used + sums.mid_memory.used


def _fulfilment(line: Line, per_hour: int, known: bool) -> Fulfilment:
    return Fulfilment(
        predicted_hours=line.predicted / per_hour if known else None,
        offered_hours=line.offered / per_hour if known else None,
        lent_hours=line.lent / per_hour,
        used_hours=line.used / per_hour,
        lent_of_predicted=ratio(line.lent, line.predicted),
        used_of_lent=ratio(line.used, line.lent),
        used_of_predicted=ratio(line.used, line.predicted),
    )
