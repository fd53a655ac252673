"""Kubernetes as a borrower of the ledger: pods as they are bound, nodes as the sink shows them.

Used by `scheduler_bridge.ledger.keeper`; the sink itself tells (`Keeper.desired`). A fall counts
once it is ``settle_ms`` old: a pod that the scheduler had placed before it heard is bound by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.ledger import third_party
from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.ledger.annotations import Notes, notes_of
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.bound_pods import BorrowingPod, Names, borrowing, held_by_node, waiting
from scheduler_bridge.ledger.shares import Seen, System
from scheduler_bridge.ledger.systems import Steady
from scheduler_bridge.reconcile import Amount, Observed

log = logging.getLogger("slackwater.bridge")
SILENT_S = 90.0  # a watch in good health has said something by then, be it a bookmark


class KubernetesSystem:
    """``shown``: what the sink sees on the nodes; ``ours``: names in the ledger that are no third
    party's although a node's annotation says them.
    """

    def __init__(
        self,
        kube: Kube,
        name: str,
        names: Names,
        shown: Callable[[], Mapping[str, Observed]],
        ours: Collection[str],
        *,
        weight: int = 1,
        settle_ms: int,
    ) -> None:
        self.system = System(name, weight)
        self._names = names
        self._shown = shown
        self._ours = {name, *ours}
        self._steady = Steady(settle_ms)
        self._pods: Mirror[BorrowingPod] = Mirror(kube, Pod, lambda pod: borrowing(pod, names))
        self.notes: Mirror[Notes] = Mirror(kube, Node, notes_of)
        self._by_node: dict[str, dict[str, BorrowingPod]] = defaultdict(dict)
        self._waiting: dict[str, BorrowingPod] = {}
        self._waits = NOTHING
        self._third: dict[str, frozenset[str]] = {}
        self._odd: dict[str, str] = {}
        self._pods.listen(self._changed)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(self._shown().keys() | self._by_node.keys() | self.notes.objects.keys())

    @property
    def sure(self) -> bool:
        return self.notes.synced and self._pods.age_s < SILENT_S

    def held_on(self, node: str) -> Mapping[str, Held]:
        if not self.sure:
            return {}
        found = {self.system.name: self._held(node)}
        notes = self.notes.objects.get(node)
        try:
            said = third_party.of_others(
                notes.allocations if notes is not None else "",
                self._ours,
                self._names[0],
                self._names[1],
            )
        except ValueError as error:
            if self._odd.get(node) != str(error):
                log.warning("node %s: %s; what it said before stands", node, error)
            self._odd[node] = str(error)
            return found
        self._odd.pop(node, None)
        gone = self._third.get(node, frozenset()) - said.keys()
        self._third[node] = frozenset(said)
        found.update({name: Held(NOTHING) for name in gone})
        found.update({name: Held(amount) for name, amount in said.items()})
        return found

    def seen(self, node: str, mono_ms: int) -> Seen:
        observed = self._shown().get(node)
        shows = observed.amount if observed is not None else NOTHING
        settled = self._steady.settled(node, shows, mono_ms)
        return Seen(
            shows, self._held(node).amount, self._waits, settled, self.sure,
            here=node in self.notes.objects,
        )  # fmt: skip

    def wants(self, node: str, amount: Amount) -> None:
        """Nothing to do: the sink follows `Keeper.desired`."""

    async def run(self) -> None:
        """Keep the mirrors fresh until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self.notes.run())

    def _held(self, node: str) -> Held:
        pods = self._by_node.get(node)
        return held_by_node(pods.values()).get(node, Held(NOTHING)) if pods else Held(NOTHING)

    def _changed(self, key: str, before: BorrowingPod | None, after: BorrowingPod | None) -> None:
        if before is not None:
            self._waiting.pop(key, None)
            pods = self._by_node[before.node]
            pods.pop(key, None)
            if not pods:
                del self._by_node[before.node]
        if after is not None:
            (self._by_node[after.node] if after.node else self._waiting)[key] = after
        self._waits = waiting(self._waiting.values())
