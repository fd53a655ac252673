"""What several families share: the vectors' shapes, amounts, arrays of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Vector = dict[str, Any]
Adapter = Callable[[Vector], Vector]
Amounts = tuple[int, int]
NOBODY: Amounts = (0, 0)


def array(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def amounts(resources: Vector | None) -> Amounts:
    """Milli and bytes; an absent resource counts as 0."""
    if not resources:
        return NOBODY
    return resources.get("cpu_m") or 0, resources.get("memory") or 0
