"""Core scheduling: which pods may run on the siblings of one core at a time.

Equal cookies share a core, different ones never do. Rules: koordinator
`runtimehooks/hooks/coresched/core_sched.go`; here pods that name no group share with their own
class only.
"""

from __future__ import annotations

import numpy as np

from agents.isolation.by_class import LSE, LSR, SYSTEM, Setting, among
from agents.table import Bools, Ints
from schemas.policy import CoreSched

NO_COOKIE = 0
"""The kernel's word for a task that shares with all that have none either."""
KINDS = ("class", "group", "pod")
"""What pods of one cookie have in common."""
BY_CLASS, BY_GROUP, BY_POD = range(len(KINDS))


def cookies(qos: Ints, group: Ints, exclusive: Bools, own: Ints, rule: CoreSched) -> Setting:
    """A number for each pod [n]; pods with equal ones share a core. Daemons share with all.

    ``group``: number of the group that the pod names, below 0: none. ``exclusive``: the pod shares
    with nobody; ``own`` is a number of it alone. A group's expellers and the rest do not mix.
    """
    expeller = among(qos, rule.lsr_expeller, rule.ls_expeller, rule.be_expeller)
    kind = np.where(exclusive, BY_POD, np.where(group >= 0, BY_GROUP, BY_CLASS))
    of_class = np.where(qos == LSE, LSR, qos)
    number = np.where(exclusive, own, np.where(group >= 0, group, of_class))
    cookie = 1 + (number * len(KINDS) + kind) * 2 + expeller
    managed = np.full(len(qos), rule.enabled)
    return Setting(np.where(qos == SYSTEM, NO_COOKIE, cookie), managed)
