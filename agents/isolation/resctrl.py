"""Cache ways and memory bandwidth of each class, and which control group a pod's tasks join.

Called for a node whose policy or pods changed. Formulas: koordinator
`qosmanager/plugins/resctrl/resctrl_reconcile.go`, `util/system/resctrl.go`; the text of schemata
is `agents.isolation.schemata`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from agents.isolation.by_class import Setting, pick, switched_on
from agents.table import ABSENT, Bools, Ints
from schemas.policy import ClassResctrl, Resctrl

GROUPS = ("LSR", "LS", "BE")
AMD_STEPS = 160
"""Eighths of a GB/s that stand for the whole bandwidth on AMD: 25 GB/s at eight tenths."""
AMD_UNLIMITED = 2048
"""What AMD takes for no limit at all."""
INTEL_STEP_PERCENT = 10
"""The step that Intel's parts share; a kernel rounds other figures by itself."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One group on every node [n]: ways as a bit mask, bandwidth in the vendor's unit; ABSENT."""

    l3_mask: Ints
    mb: Ints


def l3_mask(cbm: Ints, start_percent: int, end_percent: int) -> Ints:
    """Ways from start to end, both rounded up, as a mask [n]; ABSENT where none is legal.

    ``cbm`` is the root's mask, ones from bit 0. A small range of few ways may be 0: no mask that
    a kernel takes.
    """
    if start_percent < 0 or end_percent > 100 or end_percent <= start_percent:
        return np.full_like(cbm, ABSENT)
    legal = (cbm > 0) & (cbm & (cbm + 1) == 0)
    ways = np.bitwise_count(np.where(legal, cbm, 0)).astype(np.int64)
    first, beyond = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    one = np.int64(1)
    return np.where(legal, (one << beyond) - (one << first), ABSENT)


def mb_value(percent: Ints, amd: Bools) -> Ints:
    """Memory bandwidth [n] in the vendor's unit; ABSENT outside 1 to 100 percent.

    AMD counts eighths of a GB/s; all others take percent in steps of ten, rounded up.
    """
    of_amd = np.where(percent == 100, AMD_UNLIMITED, AMD_STEPS * percent // 100)
    others = -(-percent // INTEL_STEP_PERCENT) * INTEL_STEP_PERCENT
    legal = (percent >= 1) & (percent <= 100)
    return np.where(legal, np.where(amd, of_amd, others), ABSENT)


def partitions(rule: Resctrl, cbm: Ints, amd: Bools) -> dict[str, Partition]:
    """What each group gets on each node [n]; a class that is off has the whole cache."""
    sections = zip(GROUPS, (rule.lsr, rule.ls, rule.be), strict=True)
    return {name: _partition(section, cbm, amd) for name, section in sections}


def group_of(qos: Ints, rule: Resctrl) -> Setting:
    """Place in GROUPS that each pod's tasks join [n]; daemons stay where they are."""
    group = pick(qos, lsr=0, ls=1, be=2, system=ABSENT)
    on = switched_on(qos, rule)
    return Setting(group, on)


def new_tasks(group_tasks: Collection[int], container_tasks: Sequence[int]) -> list[int]:
    """Tasks that the group lacks, in the order given."""
    there = frozenset(group_tasks)
    return [task for task in container_tasks if task not in there]


def _partition(section: ClassResctrl, cbm: Ints, amd: Bools) -> Partition:
    if not section.enabled:
        section = ClassResctrl()
    percent = np.full_like(cbm, section.mb_percent)
    mask = l3_mask(cbm, section.l3_start_percent, section.l3_end_percent)
    return Partition(mask, mb_value(percent, amd))
