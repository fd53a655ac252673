"""The policy: every threshold of the product, typed, with units in names and ranges checked.

Read from YAML by `parse`, strictly; `digest` names a policy in every decision. The shipped defaults
are the field defaults of the sections, written out in `agents/policies/default.yaml`.
"""

from schemas.policy.document import Policy, digest
from schemas.policy.isolation import (
    BeResctrl,
    BlockIo,
    ClassBlockIo,
    ClassMemory,
    ClassNetwork,
    ClassOom,
    ClassResctrl,
    CoreSched,
    CpuBurst,
    GroupIdentity,
    MemoryQos,
    Network,
    Oom,
    Resctrl,
    SystemDaemons,
)
from schemas.policy.lending import CapacityRule, Margins, MidRule, Peak
from schemas.policy.placement import ElasticQuota, LoadAware, LowNodeLoad
from schemas.policy.reading import MAX_POLICY_BYTES, parse
from schemas.policy.sections import (
    Blast,
    EvictMemory,
    Interference,
    Loop,
    ReservationRule,
    Suppress,
)
from schemas.policy.units import NAME_PATTERN, Milli, Ms, Name, Percent, Permille, PositiveMs

__all__ = [
    "MAX_POLICY_BYTES",
    "NAME_PATTERN",
    "BeResctrl",
    "Blast",
    "BlockIo",
    "CapacityRule",
    "ClassBlockIo",
    "ClassMemory",
    "ClassNetwork",
    "ClassOom",
    "ClassResctrl",
    "CoreSched",
    "CpuBurst",
    "ElasticQuota",
    "EvictMemory",
    "GroupIdentity",
    "Interference",
    "LoadAware",
    "Loop",
    "LowNodeLoad",
    "Margins",
    "MemoryQos",
    "MidRule",
    "Milli",
    "Ms",
    "Name",
    "Network",
    "Oom",
    "Peak",
    "Percent",
    "Permille",
    "Policy",
    "PositiveMs",
    "Resctrl",
    "ReservationRule",
    "Suppress",
    "SystemDaemons",
    "digest",
    "parse",
]
