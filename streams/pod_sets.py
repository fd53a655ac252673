"""Which pods a sample's columns are about: the pod sets of the inventory, by node and revision.

`streams.recording.tables.sampled` asks for the set of a sample, `streams.explain.past` for a pod
by its uid or name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Inventory, PodFact

if TYPE_CHECKING:
    from streams.recording.segment import Record

Known = tuple[int, Inventory]  # append time, facts
_AT = itemgetter(0)


class PodSets:
    """Inventories by node; `note` them in log order, then ask."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._by_rev: dict[tuple[str, int], list[Known]] = defaultdict(list)
        self._by_node: dict[str, list[Known]] = defaultdict(list)
        for record in records:
            self.note(record)

    def note(self, record: Record) -> None:
        """Take a record of topic `inventory` over; what cannot be read is passed over."""
        if record.value is None:
            return
        try:
            facts = codec.read("inventory", record.key, record.value, record.headers)
        except BadRecord:
            return
        self._by_rev[facts.node, facts.pods_rev].append((record.timestamp, facts))
        self._by_node[facts.node].append((record.timestamp, facts))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that said who it is, sorted."""
        return tuple(sorted(self._by_node))

    def of_revision(self, node: str, revision: int, log_ms: int) -> tuple[PodFact, ...] | None:
        """The pod set of that revision as it was said by ``log_ms``; None: never said."""
        known = _newest(self._by_rev.get((node, revision), []), log_ms)
        return None if known is None else known.pods

    def of_node(self, node: str, log_ms: int) -> Inventory | None:
        """The newest facts of a node by then, or its first ones; None: it never said any."""
        return _newest(self._by_node.get(node, []), log_ms)

    def find(self, uid: str, log_ms: int, node: str = "") -> tuple[str, PodFact] | None:
        """Node and facts of a pod by its uid, as they were known by then, else first or last.

        A set that no longer has it does not make it forgotten.
        """
        found: list[tuple[int, str, PodFact]] = []
        for name in [node] if node else self._by_node:
            for at_ms, facts in self._by_node.get(name, ()):
                found += [(at_ms, name, pod) for pod in facts.pods if pod.uid == uid]
        if not found:
            return None
        before = [each for each in found if each[0] <= log_ms]
        _, name, pod = max(before, key=_AT) if before else min(found, key=_AT)
        return name, pod

    def named(self, namespace: str, name: str) -> list[tuple[str, PodFact]]:
        """Every pod of that name, once a node and uid, in the order in which they were said.

        ``namespace`` "": of any.
        """
        found: dict[tuple[str, str], PodFact] = {}
        for node, known in self._by_node.items():
            for _, facts in known:
                for pod in facts.pods:
                    if pod.name == name and namespace in ("", pod.namespace):
                        found[node, pod.uid] = pod
        return [(node, pod) for (node, _), pod in found.items()]


def _newest(known: list[Known], log_ms: int) -> Inventory | None:
    """The newest by then, else the first."""
    if not known:
        return None
    return known[max(bisect_right(known, log_ms, key=_AT) - 1, 0)][1]
