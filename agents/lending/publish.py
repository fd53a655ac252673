"""From what a node can lend to what is shown of it: normalised CPU, less what others gave away.

`agents.capacity` calls it before the guards; `agents.guards`, and the bridge with numbers in place
of arrays, ask it what is worth saying.
Formulas: koordinator `noderesource/plugins/batchresource/plugin.go` (Prepare),
`pkg/util/resource.go`.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from agents.lending.amounts import PERMILLE, Percent
from agents.table import Array, Bools, Ints

THOUSANDTHS = 1000


def normalised(cpu_milli: Array, ratio: Array) -> Ints:
    """Thousandths of a millicore: CPU x ratio, truncated, where the ratio is above 1."""
    fine = cpu_milli * THOUSANDTHS
    scaled = (fine.astype(np.float64) * ratio).astype(np.int64)
    result: Ints = np.where((ratio > 1) & (fine > 0), scaled, fine)
    return result


def left_over(origin: Array, third_party: Array) -> Array:
    """What is shown: origin less what another system has already given away, at least 0."""
    result: Array = np.maximum(origin - third_party, 0)
    return result


@overload
def differs(old: int, new: int, permille: int) -> bool: ...


@overload
def differs(old: Array, new: Array, permille: Percent) -> Bools: ...


def differs(old: Any, new: Any, permille: Any) -> Any:
    """Changed by more than ``permille`` of the old value; any change from 0 counts."""
    return abs(new - old) * PERMILLE > old * permille
