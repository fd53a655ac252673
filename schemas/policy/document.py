"""The whole policy document and its digest; a section is one line here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from schemas.policy.acting import Eviction, Reflex
from schemas.policy.isolation import (
    BlockIo,
    CoreSched,
    CpuBurst,
    ExtendedResources,
    GroupIdentity,
    MemoryQos,
    Network,
    Oom,
    Resctrl,
    SystemDaemons,
)
from schemas.policy.lending import CapacityRule, Margins, MidRule, Prediction
from schemas.policy.partial import Entry, Group, Said, with_partials
from schemas.policy.placement import ElasticQuota, LoadAware, LowNodeLoad, Migration
from schemas.policy.rollout import Rollout
from schemas.policy.sections import (
    Blast,
    EvictCpu,
    EvictMemory,
    Interference,
    Loop,
    PodRules,
    ReservationRule,
    Suppress,
)
from schemas.policy.slo import SloGuard
from schemas.policy.units import Name, Part

PER_NODE = (
    "suppress", "reflex", "evict_memory", "evict_cpu", "eviction", "capacity", "mid", "margins",
    "reservation", "interference", "slo_guard", "pod_rules", "resctrl", "memory_qos", "cpu_burst",
    "group_identity", "core_sched", "oom", "block_io", "network", "extended_resources",
    "system_daemons", "rollout",
)  # fmt: skip
"""Sections that selector entries may change: all that is decided node by node."""
BY_NODE = tuple(name for name in PER_NODE if name != "rollout")
"""Those that a node's own annotation and labels may change: no node advances its own stage."""


class Policy(Part, frozen=True):
    """The whole document; `name` is its key on the topic."""

    name: Name = "default"
    loop: Loop = Loop()
    suppress: Suppress = Suppress()
    reflex: Reflex = Reflex()
    evict_memory: EvictMemory = EvictMemory()
    evict_cpu: EvictCpu = EvictCpu()
    eviction: Eviction = Eviction()
    capacity: CapacityRule = CapacityRule()
    mid: MidRule = MidRule()
    margins: Margins = Margins()
    reservation: ReservationRule = ReservationRule()
    prediction: Prediction = Prediction()
    interference: Interference = Interference()
    slo_guard: SloGuard = SloGuard()
    pod_rules: PodRules = PodRules()
    blast: Blast = Blast()
    resctrl: Resctrl = Resctrl()
    memory_qos: MemoryQos = MemoryQos()
    cpu_burst: CpuBurst = CpuBurst()
    group_identity: GroupIdentity = GroupIdentity()
    core_sched: CoreSched = CoreSched()
    oom: Oom = Oom()
    block_io: BlockIo = BlockIo()
    network: Network = Network()
    extended_resources: ExtendedResources = ExtendedResources()
    system_daemons: SystemDaemons = SystemDaemons()
    load_aware: LoadAware = LoadAware()
    low_node_load: LowNodeLoad = LowNodeLoad()
    migration: Migration = Migration()
    elastic_quota: ElasticQuota = ElasticQuota()
    rollout: Rollout = Rollout()
    # Nodes left out of co-location: those that carry every label named; none named: no node.
    control_group: Group = msgspec.field(default_factory=dict)
    nodes: Annotated[tuple[NodeEntry, ...], Meta(max_length=64)] = ()  # in order, the last wins


_DEFAULTS = Policy()
if TYPE_CHECKING:
    NodeEntry = Entry
    NodeSaid = Said
else:
    NodeEntry = with_partials(
        Entry, "NodeEntry", {name: type(getattr(_DEFAULTS, name)) for name in PER_NODE}
    )
    NodeSaid = with_partials(
        Said, "NodeSaid", {name: type(getattr(_DEFAULTS, name)) for name in BY_NODE}
    )


def digest(policy: Policy) -> str:
    """16 hex digits of the policy's content; equal documents, however written, agree."""
    return hashlib.sha256(msgspec.json.encode(policy, order="sorted")).hexdigest()[:16]
