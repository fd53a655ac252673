"""Limits of the daemons of class SYSTEM together: CPU and memory, in percent of the node.

A daemon that runs wild takes from online pods as best effort would; a limit far above what daemons
need catches only that. Nothing is limited by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.isolation.by_class import Setting
from agents.table import Ints
from schemas.policy import SystemDaemons

PAGE = 4096
"""Bytes of a page: memory limits are whole ones."""


@dataclass(frozen=True, slots=True)
class DaemonLimits:
    """Limits of the daemons' group on each node; memory is slowed down before it is refused."""

    cpu_milli: Setting
    memory_high_bytes: Setting
    memory_max_bytes: Setting


def limits(capacity_milli: Ints, capacity_bytes: Ints, rule: SystemDaemons) -> DaemonLimits:
    """Limits on each node [n]; not managed where its capacity is unknown or the share is all."""
    cpu = np.maximum(capacity_milli * rule.cpu_limit_percent // 100, rule.cpu_floor_milli)
    cpu_on = rule.enabled and rule.cpu_limit_percent < 100
    most = _pages(capacity_bytes, rule.memory_limit_percent)
    most_on = rule.enabled and rule.memory_limit_percent < 100
    high = _pages(most, rule.memory_throttle_percent)
    high_on = rule.enabled and rule.memory_throttle_percent < 100
    return DaemonLimits(
        Setting(np.minimum(cpu, capacity_milli), (capacity_milli > 0) & cpu_on),
        Setting(high, (capacity_bytes > 0) & high_on),
        Setting(most, (capacity_bytes > 0) & most_on),
    )


def _pages(amount: Ints, percent: int) -> Ints:
    result: Ints = (amount // 100 * percent + amount % 100 * percent // 100) // PAGE * PAGE
    return result
