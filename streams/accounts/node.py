"""One node over time: where it belongs, what it was said to lend, what was lent, who was sent away.

`reading` hands it the records of its topics in the order of their times.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TypeVar

from schemas.packed import PackedSample
from schemas.records import (
    Ack,
    Capacity,
    Command,
    EvictionReport,
    Inventory,
    LedgerEntry,
    PodFact,
    Sli,
)
from streams.accounts import online
from streams.accounts.cells import Cells, Place, Span
from streams.accounts.lending import CLASSES, RESOURCES, Lending
from streams.accounts.online import Series
from streams.accounts.policies import Policies, Standing, Version
from streams.accounts.satisfaction import Starving
from streams.accounts.usage import Usage

SETS_KEPT = 4
"""Samples and inventory travel apart: a sample may be of a pod set just before."""
ORDERS_KEPT = 256
UIDS_KEPT = 4096
EVICTS = ("evict_memory", "evict_cpu")
WENT = ("applied", "local", "failed")
"""Outcomes whose ack names the pods that are gone; others name those that are to go."""
Amounts = tuple[int, int, int, int]
"""Batch milli and bytes, mid milli and bytes."""
NOTHING: Amounts = (0, 0, 0, 0)
K = TypeVar("K")
V = TypeVar("V")


class Node:
    """Its state; ``history``: from when on it had which place."""

    def __init__(
        self, name: str, pool_label: str, span: Span, cells: Cells, policies: Policies,
        rule: Starving,
    ) -> None:  # fmt: skip
        self.name = name
        self.usage = Usage(name, span, cells, rule)
        self.history: list[tuple[int, Place]] = []
        self._pool_label, self._span, self._cells, self._policies = (
            pool_label,
            span,
            cells,
            policies,
        )
        self._inventory: Inventory | None = None
        self._sets: OrderedDict[int, tuple[PodFact, ...]] = OrderedDict()
        self._workloads: OrderedDict[str, str] = OrderedDict()
        self._standing = Standing("", {})
        self._settled_ms = 0
        self._predicted, self._offered = NOTHING, NOTHING
        self._said = False
        self._lent: dict[str, Amounts] = {}
        self._orders: OrderedDict[str, str] = OrderedDict()
        self._evicted: set[str] = set()
        self._services: dict[str, Series] = {}

    def settle(self, now_ms: int) -> None:
        """Count what has held since the last time."""
        ms = self._span.overlap(self._settled_ms, now_ms)
        self._settled_ms = max(self._settled_ms, now_ms)
        if not ms or not (self._said or self._lent):
            return
        sums = self._cells.at(self.usage.place).lending
        sums.said_ms += ms if self._said else 0
        lent = [sum(column) for column in zip(NOTHING, *self._lent.values(), strict=True)]
        _over_time(sums, ms, self._predicted, self._offered, lent)

    def enact(self, version: Version | None, now_ms: int) -> None:
        """The policy in force is another one, or the node is."""
        self.settle(now_ms)
        self._standing = self._policies.standing(version, self._inventory)
        labels = {} if self._inventory is None else self._inventory.labels
        place = Place(
            pool=labels.get(self._pool_label, ""),
            stage=self._standing.stage,
            policy="" if version is None else version.digest,
        )
        if place != self.usage.place or not self.history:
            self.usage.place = place
            self.history.append((now_ms, place))

    def close(self, now_ms: int) -> None:
        """The account ends."""
        self.settle(now_ms)
        self.usage.close(now_ms)

    def inventory(self, said: Inventory | None, at_ms: int) -> None:
        """What the machine is and who runs on it; None, or removed: it has left."""
        self.settle(at_ms)
        if said is None or said.removed:
            self._predicted = self._offered = NOTHING
            self._said = False
            self._lent.clear()
            self.usage.keep(set())
            return
        known = {fact.uid: fact for pods in self._sets.values() for fact in pods}
        pods = tuple(_same(known, fact) for fact in said.pods)
        _remember(self._sets, said.pods_rev, pods, SETS_KEPT)
        for fact in pods:
            _remember(self._workloads, fact.uid, fact.workload, UIDS_KEPT)
        self.usage.keep({fact.uid for kept in self._sets.values() for fact in kept})
        self.usage.capacity_milli = said.cpu_capacity_milli
        self._inventory = replace(said, pods=())
        self.enact(self._policies.at(at_ms), at_ms)

    def sample(self, said: PackedSample, at_ms: int) -> None:
        """What was measured."""
        self.usage.sample(said, at_ms, self._sets.get(said.pods_rev))

    def capacity(self, said: Capacity, at_ms: int) -> None:
        """What may be lent from now on."""
        self.settle(at_ms)
        self._said = True
        computed = (
            said.computed_cpu_milli, said.computed_memory_bytes, said.computed_mid_cpu_milli,
            said.computed_mid_memory_bytes,
        )  # fmt: skip
        self._predicted = _amounts(*computed)
        self._offered = _amounts(
            said.batch_cpu_milli, said.batch_memory_bytes, said.mid_cpu_milli,
            said.mid_memory_bytes,
        )  # fmt: skip

    def ledger(self, scheduler: str, said: LedgerEntry | None, at_ms: int) -> None:
        """What a scheduler has lent; None: it gives all back ("": every one does)."""
        self.settle(at_ms)
        if said is not None:
            self._lent[said.scheduler] = _amounts(
                said.cpu_milli, said.memory_bytes, said.mid_cpu_milli, said.mid_memory_bytes
            )
        elif scheduler:
            self._lent.pop(scheduler, None)
        else:
            self._lent.clear()

    def command(self, said: Command) -> None:
        """The bound that was said last, and why pods are to go."""
        if said.decider == "suppress":
            self.usage.command_milli = said.allow_milli
        elif said.decider in EVICTS:
            _remember(self._orders, said.id, said.reason, ORDERS_KEPT)

    def ack(self, said: Ack, at_ms: int) -> None:
        """Who is gone by the node's own word."""
        if said.decider in EVICTS and said.outcome in WENT and not said.dry_run:
            why = self._orders.get(said.command_id) or said.reason or said.outcome
            for uid in said.pods:
                self._gone(uid, f"{said.decider}: {why}", at_ms)

    def report(self, said: EvictionReport, at_ms: int) -> None:
        """Who is gone through the Eviction API."""
        if said.outcome == "evicted" and not said.dry_run:
            why = self._orders.get(said.command_id) or said.why or said.reason
            self._workloads.setdefault(said.pod, said.workload)
            self._gone(said.pod, f"{said.source}: {why}", at_ms)

    def sli(self, said: Sli, at_ms: int) -> None:
        """What a service says; a report is as old as the older of its end and its arrival."""
        at_ms = at_ms if said.end_ms < 0 else min(at_ms, said.end_ms)
        series = self._services.setdefault(said.workload, Series())
        objective = self._standing.objectives.get(said.workload)
        sums = self._cells.at(self.usage.place, said.workload).online
        online.note(series, said, at_ms, objective, sums, counts=self._span.holds(at_ms))

    def _gone(self, uid: str, why: str, at_ms: int) -> None:
        """Each pod once."""
        if uid in self._evicted:
            return
        self._evicted.add(uid)
        if self._span.holds(at_ms):
            workload = self._workloads.get(uid, "")
            self._cells.at(self.usage.place, workload).evictions.reasons[why] += 1


def _over_time(
    sums: Lending, ms: int, predicted: Amounts, offered: Amounts, lent: list[int]
) -> None:
    names = [(name, resource) for name in CLASSES for resource in RESOURCES]
    for (name, resource), plan, offer, out in zip(names, predicted, offered, lent, strict=True):
        line = sums.line(name, resource)
        line.predicted += plan * ms
        line.offered += offer * ms
        line.lent += out * ms


def _amounts(*values: int) -> Amounts:
    """Nothing below zero: what could not be lent was not predicted."""
    one, two, three, four = (max(value, 0) for value in values)
    return one, two, three, four


def _same(known: dict[str, PodFact], fact: PodFact) -> PodFact:
    """The fact that is held already, if it says the same."""
    held = known.get(fact.uid)
    return held if held == fact else fact


def _remember(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
