"""Who may go, and who goes first. Every order is total: the uid decides last.

Sources: koordinator `qosmanager/plugins/util/evict.go`, `memoryevict/memory_evict.go`,
`cpuevict/cpu_evict.go`. Beyond the peer: opt-outs, the cost of lost work before usage, and rungs
(`agents.eviction.ladder`): pods up to rung ``start`` count as one, the least tried first.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from agents.eviction.candidate import Candidate
from agents.eviction.labels import allows
from agents.eviction.ladder import rung_of

SHARE_BITS = 64
"""Shares of two requests below 2^32 differ by more than one part in 2^64, or not at all."""


def by_priority(
    candidates: Iterable[Candidate], feature: str, priority_most: int, *, by_request: bool
) -> list[Candidate]:
    """Pods that offer themselves to ``feature``, up to a priority and with a sample.

    Eviction priority, priority, sub-priority (its priority where none is said), all ascending;
    then the cheapest work; then the largest user, or ``by_request`` the largest request.
    """

    def key(pod: Candidate) -> tuple[int, int, int, tuple[int, int], int, str]:
        sub = pod.priority if pod.sub_priority is None else pod.sub_priority
        amount = pod.request if by_request else pod.used or 0
        return pod.eviction_priority, pod.priority, sub, pod.work.cost(), -amount, pod.uid

    return sorted(
        (
            pod
            for pod in candidates
            if pod.active
            and pod.opted_in
            and not pod.opted_out
            and allows(pod.policies, feature)
            and pod.priority <= priority_most
            and pod.used is not None
        ),
        key=key,
    )


def by_size(candidates: Iterable[Candidate], start: int = 0) -> list[Candidate]:
    """Best-effort pods for memory: priority ascending, then cheap work, then the largest user.

    What nobody can say the size of comes last within its priority, and there the uid descends.
    """

    def key(pod: Candidate) -> tuple[int, int, int, tuple[int, int], bool, int]:
        return *_before(pod, start), pod.work.cost(), pod.used is None, -(pod.used or 0)

    pods = sorted(_best_effort(candidates), key=attrgetter("uid"))
    unknown = [pod for pod in reversed(pods) if pod.used is None]
    return sorted([pod for pod in pods if pod.used is not None] + unknown, key=key)


def by_share(candidates: Iterable[Candidate], start: int = 0) -> list[Candidate]:
    """Best-effort pods for CPU: priority ascending, then cheap work, then the most per request."""

    def key(pod: Candidate) -> tuple[int, int, int, tuple[int, int], int, str]:
        share = ((pod.used or 0) << SHARE_BITS) // pod.request if pod.request > 0 else 0
        return *_before(pod, start), pod.work.cost(), -share, pod.uid

    return sorted(_best_effort(candidates), key=key)


def _best_effort(candidates: Iterable[Candidate]) -> list[Candidate]:
    return [pod for pod in candidates if pod.best_effort and not pod.opted_out]


def _before(pod: Candidate, start: int) -> tuple[int, int, int]:
    """Rung, tries where orders were in vain so far, priority."""
    return max(rung_of(pod.priority), start), pod.tries if start else 0, pod.priority
