"""Who uses how much of which quota: pods seen in the mirror, and those just let in. No I/O.

Kept by `webhook`, which counts what it lets in until the mirror shows it, or until a creation that
failed afterwards is surely over; read by `quota` and `overuse`. Sums are kept, not made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.eviction import labels as eviction
from agents.eviction.candidate import Work
from scheduler_bridge.admission import legal
from scheduler_bridge.admission.names import CPU, MEMORY, Resources
from scheduler_bridge.admission.pod import PodView
from scheduler_bridge.admission.rules import Free

PREEMPTIBLE_LABEL = "quota.scheduling.koordinator.sh/preemptible"
UNSEEN_MS = 10_000
"""A pod let in and not seen for so long was not created: another webhook refused it, say."""
FREE = "free"
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One pod as its quota counts it. ``firm``: cannot be called back, so it must fit the minimum.

    A free pod (``share`` is free) consumes its wish, in batch resources: those nobody was lent.
    """

    uid: str
    namespace: str
    name: str
    quota: str
    share: str
    firm: bool
    amounts: Amounts
    priority: int = 0
    cost: tuple[int, int] = (1, 0)  # of lost work
    created: str = ""
    going: bool = False
    may_go: bool = True


@dataclass(slots=True)
class Sums:
    """By resource; ``firm`` is the part that cannot be called back."""

    used: dict[str, int] = field(default_factory=dict)
    firm: dict[str, int] = field(default_factory=dict)


class QuotaBook:
    """Entries by uid, and their sums by quota; free pods are summed apart, whatever their quota."""

    def __init__(self) -> None:
        self._seen: dict[str, Entry] = {}
        self._unseen: dict[str, tuple[Entry, int]] = {}
        self._sums: dict[str, Sums] = {}
        self._groups: dict[str, dict[str, Entry]] = {}
        self.free: dict[str, int] = {}
        self.lent: dict[str, int] = {}
        """Everything that pods of other classes ask for, in and outside of quotas."""

    def see(self, uid: str, entry: Entry | None) -> None:
        """What the mirror shows of a pod now; None: it is gone, or holds nothing any more."""
        self._forget(uid)
        if entry is not None:
            self._seen[uid] = entry
            self._groups.setdefault(group_of(entry), {})[uid] = entry
            self._add(entry, 1)

    def let_in(self, entry: Entry, now_ms: int) -> None:
        """Count a pod that is being created, until it is seen. The same uid twice is once."""
        if entry.uid not in self._seen:
            self._forget(entry.uid)
            self._unseen[entry.uid] = (entry, now_ms + UNSEEN_MS)
            self._add(entry, 1)

    def expire(self, now_ms: int) -> int:
        """Give back what was let in and never seen; returns how many those were."""
        late = [uid for uid, (_, until_ms) in self._unseen.items() if until_ms <= now_ms]
        for uid in late:
            self._forget(uid)
        return len(late)

    def of(self, quota: str) -> Sums:
        return self._sums.get(quota, _NOTHING)

    def entries(self, group: str) -> Iterable[Entry]:
        """Those seen of a quota, or of `FREE`: who is only being created cannot be called back."""
        return self._groups.get(group, {}).values()

    def take_over(self, other: QuotaBook, now_ms: int) -> None:
        """Count what another book let in and has not seen yet."""
        for entry, until_ms in other._unseen.values():
            if until_ms > now_ms:
                self.let_in(entry, until_ms - UNSEEN_MS)

    def _forget(self, uid: str) -> None:
        known = self._seen.pop(uid, None)
        if known is not None:
            del self._groups[group_of(known)][uid]
            self._add(known, -1)
        waiting = self._unseen.pop(uid, None)
        if waiting is not None:
            self._add(waiting[0], -1)

    def _add(self, entry: Entry, sign: int) -> None:
        if entry.share == FREE:
            _count(self.free, entry.amounts, sign)
            return
        _count(self.lent, entry.amounts, sign)
        sums = self._sums.setdefault(entry.quota, Sums())
        _count(sums.used, entry.amounts, sign)
        if entry.firm:
            _count(sums.firm, entry.amounts, sign)


def group_of(entry: Entry) -> str:
    """Under what it is called back: its quota, or `FREE`."""
    return FREE if entry.share == FREE else entry.quota


def entry_of(pod: PodView, quota: str, names: Resources, free: Free) -> Entry:
    """A pod as ``quota`` counts it. What cannot be called back is firm."""
    share = FREE if legal.is_free(pod) else pod.classes.priority_class
    said = eviction.facts(pod.labels, pod.annotations)
    retries = said["retries_left"]
    recoverable = True if said["checkpointed"] else said["recoverable"]
    work = Work(recoverable, retries_left=retries if retries >= 0 else None)
    return Entry(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        quota=quota,
        share=share,
        firm=share != FREE and not _lends_back(pod),
        amounts=_wish(pod, names, free) if share == FREE else dict(pod.requests),
        priority=pod.classes.priority,
        cost=work.cost(),
        created=pod.created,
        going=pod.going,
        may_go=eviction.may_go(pod.classes, pod.labels, pod.annotations),
    )


def _lends_back(pod: PodView) -> bool:
    """Only best-effort batch work is ever called back, and a pod may say that it is not."""
    said = pod.classes
    keeps = pod.labels.get(PREEMPTIBLE_LABEL) == "false"
    return said.priority_class == "batch" and said.qos == "BE" and not keeps


def _wish(pod: PodView, names: Resources, free: Free) -> dict[str, int]:
    """What a free pod consumes: its noted wish, and what it does not say as the rules say."""
    return {
        names.batch_cpu: pod.wish.get(CPU, free.cpu_milli),
        names.batch_memory: pod.wish.get(MEMORY, free.memory_bytes),
    }


def _count(into: dict[str, int], amounts: Amounts, sign: int) -> None:
    for resource, amount in amounts.items():
        into[resource] = into.get(resource, 0) + sign * amount


_NOTHING = Sums()
