"""Order of the kernel's out-of-memory killer: whom it takes first, and whether with the group.

`oom_score_adj` of a pod's tasks, `memory.oom.group` of its group, and `memory.priority` where the
kernel has it. Classes and ranges: koordinator `apis/extension/constants.go`, `nodeslo_config.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.isolation.by_class import Setting, chosen, switched_on
from agents.table import Ints
from schemas.policy import ClassOom, Oom


@dataclass(frozen=True, slots=True)
class OomSettings:
    """Settings of each pod: -1000 (never) to 1000 (first); 0 (first) to 12; 0 or 1."""

    score_adj: Setting
    priority: Setting
    kill_group: Setting


def settings(qos: Ints, rule: Oom) -> OomSettings:
    """What each pod's class gives its tasks and its group [n]."""
    on = switched_on(qos, rule, system=rule.system.enabled)

    def of(value: Callable[[ClassOom], int]) -> Setting:
        return Setting(chosen(qos, rule, value, value(rule.system)), on)

    return OomSettings(
        of(lambda one: one.score_adj),
        of(lambda one: one.priority),
        of(lambda one: int(one.kill_group)),
    )
