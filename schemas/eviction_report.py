"""What the bridge says in topic `evictions` of the pods that are to go through the Eviction API.

Part of `schemas.records`, which says the rules of all records; read through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.facts import Int64

EvictionSource = Literal["evict_memory", "evict_cpu", "quota", "low_node_load"]
"""Who wants a pod gone through the Eviction API; the most urgent first."""
EvictionOutcome = Literal["waiting", "evicted", "gone", "refused", "expired"]


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """What the bridge did about one pod that is to go through the Eviction API.

    ``waiting`` says what it waits for and is followed by another; the rest are last words:
    ``evicted`` the API server took it (in a dry run: it would have), ``gone`` there was nothing
    left to do, ``refused`` it may not go, ``expired`` its time was over, for the reason it waited
    for. The bridge reads its own reports after a restart, and so asks for nobody twice.
    """

    node: str
    pod: str  # uid
    source: EvictionSource
    outcome: EvictionOutcome
    reason: str
    why: str = ""  # reason of the order
    command_id: str = ""  # of the order; a name of the bridge's own where none stands behind it
    namespace: str = ""
    name: str = ""
    workload: str = ""
    tries: Int64 = 0  # calls of the API so far
    asked_log_ms: Int64 = 0  # when it was handed over
    until_log_ms: Int64 = 0  # when it would have expired
    dry_run: bool = False
    terms: dict[str, Int64] = field(default_factory=dict)  # figures behind an order of the bridge
