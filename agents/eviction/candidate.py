"""A pod that may be told to go, and what it would cost to lose its work.

Made by `agents.eviction.node` from the state; ordered by `agents.eviction.order`. Structs of
msgspec, for a node in need makes one of each of its pods at every sample.
"""

from __future__ import annotations

import msgspec

CHEAP, UNKNOWN, DEAR = range(3)
"""Ranks of lost work: what comes back by itself, what nobody knows, what is lost for good."""


class Work(msgspec.Struct, frozen=True):
    """What is known of the work in a pod; None where nothing was said."""

    recoverable: bool | None = None  # starts again by itself, or goes on from a checkpoint
    unsaved_ms: int | None = None  # since the start, or since the last checkpoint
    retries_left: int | None = None

    def cost(self) -> tuple[int, int]:
        """Sorts cheap work first: (rank, work that would be done twice in ms).

        Work whose retries are used up is dear whatever it says; with nothing said the answer is
        the same for all, so that the order is left to the other keys.
        """
        lost = max(self.unsaved_ms or 0, 0)
        if self.recoverable is False or self.retries_left == 0:
            return DEAR, lost
        known = self.recoverable or self.unsaved_ms is not None or self.retries_left is not None
        return (CHEAP, lost) if known else (UNKNOWN, 0)


NOTHING_SAID = Work()


class Candidate(msgspec.Struct, frozen=True):
    """One pod of a node; amounts are millicores or bytes, whichever is short."""

    uid: str
    priority: int  # effective number
    used: int | None = None  # None: no sample
    request: int = 0
    kind: str = ""  # resource it was requested in, such as "batch-cpu"
    best_effort: bool = False  # by its raw QoS
    active: bool = True  # pending or running
    opted_in: bool = False  # to eviction by priority
    opted_out: bool = False  # of every eviction
    policies: frozenset[str] | None = None  # features that may evict it; None: any
    eviction_priority: int = 0  # lower goes first
    sub_priority: int | None = None  # None: its priority
    going: bool = False  # terminating, or ordered out and the order still stands
    tries: int = 0  # orders so far that it should go
    work: Work = NOTHING_SAID
    slot: int = -1  # place in the pods' arena
