"""Which nodes have enough left to lend for one more pod, with the reason for each.

Called by the scheduler bridge's extender: for all candidates when a pod is filtered, and for the
chosen one when it is bound. The columns of amounts are batch CPU and memory, mid CPU and memory.
"""

from __future__ import annotations

import numpy as np

from agents.table import Array, Bools, Ints

REASONS = ("fits", "borrows_nothing", "nothing_known", "no_new_work", "not_listed", "too_little")
FITS, BORROWS_NOTHING, NOTHING_KNOWN, NO_NEW_WORK, NOT_LISTED, TOO_LITTLE = range(len(REASONS))
"""From NOTHING_KNOWN on the node is refused."""


def judge(
    asks: Array, offered: Ints, taken: Ints, known: Bools, new_work: Bools, listed: Bools
) -> Ints:
    """The reason [n], of REASONS, why a pod that asks for ``asks`` [4] may borrow of each node.

    ``offered`` [n, 4] is what may be lent in all, ``taken`` [n, 4] what is lent or about to be;
    what is not asked for is not looked at, so that a fall below what is lent refuses no others.
    """
    if not (asks > 0).any():
        return np.full(len(known), BORROWS_NOTHING)
    left = offered - taken
    short = ((asks > 0) & (asks > left)).any(axis=1)
    reason = np.where(short, TOO_LITTLE, FITS)
    reason = np.where(listed, reason, NOT_LISTED)
    reason = np.where(new_work, reason, NO_NEW_WORK)
    result: Ints = np.where(known, reason, NOTHING_KNOWN)
    return result
