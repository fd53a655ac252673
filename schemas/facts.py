"""Facts of machines and pods, as node agents and schedulers say them in topic `inventory`.

Part of `schemas.records`, which says the rules of all records; read through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Qos = Literal["LSE", "LSR", "LS", "BE", "SYSTEM", ""]
PriorityClass = Literal["prod", "mid", "batch", "free", ""]
STATIC_CPUS = "cpu_manager_static"
"""A capability: the kubelet writes cpusets itself, and its new containers begin with its own: the
CPUs of best-effort work are nobody else's to choose there, and the quota holds alone."""


@dataclass(frozen=True, slots=True)
class BurstWish:
    """What a pod says of its own CPU burst; null: as the policy says. A period of -1 has no end."""

    policy: Literal["none", "cpu_burst_only", "cfs_quota_burst_only", "auto"] | None = None
    cpu_burst_percent: Int64 | None = None
    quota_burst_percent: Int64 | None = None
    quota_burst_period_s: Int64 | None = None


@dataclass(frozen=True, slots=True)
class PodFact:
    """What is known of one pod or host application; amounts of its own priority class."""

    uid: str
    name: str
    namespace: str = ""
    workload: str = ""
    qos: Qos = ""  # effective class: never "" after `agents.classes`
    priority_class: PriorityClass = ""
    priority: Int64 = 0
    cpu_request_milli: Int64 = 0
    cpu_limit_milli: Int64 = -1
    memory_request_bytes: Int64 = 0
    memory_limit_bytes: Int64 = -1
    host_app: bool = False
    evictable: bool = True  # an opt-out, honoured by every eviction
    terminating: bool = False
    numa_nodes: tuple[Int64, ...] = ()  # zones it is bound to; empty: all
    cpus: tuple[Int64, ...] = ()  # pinned to it; empty: it runs anywhere
    cpu_burst: BurstWish | None = None
    eviction_priority: Int64 = 0  # lower goes first, also below 0
    sub_priority: Int64 | None = None  # within its priority; None: its priority
    opted_in: bool = False  # offers itself to eviction by priority
    evict_features: tuple[str, ...] = ()  # only these may evict it (`agents.eviction.labels`)
    recoverable: bool | None = None  # its work begins anew by itself; None: nobody knows
    checkpointed: bool = False  # its work goes on from where it was saved
    retries_left: Int64 = -1  # -1: nobody knows; 0: the work is lost for good
    qos_said: bool = False  # by the pod itself; else it follows from what Kubernetes makes of it


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node of a machine: what of it can be given to pods."""

    name: str
    cpu_milli: Int64
    memory_bytes: Int64


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """The online CPUs of a node, side by side, by the kernel's numbers; core within its socket."""

    cpu: tuple[Int64, ...]
    core: tuple[Int64, ...]
    socket: tuple[Int64, ...]
    numa: tuple[Int64, ...]


@dataclass(frozen=True, slots=True)
class ResctrlFacts:
    """What the kernel lets divide of the last-level caches; a mask of 0: no cache ways."""

    cbm_mask: Int64
    domain_ids: tuple[Int64, ...] = ()  # of the caches, and of memory bandwidth
    bandwidth: bool = False
    amd: bool = False  # bandwidth in AMD's unit


@dataclass(frozen=True, slots=True)
class Inventory:
    """Node facts and pod facts; the order of ``pods`` is the order of the sample's columns."""

    node: str
    pods_rev: Int64
    cpu_capacity_milli: Int64
    memory_capacity_bytes: Int64
    cpu_allocatable_milli: Int64 = -1  # -1: same as capacity
    memory_allocatable_bytes: Int64 = -1
    cpu_reserved_milli: Int64 = 0
    memory_reserved_bytes: Int64 = 0
    kernel: str = ""
    capabilities: dict[str, bool] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)  # of ours: slackwater.io/policy
    pods: tuple[PodFact, ...] = ()
    removed: bool = False  # tombstone: the node has left
    reserved_cpus: str = ""  # a list such as 0-1,5; stands for cpu_reserved_milli
    cpu_ratio_permille: Int64 = 1000  # normalisation: batch CPU is shown times this, above 1000
    third_party_cpu_milli: Int64 = 0  # batch that another system has already given away
    third_party_memory_bytes: Int64 = 0
    zones: tuple[Zone, ...] = ()
    topology: CpuTopology | None = None  # None: not known
    resctrl: ResctrlFacts | None = None  # None: the kernel has none, or it is not mounted
    system_cpus: str = ""  # a list; of the daemons of class SYSTEM alone
