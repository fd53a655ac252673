"""Whether a pod fits its quota, by the law of `agents.placement`. Pure.

Called by `validate` for each pod that is created, and by `overuse` for shares. Borrowing by class:
prod and mid stay within their quota's minimum, batch may use what others leave of theirs, free owns
nothing and lives on batch capacity that nobody was lent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agents.placement.quota_admission import admit
from agents.placement.quota_tree import ROOT, Quota, Share, limited, refresh
from scheduler_bridge.admission.names import CPU, MEMORY, QUOTA_LABEL, Resources
from scheduler_bridge.admission.pod import PodView
from scheduler_bridge.admission.quota_book import FREE, Entry, QuotaBook
from scheduler_bridge.admission.rules import UNSAID, Amounts, QuotaRule, Rules

DEFAULT_QUOTA = "koordinator-default-quota"
"""Takes pods of no other quota, where the rules have one of this name."""
NOBODYS = ""


class QuotaRefused(ValueError):
    """A pod names a quota that it cannot be of; says which it could."""


class Tree:
    """The quotas of the rules, and how they share a total."""

    def __init__(self, rules: Rules, names: Resources) -> None:
        self._rules = rules
        self._names = names
        self._quotas = {rule.name: rule for rule in rules.quotas}
        self._parents = {rule.parent for rule in rules.quotas}
        self._owner = {space: rule.name for rule in rules.quotas for space in rule.namespaces}
        self._amounts = {rule.name: _Named(rule, names) for rule in rules.quotas}
        self._plain = {rule.name: self._amounts[rule.name].quota(rule) for rule in rules.quotas}
        self._below: dict[str, list[str]] = {ROOT: []}
        for rule in rules.quotas:
            self._below.setdefault(rule.parent, []).append(rule.name)
        self._downwards = list(self._below[ROOT])
        for name in self._downwards:
            self._downwards.extend(self._below.get(name, ()))
        self._scales = rules.elastic_quota.scale_minimums
        self.said_total = named(rules.total, names)

    def quota_of(self, pod: PodView) -> str:
        """The quota that counts a pod, `NOBODYS` for none. Raises QuotaRefused."""
        said = pod.labels.get(QUOTA_LABEL)
        if said is None or not self._quotas:
            return self._of_namespace(pod.namespace)
        if said not in self._quotas:
            raise QuotaRefused(f"quota {said} is not there; allowed: {self._leaves()}")
        if said in self._parents:
            raise QuotaRefused(f"quota {said} has quotas below it; allowed: {self._leaves()}")
        spaces = self._quotas[said].namespaces
        if spaces and pod.namespace not in spaces:
            raise QuotaRefused(f"quota {said} is for namespaces {', '.join(spaces)}")
        return said

    def shares(self, book: QuotaBook, total: Mapping[str, int]) -> dict[str, Share]:
        """Shares of all quotas for what is used now."""
        quotas = [self._asking(name, book.of(name).used, None) for name in self._downwards]
        return refresh(total, quotas, self._scales)

    def shares_with(
        self, entry: Entry, book: QuotaBook, total: Mapping[str, int]
    ) -> dict[str, Share]:
        """The same as if ``entry`` were counted too, of its quota and those above, of what it asks.

        Quotas beside that way stand for all that is below them, by what they ask for together.
        """
        asked = self._asked_up(entry, book)
        way = [entry.quota]
        while self._quotas[way[-1]].parent != ROOT:
            way.append(self._quotas[way[-1]].parent)
        beside = [name for above in (*way[1:], ROOT) for name in self._below[above]]
        # One on the way asks through its child alone, which stands for itself here.
        quotas = [
            self._asking(name, {} if name in way[1:] else asked[name], entry.amounts)
            for name in beside
        ]
        return refresh(_of(total, entry.amounts), quotas, self._scales)

    def judge(self, entry: Entry, book: QuotaBook, total: Mapping[str, int]) -> str:
        """Why a pod does not fit; "" when it does. ``total`` by resource name."""
        if entry.share == FREE:
            return self._judge_free(entry, book, total)
        if not self._quotas:
            return ""
        if entry.quota == NOBODYS:
            if self._rules.unquoted == "admit":
                return ""
            return (
                f"no_quota: namespace {entry.namespace} has none; allowed: label {QUOTA_LABEL} "
                f"with one of {self._leaves()}"
            )
        shares = self.shares_with(entry, book, total)
        return self._judge_own(entry, book, shares) or self._judge_above(entry, book, shares)

    def bound(self, quota: str, share: Share) -> Mapping[str, int]:
        """What a quota may use now: its share, or by the rules its maximum."""
        return share.runtime if self._by_runtime else self._amounts[quota].maximum

    def named_in(self, quota: str) -> Mapping[str, int]:
        """The maximum of a quota: only what it names is looked at."""
        return self._amounts[quota].maximum

    @property
    def leaves(self) -> list[str]:
        """Names of quotas that pods may be of."""
        return sorted(self._quotas.keys() - self._parents)

    def free_left(self, book: QuotaBook, total: Mapping[str, int]) -> dict[str, int]:
        """Batch capacity that nobody was lent, before free pods; below 0 when it is over-lent."""
        batch = self._names.of_class("batch").values()
        return {one: total.get(one, 0) - book.lent.get(one, 0) for one in batch}

    @property
    def _by_runtime(self) -> bool:
        return self._rules.elastic_quota.bound_by_runtime

    def _judge_own(self, entry: Entry, book: QuotaBook, shares: Mapping[str, Share]) -> str:
        own, sums = self._amounts[entry.quota], book.of(entry.quota)
        bound = self.bound(entry.quota, shares[entry.quota])
        verdict = admit(
            entry.amounts, sums.used, sums.firm, not entry.firm, bound, own.minimum, own.maximum
        )
        if verdict.admitted:
            return ""
        resource = verdict.resource
        asked = entry.amounts[resource]
        if verdict.reason == "over_minimum":
            return (
                f"quota_over_minimum: quota {entry.quota} owns {own.minimum.get(resource, 0)} of "
                f"{resource}, {sums.firm.get(resource, 0)} of it is used for good, the pod asks "
                f"for {asked}; allowed beyond it: batch work, which can be called back"
            )
        return self._over(entry.quota, resource, bound, sums.used, asked)

    def _judge_above(self, entry: Entry, book: QuotaBook, shares: Mapping[str, Share]) -> str:
        above = self._quotas[entry.quota].parent
        while above != ROOT:
            used = self._used_below(above, book)
            bound = self.bound(above, shares[above])
            verdict = admit(entry.amounts, used, {}, True, bound, {}, self._amounts[above].maximum)
            if not verdict.admitted:
                asked = entry.amounts[verdict.resource]
                return self._over(above, verdict.resource, bound, used, asked)
            above = self._quotas[above].parent
        return ""

    def _judge_free(self, entry: Entry, book: QuotaBook, total: Mapping[str, int]) -> str:
        left = self.free_left(book, total)
        verdict = admit(entry.amounts, book.free, {}, True, left, {}, left)
        if verdict.admitted:
            return ""
        resource = verdict.resource
        return (
            f"free_over_rest: of {resource} {max(left[resource], 0)} is lent to nobody, free pods "
            f"use {book.free.get(resource, 0)} of it, this one wishes for "
            f"{entry.amounts[resource]}; allowed: what is left"
        )

    def _over(
        self, quota: str, resource: str, bound: Mapping[str, int], used: Mapping[str, int],
        asked: int,
    ) -> str:  # fmt: skip
        return (
            f"quota_over_runtime: quota {quota} may use {bound.get(resource, 0)} of {resource} "
            f"now and uses {used.get(resource, 0)}, the pod asks for {asked}; its share grows "
            "when others leave theirs"
        )

    def _asked_up(self, entry: Entry, book: QuotaBook) -> dict[str, dict[str, int]]:
        """What each quota asks of its parent, by what ``entry`` asks for."""
        found: dict[str, dict[str, int]] = {name: {} for name in (ROOT, *self._downwards)}
        for name in reversed(self._downwards):
            used, own, plain = book.of(name).used, found[name], self._plain[name]
            more = entry.amounts if name == entry.quota else {}
            above = found[plain.parent]
            for resource in entry.amounts:
                asks = own.get(resource, 0) + used.get(resource, 0) + more.get(resource, 0)
                own[resource] = limited(plain, resource, asks)
                above[resource] = above.get(resource, 0) + own[resource]
        return found

    def _asking(self, name: str, request: Mapping[str, int], only: Iterable[str] | None) -> Quota:
        """A quota with this request; of some resources only."""
        plain = self._plain[name]
        if only is None:
            return replace(plain, request=request)
        return Quota(
            name=name,
            parent=plain.parent,
            maximum=_of(plain.maximum, only),
            minimum=_of(plain.minimum, only),
            request=_of(request, only),
            weight=_of(self._amounts[name].weight, only),
            guarantee=_of(plain.guarantee, only),
            lends=plain.lends,
            scales=plain.scales,
        )

    def _used_below(self, above: str, book: QuotaBook) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.leaves:
            parent = name
            while parent not in (ROOT, above):
                parent = self._quotas[parent].parent
            if parent == above:
                for resource, amount in book.of(name).used.items():
                    found[resource] = found.get(resource, 0) + amount
        return found

    def _of_namespace(self, namespace: str) -> str:
        for name in (self._owner.get(namespace, ""), namespace, DEFAULT_QUOTA):
            if name in self._quotas and name not in self._parents:
                return name
        return NOBODYS

    def _leaves(self) -> str:
        return ", ".join(self.leaves) or "none"


class _Named:
    """Amounts of one quota by resource name."""

    def __init__(self, rule: QuotaRule, names: Resources) -> None:
        self.maximum = named(rule.max, names)
        self.minimum = named(rule.min, names)
        self.weight = {**self.maximum, **named(rule.weight, names)}
        self.guarantee = named(rule.guarantee, names)

    def quota(self, rule: QuotaRule) -> Quota:
        """As the law takes it, before anything is asked for."""
        return Quota(
            rule.name, rule.parent, self.maximum, self.minimum, {}, self.weight, self.guarantee,
            rule.lends, rule.scales,
        )  # fmt: skip


def named(amounts: Amounts, names: Resources) -> dict[str, int]:
    """By resource name; what the rules do not name is absent."""
    pairs = (
        (CPU, amounts.cpu_milli),
        (MEMORY, amounts.memory_bytes),
        (names.batch_cpu, amounts.batch_cpu_milli),
        (names.batch_memory, amounts.batch_memory_bytes),
        (names.mid_cpu, amounts.mid_cpu_milli),
        (names.mid_memory, amounts.mid_memory_bytes),
    )
    return {name: amount for name, amount in pairs if amount != UNSAID}


def _of(amounts: Mapping[str, int], only: Iterable[str]) -> dict[str, int]:
    return {name: amounts[name] for name in only if name in amounts}
