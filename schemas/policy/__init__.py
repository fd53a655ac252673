"""The policy: every threshold of the product, typed, with units in names and ranges checked.

Read from YAML by `parse`, strictly; `digest` names a policy in every decision. The shipped defaults
are the field defaults of the sections, written out in `agents/policies/default.yaml`.
"""

from schemas.policy.acting import Eviction, Reflex
from schemas.policy.document import BY_NODE, PER_NODE, NodeEntry, Policy, digest
from schemas.policy.drop_ins import merged
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
    ExtendedResources,
    GroupIdentity,
    MemoryQos,
    Network,
    Oom,
    Resctrl,
    SystemDaemons,
)
from schemas.policy.layers import (
    ANNOTATION,
    NAME_LABEL,
    Effective,
    Reach,
    carries,
    effective,
    layers_of,
    named,
    reach,
)
from schemas.policy.lending import CapacityRule, Margins, MidRule, Peak, Prediction
from schemas.policy.placement import ElasticQuota, LoadAware, LowNodeLoad, Migration
from schemas.policy.published import Published, published
from schemas.policy.reading import MAX_POLICY_BYTES, load, parse
from schemas.policy.rollout import STAGES, PilotExit, Rollout, Stage
from schemas.policy.sections import (
    Blast,
    EvictCpu,
    EvictMemory,
    Interference,
    Loop,
    ReservationRule,
    Suppress,
)
from schemas.policy.slo import Objective, SloGuard
from schemas.policy.units import NAME_PATTERN, Milli, Ms, Name, Percent, Permille, PositiveMs

__all__ = [
    "ANNOTATION",
    "BY_NODE",
    "MAX_POLICY_BYTES",
    "NAME_LABEL",
    "NAME_PATTERN",
    "PER_NODE",
    "STAGES",
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
    "Effective",
    "ElasticQuota",
    "EvictCpu",
    "EvictMemory",
    "Eviction",
    "ExtendedResources",
    "GroupIdentity",
    "Interference",
    "LoadAware",
    "Loop",
    "LowNodeLoad",
    "Margins",
    "MemoryQos",
    "MidRule",
    "Migration",
    "Milli",
    "Ms",
    "Name",
    "Network",
    "NodeEntry",
    "Objective",
    "Oom",
    "Peak",
    "Percent",
    "Permille",
    "PilotExit",
    "Policy",
    "PositiveMs",
    "Prediction",
    "Published",
    "Reach",
    "Reflex",
    "Resctrl",
    "ReservationRule",
    "Rollout",
    "SloGuard",
    "Stage",
    "Suppress",
    "SystemDaemons",
    "carries",
    "digest",
    "effective",
    "layers_of",
    "load",
    "merged",
    "named",
    "parse",
    "published",
    "reach",
]
