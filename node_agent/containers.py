"""The containers of a pod: where their groups are, and what each asked for and may use at most.

Sources of pods fill it (`node_agent.discovery`); actuators that set values of single containers
read it through `node_agent.inventory.Pod`. It stays on this machine: no record carries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNSAID = -1
Kind = Literal["app", "sidecar", "init", "unknown"]


@dataclass(frozen=True, slots=True)
class Amounts:
    """What was asked for, or the most that may be used; `UNSAID`: nothing was said of it.

    ``batch_*`` and ``mid_*`` are the extended resources kubernetes.io/batch-cpu and so on: CPU is
    counted in thousandths there too.
    """

    cpu_milli: int = UNSAID
    memory_bytes: int = UNSAID
    batch_cpu_milli: int = UNSAID
    batch_memory_bytes: int = UNSAID
    mid_cpu_milli: int = UNSAID
    mid_memory_bytes: int = UNSAID


NOTHING_SAID = Amounts()


@dataclass(frozen=True, slots=True)
class Container:
    """One container; a restart gives it another id and another group.

    ``id`` is "" before the runtime has made it, ``group`` is "" while no group of it was found:
    such a one must be left alone. ``kind`` unknown: only its group was seen (also a pod's sandbox
    is such), nobody said what it is.
    """

    id: str
    group: str
    name: str = ""
    kind: Kind = "unknown"
    requests: Amounts = NOTHING_SAID
    limits: Amounts = NOTHING_SAID
    cpus: tuple[int, ...] = ()  # that the kubelet gave to it alone; empty: it shares
