"""CPU and memory of best-effort pods and their containers as they asked for them in extended
resources (kubernetes.io/batch-cpu and its kin), of which neither kubelet nor runtime makes limits.

Called by the node agent's knobs for each pod that it finds. Figures: koordinator
`runtimehooks/hooks/batchresource/batch_resource.go`, `util/system/cgroup.go`. Other than there, an
init container counts in its pod's limit (it could not start beneath a smaller one), and so does the
pod's overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.isolation.by_class import BE, Setting
from agents.table import Bools, Ints

UNSAID = -1
NO_LIMIT = -1
SHARES_PER_CPU = 1024
LEAST_SHARES, MOST_SHARES = 2, 262_144
"""What the kernel takes."""
US_PER_MILLI = 100
"""Of a period of 100 ms."""
LEAST_QUOTA_US = 1_000
"""What the kernel takes."""


@dataclass(frozen=True, slots=True)
class Part:
    """One container; ``init``: it ends before the others begin. Amounts in thousandths of a
    CPU, or in bytes; `UNSAID`: nothing was said.
    """

    request: int = UNSAID
    limit: int = UNSAID
    init: bool = False


def setting(qos: Ints, enabled: bool) -> Setting:
    """Whether each pod's groups get what it asked for [n]: best effort's alone."""
    on: Bools = (qos == BE) & enabled
    return Setting(np.ones_like(qos), on)


def shares(request_milli: int) -> int:
    """cpu.shares of a request; none is the least."""
    return min(max(request_milli * SHARES_PER_CPU // 1000, LEAST_SHARES), MOST_SHARES)


def quota_us(limit_milli: int, ratio_permille: int = 1000) -> int:
    """cpu.cfs_quota_us over 100 ms; `NO_LIMIT` without a limit.

    ``ratio_permille``: batch CPU of this machine is shown times this, above 1000, so a quota is
    that much smaller, rounded up.
    """
    if limit_milli <= 0:
        return NO_LIMIT
    whole = limit_milli * US_PER_MILLI
    if ratio_permille > 1000:
        whole = -(-whole * 1000 // ratio_permille)
    return max(whole, LEAST_QUOTA_US)


def pod_request(parts: Sequence[Part]) -> int:
    """The sum over those that run together; `UNSAID` when none says anything."""
    said = [part.request for part in parts if not part.init and part.request != UNSAID]
    return sum(said) if said else UNSAID


def pod_limit(parts: Sequence[Part], own: int) -> int:
    """The sum over those that run together, unlimited as soon as one of them is; room for each
    init container beside those that run before it. ``parts`` in the order in which they start.

    ``own``: what the pod is known to be limited to, with its overhead; `NO_LIMIT` is none.
    """
    running, dearest = 0, 0
    for part in parts:
        if part.init:
            dearest = max(dearest, running + max(part.limit, 0))
        elif part.limit <= 0:
            return NO_LIMIT
        else:
            running += part.limit
    return max(running, dearest, own) if running else NO_LIMIT
