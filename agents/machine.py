"""What an inventory says of a node's hardware and of what its pods own of it.

`agents.inventory` calls `note` for each record it takes over; `agents.suppress_cpuset`,
`agents.isolate` and the node agent read. Lists that come off the wire broken are not believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agents.cpuset import Pins, Processors
from agents.isolation.by_class import LS, codes
from agents.lending.reserved import cpus_of
from agents.table import ABSENT, Field, Ints
from schemas.facts import STATIC_CPUS
from schemas.records import BurstWish, CpuTopology, Inventory, PodFact, Qos, ResctrlFacts

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat

NODE_FIELDS = (Field("processors", np.int32),)  # CPUs to choose from; 0: not known, or not ours
POD_FIELDS = (
    Field("qos", np.int8, fill=LS),  # place in `agents.isolation.by_class.CLASSES`
    Field("limit", shape=(2,), fill=ABSENT),  # milli, bytes
    # 1: of class LS with a limit of CPU, and no host application; AS_IT_WISHES: and says how
    Field("may_burst", np.int8),
)
AS_IT_WISHES = 2
LARGEST_CPU = 1 << 16
"""No kernel numbers a CPU, core, socket or NUMA node so high; as many CPUs are no longer one."""
LARGEST_MILLI, LARGEST_BYTES = 1 << 32, 1 << 50
"""No limit is larger: so many millicores, or a pebibyte."""
ENDLESS, LARGEST_PERCENT, LARGEST_PERIOD_S = -1, 10_000, 86_400
"""Of a pod's wish to burst: as in the policy."""
DOMAINS_KEPT = 1024
"""Caches of one node, at most."""
LARGEST_MASK = (1 << 32) - 1
"""Ways of a cache, at most 32, as the kernel has them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of one node that are no columns; ``pins`` and ``wishes`` by place of the pod."""

    topology: CpuTopology | None = None
    resctrl: ResctrlFacts | None = None
    reserved_cpus: tuple[int, ...] = ()
    system_cpus: tuple[int, ...] = ()
    lse_cpus: tuple[int, ...] = ()
    lsr_cpus: tuple[int, ...] = ()
    wishes: tuple[tuple[int, BurstWish], ...] = ()


def note(state: PartitionState, seat: Seat, record: Inventory, pods: Sequence[PodFact]) -> None:
    """Take over a node's facts; ``pods`` are those of the seat, in its order."""
    machine = of(record, pods)
    nodes, row = state.nodes, seat.row
    if machine != seat.machine:
        seat.machine = machine
        topology = machine.topology
        nodes["processors"][row] = 0 if topology is None else len(topology.cpu)
        nodes["cpus_wanted"][row] = ABSENT
    nodes["isolate_looked"][row] = 0
    if pods:
        start = int(nodes["start"][row])
        here = slice(start, start + len(pods))
        state.pods["qos"][here] = codes([pod.qos for pod in pods])
        state.pods["limit"][here] = [
            (
                _limit(pod.cpu_limit_milli, LARGEST_MILLI),
                _limit(pod.memory_limit_bytes, LARGEST_BYTES),
            )
            for pod in pods
        ]
        state.pods["may_burst"][here] = [
            (pod.qos in ("LS", "") and pod.cpu_limit_milli > 0 and not pod.host_app)
            * (1 if pod.cpu_burst is None else AS_IT_WISHES)
            for pod in pods
        ]


def of(record: Inventory, pods: Sequence[PodFact]) -> Machine:
    """The facts of one inventory."""
    theirs = record.capabilities.get(STATIC_CPUS, False)
    return Machine(
        topology=None if theirs else _topology(record.topology),
        resctrl=_resctrl(record.resctrl),
        reserved_cpus=_listed(record.reserved_cpus),
        system_cpus=_listed(record.system_cpus),
        lse_cpus=_pinned(pods, "LSE"),
        lsr_cpus=_pinned(pods, "LSR"),
        wishes=tuple(
            (place, _wish(pod.cpu_burst))
            for place, pod in enumerate(pods)
            if pod.cpu_burst is not None
        ),
    )


def processors(topology: CpuTopology) -> Processors:
    """The CPUs side by side, as `agents.cpuset` takes them."""
    return Processors(
        _ints(topology.cpu), _ints(topology.core), _ints(topology.socket), _ints(topology.numa)
    )


def pins(machine: Machine) -> Pins:
    """What somebody else was given."""
    return Pins(
        lse=_ints(machine.lse_cpus),
        lsr=_ints(machine.lsr_cpus),
        reserved=_ints(machine.reserved_cpus),
        system=_ints(machine.system_cpus),
    )


def _topology(said: CpuTopology | None) -> CpuTopology | None:
    """None also for columns of unequal length, numbers that are none, or a CPU that comes twice."""
    if said is None:
        return None
    columns = (said.cpu, said.core, said.socket, said.numa)
    size = len(said.cpu)
    fits = all(
        len(column) == size and all(0 <= one < LARGEST_CPU for one in column) for column in columns
    )
    return said if fits and size and len(set(said.cpu)) == size else None


def _resctrl(said: ResctrlFacts | None) -> ResctrlFacts | None:
    if said is None or not said.domain_ids or len(said.domain_ids) > DOMAINS_KEPT:
        return None
    fits = 0 <= said.cbm_mask <= LARGEST_MASK and all(
        0 <= one < LARGEST_CPU for one in said.domain_ids
    )
    return said if fits else None


def _wish(said: BurstWish) -> BurstWish:
    """What lies outside the policy's own ranges was not said."""
    percent, quota, period_s = (
        said.cpu_burst_percent, said.quota_burst_percent, said.quota_burst_period_s,
    )  # fmt: skip
    return BurstWish(
        said.policy,
        percent if percent is not None and 1 <= percent <= LARGEST_PERCENT else None,
        quota if quota is not None and 0 <= quota <= LARGEST_PERCENT else None,
        period_s if period_s is not None and ENDLESS <= period_s <= LARGEST_PERIOD_S else None,
    )


def _pinned(pods: Iterable[PodFact], qos: Qos) -> tuple[int, ...]:
    return _cpus(cpu for pod in pods if pod.qos == qos for cpu in pod.cpus)


def _cpus(said: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({cpu for cpu in said if 0 <= cpu < LARGEST_CPU}))


def _listed(said: str) -> tuple[int, ...]:
    """The CPUs of a list; of one that is none, nothing."""
    try:
        return tuple(sorted(cpus_of(said))) if said else ()
    except ValueError:
        return ()


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _limit(amount: int, most: int) -> int:
    """A limit of nothing or less is none."""
    return min(amount, most) if amount > 0 else ABSENT
