"""Group identity (cpu.bvt_warp_ns): who runs first on a CPU and who makes way, by class.

For kernels that have it. Values: koordinator `runtimehooks/hooks/groupidentity/rule.go`. The
kernel has this or core scheduling; the policy allows one of the two.
"""

from __future__ import annotations

from agents.isolation.by_class import Setting, chosen, switched_on
from agents.isolation.memory_qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from agents.table import Ints
from schemas.policy import GroupIdentity


def settings(qos: Ints, rule: GroupIdentity) -> Setting:
    """The identity of each pod's group [n], -1 to 2."""
    value = chosen(qos, rule, lambda one: one.bvt, rule.system.bvt)
    on = switched_on(qos, rule, system=rule.system.enabled)
    return Setting(value, on)


def tier_settings(rule: GroupIdentity) -> dict[int, int]:
    """The identity of the groups above the pods, by tier; only those that are managed.

    The root stays neutral: what it had would be added to every pod's.
    """
    found = {GUARANTEED: 0} if rule.ls.enabled or rule.be.enabled else {}
    if rule.ls.enabled:
        found[BURSTABLE] = rule.ls.bvt
    if rule.be.enabled:
        found[BEST_EFFORT] = rule.be.bvt
    return found
