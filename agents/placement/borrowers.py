"""Which work may borrow on a node: the whitelist of the rollout, as capacity carries it.

Asked by whoever places batch work: the simulated scheduler, and a bridge's extender.
"""

from __future__ import annotations

from collections.abc import Collection


def may_borrow(workloads: Collection[str], workload: str) -> bool:
    """Whether work of this name, as inventory says it, may be placed; none listed: any may.

    Work without a name is on no list.
    """
    return not workloads or (bool(workload) and workload in workloads)
