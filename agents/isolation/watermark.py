"""When the kernel begins to reclaim a group's memory in the background, by class.

For kernels with memory.wmark_* (cgroup v1 of Anolis and its kin). Defaults: koordinator
`pkg/util/sloconfig/nodeslo_config.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.isolation.by_class import Setting, chosen, switched_on
from agents.table import Ints
from schemas.policy import ClassMemory, MemoryQos


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Settings of each pod: ratio of the limit, gap as a permille, shift of the node's mark."""

    ratio_percent: Setting
    scale_permille: Setting
    min_adj: Setting


def settings(qos: Ints, rule: MemoryQos) -> Watermarks:
    """Watermarks of each pod's class [n]; daemons have none."""
    on = switched_on(qos, rule)

    def of(value: Callable[[ClassMemory], int]) -> Setting:
        return Setting(chosen(qos, rule, value, system=0), on)

    return Watermarks(
        of(lambda one: one.wmark_ratio_percent),
        of(lambda one: one.wmark_scale_permille),
        of(lambda one: one.wmark_min_adj),
    )
