"""The whole policy document and its digest; a section is one line here."""

from __future__ import annotations

import hashlib

import msgspec

from schemas.policy.isolation import (
    BlockIo,
    CoreSched,
    CpuBurst,
    GroupIdentity,
    MemoryQos,
    Network,
    Oom,
    Resctrl,
    SystemDaemons,
)
from schemas.policy.lending import CapacityRule, Margins, MidRule
from schemas.policy.placement import ElasticQuota, LoadAware, LowNodeLoad
from schemas.policy.sections import (
    Blast,
    EvictMemory,
    Interference,
    Loop,
    ReservationRule,
    Suppress,
)
from schemas.policy.units import Name, Part


class Policy(Part, frozen=True):
    """The whole document; `name` is its key on the topic."""

    name: Name = "default"
    loop: Loop = Loop()
    suppress: Suppress = Suppress()
    evict_memory: EvictMemory = EvictMemory()
    capacity: CapacityRule = CapacityRule()
    mid: MidRule = MidRule()
    margins: Margins = Margins()
    reservation: ReservationRule = ReservationRule()
    interference: Interference = Interference()
    blast: Blast = Blast()
    resctrl: Resctrl = Resctrl()
    memory_qos: MemoryQos = MemoryQos()
    cpu_burst: CpuBurst = CpuBurst()
    group_identity: GroupIdentity = GroupIdentity()
    core_sched: CoreSched = CoreSched()
    oom: Oom = Oom()
    block_io: BlockIo = BlockIo()
    network: Network = Network()
    system_daemons: SystemDaemons = SystemDaemons()
    load_aware: LoadAware = LoadAware()
    low_node_load: LowNodeLoad = LowNodeLoad()
    elastic_quota: ElasticQuota = ElasticQuota()


def digest(policy: Policy) -> str:
    """16 hex digits of the policy's content; equal documents, however written, agree."""
    return hashlib.sha256(msgspec.json.encode(policy, order="sorted")).hexdigest()[:16]
