"""Who is in a simulated fleet: nodes, their online pods and their slots for batch pods, by seed.

Built once by `build`; the model reads the numbers, `facts` says the same as inventory records.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from node_agent.simulate.trace import IntArray
from schemas.records import PodFact

GIB = 1 << 30
MIB = 1 << 20
CORES = (16, 32, 64)
BYTES_A_CORE = 4 * GIB
ONLINE_PERMILLE = 800  # of the pods of a node; the rest are slots for batch pods
REQUESTED_PERMILLE = (650, 850)  # of a node's CPU that its online pods request, together
MEMORY_REQUESTED_PERMILLE = (450, 600)
SYSTEM_CPU_PERMILLE = 20
SYSTEM_BYTES = GIB
DAYS = 7
JITTER_STEPS = 6
ONLINE_PRIORITY, BATCH_PRIORITY = 9000, 5500
SERVICES = ("shop/web", "shop/cart")
"""Workloads of the first pods of every node: services that measure themselves."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Numbers are [node] or [node, online pod]; ``batch_slots`` more pods fit on each node."""

    names: tuple[str, ...]
    boots: tuple[str, ...]
    kernel_boot: str
    cpu_milli: IntArray
    memory_bytes: IntArray
    online_cpu_milli: IntArray
    online_memory_bytes: IntArray
    entity: IntArray
    shift_days: IntArray
    jitter_steps: IntArray
    seeds: IntArray
    batch_slots: int

    @property
    def online_pods(self) -> int:
        """Online pods of each node."""
        return int(self.online_cpu_milli.shape[1])

    @property
    def slots(self) -> int:
        """Most pods a node can have."""
        return self.online_pods + self.batch_slots

    def online_uid(self, row: int, pod: int) -> str:
        """Uid of an online pod."""
        return f"{self.names[row]}-online-{pod:03}"

    def _workload(self, row: int, pod: int) -> str:
        if pod < len(SERVICES):
            return SERVICES[pod]
        return f"service-{int(self.entity[row, pod]):03}"

    def online_facts(self, row: int) -> tuple[PodFact, ...]:
        """Inventory of a node's online pods, in the order of the sample's columns."""
        return tuple(
            PodFact(
                uid=self.online_uid(row, pod),
                name=f"online-{pod:03}",
                namespace="services",
                workload=self._workload(row, pod),
                qos="LS",
                priority_class="prod",
                priority=ONLINE_PRIORITY,
                cpu_request_milli=int(self.online_cpu_milli[row, pod]),
                memory_request_bytes=int(self.online_memory_bytes[row, pod]),
                evictable=False,
            )
            for pod in range(self.online_pods)
        )


def build(
    nodes: int, pods: int, seed: int, entities: int, prefix: str = "sim", start: int = 0
) -> Fleet:
    """A fleet of ``nodes`` nodes with room for ``pods`` pods each.

    ``start`` names one start of it: another start of the same fleet has other boots, for readers
    take a boot that begins again at sequence 1 for a repetition.
    Raises ValueError for a fleet without nodes or with fewer than two pods a node.
    """
    if nodes < 1:
        raise ValueError(f"{nodes} nodes; allowed: 1 and more")
    if not 2 <= pods <= 1000:
        raise ValueError(f"{pods} pods a node; allowed: 2 to 1000")
    rng = np.random.default_rng(seed)
    online = min(pods - 1, max(1, pods * ONLINE_PERMILLE // 1000))
    cores = rng.choice(np.array(CORES, np.int64), nodes)
    shape = (nodes, online)
    cpu = cores * 1000
    memory = cores * BYTES_A_CORE
    return Fleet(
        names=tuple(f"{prefix}-{i:05}" for i in range(nodes)),
        boots=tuple(_hex128(f"boot/{prefix}/{seed}/{start}/{i}") for i in range(nodes)),
        kernel_boot=_hex128(f"kernel/{prefix}/{seed}"),
        cpu_milli=cpu,
        memory_bytes=memory,
        online_cpu_milli=_parts(rng, cpu, REQUESTED_PERMILLE, shape, 10),
        online_memory_bytes=_parts(rng, memory, MEMORY_REQUESTED_PERMILLE, shape, MIB),
        entity=rng.integers(0, entities, shape),
        shift_days=rng.integers(0, DAYS, shape),
        jitter_steps=rng.integers(-JITTER_STEPS, JITTER_STEPS + 1, shape),
        seeds=rng.integers(0, 2**62, shape),
        batch_slots=pods - online,
    )


def _parts(
    rng: np.random.Generator,
    whole: IntArray,
    permille: tuple[int, int],
    shape: tuple[int, int],
    unit: int,
) -> IntArray:
    """Requests of a node's pods: uneven parts of a seeded share of the node, in whole units."""
    weights = rng.integers(1, 9, shape)
    total = whole * rng.integers(permille[0], permille[1] + 1, shape[0]) // 1000
    parts = total[:, None] * weights // weights.sum(axis=1, keepdims=True)
    rounded: IntArray = np.maximum(parts // unit, 1) * unit
    return rounded


def _hex128(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
