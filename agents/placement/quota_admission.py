"""Whether a pod still fits its quota.

Called by the scheduler bridge's admission with the shares of `agents.placement.quota_tree`.
Rules: koordinator `elasticquota/plugin.go` (PreFilter). Equality passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Amounts = Mapping[str, int]


class Verdict(NamedTuple):
    """``reason`` is fits, over_runtime or over_minimum; ``resource`` the first that is over."""

    reason: str
    resource: str = ""

    @property
    def admitted(self) -> bool:
        return self.reason == "fits"


def admit(
    pod: Amounts, used: Amounts, firm_used: Amounts, preemptible: bool, runtime: Amounts,
    minimum: Amounts, maximum: Amounts,
) -> Verdict:  # fmt: skip
    """``used`` and the pod within ``runtime``; what cannot be preempted also within ``minimum``.

    ``firm_used`` is the part of ``used`` that cannot be preempted. Only resources that ``maximum``
    names are looked at, in the order of their names; a resource the pod does not ask for passes.
    """
    asked = [name for name in sorted(maximum) if pod.get(name, 0) > 0]
    for name in asked:
        if used.get(name, 0) + pod[name] > runtime.get(name, 0):
            return Verdict("over_runtime", name)
    if not preemptible:
        for name in asked:
            if firm_used.get(name, 0) + pod[name] > minimum.get(name, 0):
                return Verdict("over_minimum", name)
    return Verdict("fits")
