"""Knobs of a node by name: the laws of this package put together, class by class, pod by pod.

`agents.isolate` calls this and says the answer; names carry units and are for life. Everything
here is vectorised over pods or nodes, or asked once for a whole policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.isolation import (
    block_io,
    core_sched,
    extended,
    group_identity,
    memory_qos,
    network,
    oom,
    resctrl,
    system_daemons,
    watermark,
)
from agents.isolation.by_class import CLASSES, Setting
from agents.isolation.memory_qos import BEST_EFFORT, BURSTABLE, GUARANTEED, TIERS
from agents.isolation.network import BE_CLASS, ONLINE_CLASS, SYSTEM_CLASS, WHOLE_CLASS
from agents.isolation.schemata import l3_line, mb_line
from agents.table import ABSENT, Array, Ints
from schemas.policy import Policy
from schemas.records import ResctrlFacts

UNLIMITED = -1
"""How a setting says that there is no limit."""
TIER_OF = np.array([GUARANTEED, GUARANTEED, BURSTABLE, BEST_EFFORT, GUARANTEED], dtype=np.int64)
"""Kubernetes class of a pod of each of CLASSES."""
NETWORK_NAMES = {WHOLE_CLASS: "ALL", SYSTEM_CLASS: "SYSTEM", ONLINE_CLASS: "LS", BE_CLASS: "BE"}
Knobs = dict[str, int]


@dataclass(frozen=True, slots=True)
class Common:
    """What one policy gives every node alike, and which families are on besides."""

    classes: dict[str, Knobs]
    tiers: dict[str, Knobs]
    bandwidths: dict[str, Knobs]
    resctrl: bool
    memory: bool
    daemons: bool
    burst: bool

    @property
    def idle(self) -> bool:
        """Whether nothing is set on any node."""
        families = self.resctrl or self.memory or self.daemons or self.burst
        return not (self.classes or self.tiers or self.bandwidths or families)


def common(policy: Policy) -> Common:
    """The part of a policy that asks no node."""
    rule, memory = policy.resctrl, policy.memory_qos
    shares = network.bandwidths(policy.network)
    tiers = group_identity.tier_settings(policy.group_identity)
    return Common(
        classes=_by_class(policy),
        tiers={TIERS[tier]: {"bvt": value} for tier, value in sorted(tiers.items())},
        bandwidths={
            NETWORK_NAMES[one.minor]: {
                "minor": one.minor,
                "turn": one.turn,
                "egress_min_bit_per_s": one.egress_min,
                "egress_max_bit_per_s": one.egress_max,
                "ingress_min_bit_per_s": one.ingress_min,
                "ingress_max_bit_per_s": one.ingress_max,
            }
            for one in ([network.whole(policy.network), *shares] if shares else ())
        },
        resctrl=rule.lsr.enabled or rule.ls.enabled or rule.be.enabled,
        memory=memory.lsr.enabled or memory.ls.enabled or memory.be.enabled,
        daemons=policy.system_daemons.enabled,
        burst=policy.cpu_burst.policy != "none",
    )


def _by_class(policy: Policy) -> dict[str, Knobs]:
    """The knobs of each class; classes of which nothing is managed are left out."""
    qos = np.arange(len(CLASSES))
    io, marks = block_io.settings(qos, policy.block_io), watermark.settings(qos, policy.memory_qos)
    killer = oom.settings(qos, policy.oom)
    alone = np.zeros(len(qos), dtype=np.bool_)
    nobody = np.full(len(qos), ABSENT, dtype=np.int64)
    knobs: dict[str, Setting] = {
        "resctrl_group": resctrl.group_of(qos, policy.resctrl),
        "bvt": group_identity.settings(qos, policy.group_identity),
        "core_cookie": core_sched.cookies(qos, nobody, alone, qos, policy.core_sched),
        "oom_score_adj": killer.score_adj,
        "oom_priority": killer.priority,
        "oom_kill_group": killer.kill_group,
        "io_weight": io.weight,
        "io_read_iops": io.read_iops,
        "io_write_iops": io.write_iops,
        "io_read_bytes_per_s": io.read_bytes_per_s,
        "io_write_bytes_per_s": io.write_bytes_per_s,
        "net_classid": network.class_ids(qos, policy.network),
        "wmark_ratio_percent": marks.ratio_percent,
        "wmark_scale_permille": marks.scale_permille,
        "wmark_min_adj": marks.min_adj,
        "extended_cpu": extended.setting(qos, policy.extended_resources.cpu.enabled),
        "extended_memory": extended.setting(qos, policy.extended_resources.memory.enabled),
    }
    found = {
        name: {knob: int(one.value[at]) for knob, one in knobs.items() if one.managed[at]}
        for at, name in enumerate(CLASSES)
    }
    return {name: said for name, said in found.items() if said}


def memory(
    policy: Policy, qos: Ints, request: Ints, limit: Ints, allocatable: Ints
) -> dict[str, Ints]:
    """Memory knobs of each pod [n], bytes; ABSENT: not set. ``allocatable``: of its node."""
    asked = memory_qos.wishes(qos, policy.memory_qos)
    least = memory_qos.protected(request, asked.min_percent)
    low = memory_qos.raised(memory_qos.protected(request, asked.low_percent), least)
    high = memory_qos.high(request, limit, allocatable, asked.throttling_percent)
    nothing = np.full(len(qos), ABSENT, dtype=np.int64)
    cache = memory_qos.page_cache(
        asked.page_cache_bytes, asked.page_cache_percent, nothing, asked.page_cache_sync, limit
    )
    return {
        "memory_min_bytes": least,
        "memory_low_bytes": low,
        "memory_high_bytes": memory_qos.raised(high, least),
        "page_cache_enabled": cache.enabled,
        "page_cache_bytes": cache.size,
        "page_cache_sync": cache.sync,
    }


def tier_memory(place: Ints, qos: Ints, columns: dict[str, Ints], places: int) -> dict[str, Array]:
    """Protection of the groups above the pods, knob -> [places, TIERS]."""
    tier = TIER_OF[qos]
    return {
        name: memory_qos.tier_sums(place, tier, columns[name], places)
        for name in ("memory_min_bytes", "memory_low_bytes")
    }


def schemata(policy: Policy, facts: ResctrlFacts) -> dict[str, str]:
    """The lines of each resctrl group of a node; groups without one are left out."""
    cbm, amd = np.array([facts.cbm_mask], dtype=np.int64), np.array([facts.amd])
    found = {}
    for name, part in resctrl.partitions(policy.resctrl, cbm, amd).items():
        lines = [l3_line(facts.domain_ids, int(part.l3_mask[0]))]
        if facts.bandwidth:
            lines.append(mb_line(facts.domain_ids, int(part.mb[0])))
        found[name] = "\n".join(line for line in lines if line)
    return {name: text for name, text in found.items() if text}


def daemons(policy: Policy, capacity: Array) -> list[Knobs]:
    """Limits of the daemons' group of each node; ``capacity`` [n, 2] milli and bytes."""
    limits = system_daemons.limits(capacity[:, 0], capacity[:, 1], policy.system_daemons)
    named = (
        ("cpu_milli", limits.cpu_milli),
        ("memory_high_bytes", limits.memory_high_bytes),
        ("memory_max_bytes", limits.memory_max_bytes),
    )
    return [
        {knob: int(one.value[at]) for knob, one in named if one.managed[at]}
        for at in range(len(capacity))
    ]
