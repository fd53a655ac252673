"""What a pod is expected to use before it is measured, and what a node can hold.

Called by the scheduler bridge's extender for the incoming pod and for pods just assigned.
Formula: koordinator `loadaware/estimator/default_estimator.go`. Columns are millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from agents.table import Array, Ints
from schemas.records import PriorityClass

RESOURCE_NAMES: dict[PriorityClass, tuple[str, str] | None] = {
    "prod": ("cpu", "memory"),
    "": ("cpu", "memory"),
    "mid": ("mid-cpu", "mid-memory"),
    "batch": ("batch-cpu", "batch-memory"),
    "free": None,
}
"""Under which names a class asks for cpu and memory; free asks for nothing."""
NOTHING = (0, 0)
HALF = 50  # added before a division by 100: halves go up


def quantities(priority_class: PriorityClass, resources: Mapping[str, int]) -> tuple[int, int]:
    """Millicores and bytes of the class's own kinds; what is absent counts as 0."""
    names = RESOURCE_NAMES[priority_class]
    return NOTHING if names is None else (resources.get(names[0], 0), resources.get(names[1], 0))


def fallback(priority_class: PriorityClass, default: tuple[int, int]) -> tuple[int, int]:
    """The estimate of a pod that asks for nothing: ``default``, but 0 for mid and free."""
    return NOTHING if priority_class in ("mid", "free") else default


def estimate(requests: Array, limits: Array, fallbacks: Array, factor_percent: Array) -> Ints:
    """Expected use [p, 2] of pods that ask for ``requests`` and ``limits`` [p, 2].

    The larger of both times ``factor_percent`` ([2] or [p, 2]), halves up, at most a limit that is
    set; ``fallbacks`` [p, 2] where both are 0. Products stay below 2^63.
    """
    asked = np.maximum(requests, limits)
    scaled = (asked * factor_percent + HALF) // 100
    scaled = np.where(limits > 0, np.minimum(scaled, limits), scaled)
    result: Ints = np.where(asked == 0, fallbacks, scaled)
    return result


def overlay(base: Array, said: Array) -> Ints:
    """``said`` where it is 0 or more, else ``base``.

    A node's raw allocatable over its amplified one, or a pod's own factors over the configured.
    """
    result: Ints = np.where(said >= 0, said, base)
    return result


def estimate_until_ms(
    assigned_ms: Array, initialized_ms: Array, after_assigned_ms: int, after_initialized_ms: int
) -> Ints:
    """Until when a pod [p] is estimated although it is measured; -1: not by time.

    A pod that is initialized (time 0 or more) goes by ``after_initialized_ms`` alone, even if that
    is over sooner; a period of 0 is not configured.
    """
    by_start = np.where(initialized_ms >= 0, initialized_ms + after_initialized_ms, -1)
    if not after_initialized_ms:
        by_start = np.full_like(assigned_ms, -1)
    by_bind = (
        assigned_ms + after_assigned_ms if after_assigned_ms else np.full_like(assigned_ms, -1)
    )
    result: Ints = np.where(by_start >= 0, by_start, by_bind)
    return result
