"""Share of the block devices by class: weight, and limits of operations and bytes a second.

Written as io.weight and io.max, or their v1 names. Defaults: koordinator
`qosmanager/plugins/blkio/blkio_reconcile.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agents.isolation.by_class import Setting, chosen, switched_on
from agents.table import ABSENT, Ints
from schemas.policy import BlockIo, ClassBlockIo

WEIGHT = 100
"""What a group has that nobody gave a weight."""


@dataclass(frozen=True, slots=True)
class BlockIoSettings:
    """Settings of each pod; a limit of ABSENT: max."""

    weight: Setting
    read_iops: Setting
    write_iops: Setting
    read_bytes_per_s: Setting
    write_bytes_per_s: Setting


def settings(qos: Ints, rule: BlockIo) -> BlockIoSettings:
    """What each pod's class gives its group on every device [n]; daemons are left alone."""
    on = switched_on(qos, rule)

    def of(value: Callable[[ClassBlockIo], int], system: int = ABSENT) -> Setting:
        said = chosen(qos, rule, value, system)
        return Setting(np.where(said > 0, said, ABSENT), on)

    return BlockIoSettings(
        of(lambda one: one.weight, system=WEIGHT),
        of(lambda one: one.read_iops),
        of(lambda one: one.write_iops),
        of(lambda one: one.read_bytes_per_s),
        of(lambda one: one.write_bytes_per_s),
    )
