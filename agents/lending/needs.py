"""What pods above batch need of a node, by the policy's choice of figure.

`agents.fold` calls `by_policy` for every pod of a wave. Formula: koordinator
`noderesource/plugins/batchresource/plugin.go`.
"""

from __future__ import annotations

import numpy as np

from agents.table import Array, Bools, Ints

USAGE, REQUEST, LARGEST = range(3)
"""Codes of the policies in arrays."""
POLICIES = {"usage": USAGE, "request": REQUEST, "max_usage_request": LARGEST}
"""The same by their names in a policy document."""
POLICY_KEYS = ("capacity.cpu_policy", "capacity.memory_policy")


def by_usage(usage: Array, request: Array, lse: Bools) -> Ints:
    """[p, 2] usage; the request where the usage is ABSENT; LSE keeps the CPU that it asked for.

    LSR gives its idle CPU back, as LS does.
    """
    known = usage >= 0
    need: Ints = usage.copy() if known.all() else np.where(known, usage, request)
    if lse.any():
        need[lse, 0] = request[lse, 0]
    return need


def by_policy(codes: Array, usage: Array, request: Array, lse: Bools) -> Ints:
    """[p, 2] need of each pod by its policy; ``codes`` broadcast over pods and resources.

    ``usage`` is ABSENT where nobody reported it; a pod that only the report knows (dangling) has a
    request of 0, so that its usage counts under both policies that look at usage.
    """
    need = by_usage(usage, request, lse)
    if not (codes != USAGE).any():
        return need
    need = np.where(codes == LARGEST, np.maximum(request, usage), need)
    result: Ints = np.where(codes == REQUEST, request, need)
    return result


def host_use(usage: Array, class_number: Array, above: int) -> Array:
    """[h, 2] usage of host applications that counts as the system's: of classes above ``above``.

    Classes are told by their default priority number; one that says none has 0 and never counts.
    """
    counts = class_number > above
    result: Array = usage * counts[:, None]
    return result
