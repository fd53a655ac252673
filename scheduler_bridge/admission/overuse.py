"""Which pods are called back when a quota uses more than its share. A pure plan.

Asked by `recall_keeper` at each turn; who carries it out is `scheduler_bridge.evictions`. As
koordinator (`elasticquota/quota_overuse_revoke.go`): only what was over without a break for a time,
least important first until it fits, then those that fit after all stay, the most important first.
Free pods of batch capacity that was lent to somebody go by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scheduler_bridge.admission.quota import Tree
from scheduler_bridge.admission.quota_book import FREE, Entry, QuotaBook


@dataclass(frozen=True, slots=True)
class Recalled:
    """One pod to be called back, and why; ``quota`` is `free` for pods that own nothing."""

    uid: str
    namespace: str
    name: str
    quota: str
    why: str


@dataclass(frozen=True, slots=True)
class _Over:
    """What a group uses beyond ``bound``; pods that are on their way out count no more."""

    group: str
    used: Mapping[str, int]
    bound: Mapping[str, int]

    @property
    def resource(self) -> str:
        """The first that is over, or ""."""
        names = sorted(self.bound)
        return next((one for one in names if self.used.get(one, 0) > self.bound[one]), "")


class Overuse:
    """Remembers since when each quota has been over; `due` gives the plan of now."""

    def __init__(self, after_ms: int, most: int) -> None:
        self._after_ms = after_ms
        self._most = most
        self._since_ms: dict[str, int] = {}

    def due(
        self,
        tree: Tree,
        book: QuotaBook,
        total: Mapping[str, int],
        now_ms: int,
        left_alone: AbstractSet[str] = frozenset(),
    ) -> list[Recalled]:
        """Pods to call back now, the least important of each quota first; at most ``most``.

        ``left_alone``: uids of pods that are passed over, because they could not be made to go.
        """
        over = [one for one in _overs(tree, book, total) if one.resource]
        self._since_ms = {one.group: self._since_ms.get(one.group, now_ms) for one in over}
        found: list[Recalled] = []
        for one in over:
            since_ms = self._since_ms[one.group]
            if now_ms - since_ms >= self._after_ms:
                found += _recall(one, book.entries(one.group), left_alone)
        return found[: self._most]


def order(entries: Iterable[Entry]) -> list[Entry]:
    """Least important first: priority, the cheapest work, the youngest; the uid decides last."""
    by_uid = sorted(entries, key=lambda one: one.uid)
    youngest = sorted(by_uid, key=lambda one: one.created, reverse=True)
    return sorted(youngest, key=lambda one: (one.priority, one.cost))


def _recall(over: _Over, entries: Iterable[Entry], left_alone: AbstractSet[str]) -> list[Recalled]:
    used, taken = dict(over.used), []
    for one in order(entries):
        if not _exceeds(used, over.bound):
            break
        if one.firm or one.going or not one.may_go or one.uid in left_alone:
            continue
        if not _helps(one, used, over.bound):
            continue
        _move(used, one, -1)
        taken.append(one)
    stays = set()
    for one in reversed(taken):
        _move(used, one, 1)
        if _exceeds(used, over.bound):
            _move(used, one, -1)
        else:
            stays.add(one.uid)
    why = (
        f"{over.group} uses {over.used[over.resource]} of {over.resource} "
        f"and may use {over.bound[over.resource]}"
    )
    return [
        Recalled(one.uid, one.namespace, one.name, over.group, why)
        for one in taken
        if one.uid not in stays
    ]


def _overs(tree: Tree, book: QuotaBook, total: Mapping[str, int]) -> Iterable[_Over]:
    """Free pods first, then quotas by name; by sums first, for most are within their share."""
    left = {one: max(amount, 0) for one, amount in tree.free_left(book, total).items()}
    bounds = {FREE: (book.free, left)}
    shares = tree.shares(book, total) if tree.leaves else {}
    for name in tree.leaves:
        bound = tree.bound(name, shares[name])
        limits = {one: bound.get(one, 0) for one in tree.named_in(name)}
        bounds[name] = (book.of(name).used, limits)
    for group, (used, limits) in bounds.items():
        if _exceeds(used, limits):
            yield _Over(group, _sum(book.entries(group)), limits)


def _sum(entries: Iterable[Entry]) -> dict[str, int]:
    used: dict[str, int] = {}
    for one in entries:
        if not one.going:
            _move(used, one, 1)
    return used


def _exceeds(used: Mapping[str, int], bound: Mapping[str, int]) -> bool:
    return any(used.get(one, 0) > bound[one] for one in bound)


def _helps(one: Entry, used: Mapping[str, int], bound: Mapping[str, int]) -> bool:
    return any(one.amounts.get(name) and used.get(name, 0) > bound[name] for name in bound)


def _move(used: dict[str, int], one: Entry, sign: int) -> None:
    for resource, amount in one.amounts.items():
        used[resource] = used.get(resource, 0) + sign * amount
