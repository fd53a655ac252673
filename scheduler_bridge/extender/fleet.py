"""What the extender knows of all nodes, as columns: loads, offers, and the pods that stand on each.

`records` and the mirrors put in what they hear; `judge` takes out the rows of candidates. No I/O.
A node's load is worked out when something about it changed, not when it is asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from agents.placement import estimate, load
from agents.placement.borrowers import may_borrow
from agents.placement.load_filter import Thresholds
from agents.placement.reported import KINDS, WINDOW_MS, Pair, Report
from agents.table import ABSENT, Array, Bools, Field, Ints, Table
from scheduler_bridge.extender.nodes import NO_GROUP, NodeRow
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.reconcile import Amount
from schemas.policy import Policy

FIELDS = (
    Field("known"),
    Field("reported_ms", fill=ABSENT),
    Field("usage", shape=(2,), fill=ABSENT),
    Field("ranks", shape=(len(KINDS), 2), fill=ABSENT),
    Field("ill_ms", fill=ABSENT),  # when its online pods were last said to be ill
    Field("allocatable", shape=(2,)),
    Field("bounds", shape=(3, 2), fill=ABSENT),
    Field("pending", shape=(2,)),
    Field("full", shape=(2,)),
    Field("prod", shape=(2,)),
    Field("offered_ms", fill=ABSENT),
    Field("offered", shape=(4,)),
    Field("new_work"),
    Field("whitelist"),  # of the distinct ones
    Field("others", shape=(4,)),
    Field("taken", shape=(4,)),
)
NOBODY = 0
"""The row of every node that was never heard of."""
UNKNOWN: Pair = (ABSENT, ABSENT)
GROWTH = 256


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A pod on a node since log time ``since_ms``; ``seen``: the API server says so too."""

    pod: PodRow
    since_ms: int
    seen: bool


class Fleet:
    """Rows by node name; a row stays its node's while anything is known of it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._table = Table(FIELDS)
        self._table.grow(GROWTH)
        self._rows: dict[str, int] = {}
        self._pods: list[dict[str, Standing]] = [{}]
        self._shown: list[Mapping[str, Pair]] = [{}]
        self._whitelists: list[tuple[str, ...]] = [()]
        self._places: dict[str, int] = {}
        self._dirty: set[int] = set()
        self._free: list[int] = []
        self.eased = 0
        """How often so far there may have become more to lend somewhere."""

    @property
    def names(self) -> Iterable[str]:
        return self._rows.keys()

    def rows_of(self, names: Sequence[str]) -> Ints:
        """The row of each [n]; `NOBODY` where nothing is known."""
        get = self._rows.get
        return np.array([get(name, NOBODY) for name in names], dtype=np.int64)

    def take(self, column: str, rows: Ints) -> Array:
        return self._table.take(column, rows)

    def set_policy(self, policy: Policy) -> None:
        """Estimates of all pods follow it."""
        self.policy = policy
        self._dirty.update(range(1, len(self._pods)))

    def set_node(self, name: str, node: NodeRow | None) -> None:
        """What the node object says; None: it is gone."""
        row = self._row(name)
        self._table["allocatable"][row] = node.allocatable if node else (0, 0)
        self._table["bounds"][row] = node.bounds if node else (NO_GROUP,) * 3

    def set_report(self, name: str, report: Report) -> bool:
        """False: an older one came late."""
        row = self._row(name)
        if report.at_ms < self._table["reported_ms"][row]:
            return False
        self._table["known"][row] = 1
        self._table["reported_ms"][row] = report.at_ms
        self._table["usage"][row] = report.usage
        self._table["ranks"][row] = report.ranks
        self._shown[row] = report.pods
        self._dirty.add(row)
        return True

    def set_ill(self, name: str, ill_ms: int) -> None:
        """Log time at which its online pods were ill; ABSENT: they are not."""
        self._table["ill_ms"][self._row(name)] = ill_ms

    def set_offer(
        self, name: str, amount: Amount, new_work: bool, workloads: tuple[str, ...], at_ms: int
    ) -> None:
        """What may be lent in all; ``at_ms`` ABSENT: nothing is known any more."""
        row = self._row(name)
        self.eased += 1
        self._table["offered"][row] = amount.each()
        self._table["new_work"][row] = new_work
        self._table["offered_ms"][row] = at_ms
        if workloads not in self._whitelists:
            self._whitelists.append(workloads)
        self._table["whitelist"][row] = self._whitelists.index(workloads)

    def set_others(self, name: str, amount: Amount) -> None:
        """What other schedulers hold there."""
        self.eased += 1
        self._table["others"][self._row(name)] = amount.each()

    def stands(self, uid: str) -> tuple[str, Standing] | None:
        """The node and standing of a pod."""
        row = self._places.get(uid)
        if row is None:
            return None
        standing = self._pods[row][uid]
        return standing.pod.node, standing

    def put(self, pod: PodRow, since_ms: int, seen: bool) -> None:
        """A pod stands on its node; one that stood elsewhere has moved, and is nobody's ghost."""
        row = self._row(pod.node)
        before = self._places.get(pod.uid)
        if before == row:
            old = self._pods[row][pod.uid]
            # It came when it first stood here; the object's own times may lag behind that.
            since_ms, seen = old.since_ms, seen or old.seen
        if before is not None:
            self.drop(pod.uid)
        self._pods[row][pod.uid] = Standing(pod, since_ms, seen)
        self._places[pod.uid] = row
        self._table["taken"][row] += pod.borrows
        self._dirty.add(row)

    def drop(self, uid: str) -> None:
        """A pod stands nowhere any more; of one that stood nowhere nothing changes."""
        row = self._places.pop(uid, None)
        if row is None:
            return
        gone = self._pods[row].pop(uid)
        self._table["taken"][row] -= gone.pod.borrows
        self.eased += 1
        self._dirty.add(row)

    def listed(self, rows: Ints, workload: str) -> Bools:
        """Whether the whitelist of each node lets this workload borrow."""
        may = np.array([may_borrow(one, workload) for one in self._whitelists], dtype=bool)
        result: Bools = may[self._table.take("whitelist", rows)]
        return result

    def reports(self, rows: Ints) -> load.Reports:
        """The last reports; all are made once in a period that policy sets."""
        take = self._table.take
        return load.Reports(
            take("known", rows) > 0,
            take("reported_ms", rows),
            np.full(len(rows), self.policy.loop.report_ms),
            take("usage", rows),
        )

    def aggregates(self, rows: Ints) -> load.Aggregates:
        ranks = np.ascontiguousarray(self._table.take("ranks", rows).swapaxes(0, 1))
        return load.Aggregates(KINDS, (WINDOW_MS,) * len(KINDS), ranks)

    def loads(self, rows: Ints) -> load.Load:
        """What stands on each and is not yet in its report; `refresh` first."""
        take = self._table.take
        return load.Load(take("pending", rows), take("full", rows), take("prod", rows))

    def said_bounds(self, rows: Ints) -> Thresholds:
        said = self._table.take("bounds", rows)
        return Thresholds(said[:, 0], said[:, 1], said[:, 2])

    def ill(self, rows: Ints, now_ms: int, expire_after_ms: int) -> Bools:
        """Ill by a signal that is not too old to be believed; 0: none ever is."""
        at = self._table.take("ill_ms", rows)
        result: Bools = at >= 0
        if expire_after_ms > 0:
            result = result & (now_ms - at < expire_after_ms)
        return result

    def collect(self, there: Container[str], before_ms: int) -> None:
        """Forget nodes that are not ``there``, hold no pod and were last heard of ``before_ms``."""
        heard = np.maximum(self._table["reported_ms"], self._table["offered_ms"]).tolist()
        for name, row in list(self._rows.items()):
            if heard[row] >= before_ms or name in there or self._pods[row]:
                continue
            del self._rows[name]
            for field in FIELDS:
                self._table[field.name][row] = field.fill
            self._shown[row] = {}
            self._dirty.discard(row)
            self._free.append(row)

    def freshness(self, now_ms: int, expire_after_ms: int) -> tuple[int, int]:
        """Log time of the newest report (0 without any), and how many reported nodes are stale."""
        rows = np.arange(1, len(self._pods))
        reports = self.reports(rows)
        stale = load.stale(reports, now_ms, expire_after_ms) & reports.known
        newest = int(reports.reported_ms.max(initial=0))
        return newest, int(np.count_nonzero(stale))

    def refresh(self) -> int:
        """Work out the load of the nodes of which something changed; returns how many."""
        if not self._dirty:
            return 0
        rows = np.array(sorted(self._dirty), dtype=np.int64)
        self._dirty.clear()
        found = load.assigned_load(self.reports(rows), self._assigned(rows.tolist()))
        for name, values in (
            ("pending", found.pending),
            ("full", found.full),
            ("prod", found.prod),
        ):
            self._table.put(name, rows, values)
        return len(rows)

    def _assigned(self, rows: list[int]) -> load.AssignedPods:
        rule = self.policy.load_aware
        default = (rule.default_cpu_milli, rule.default_memory_bytes)
        said = [
            (
                i, *pod.asked, *pod.allowed, *estimate.fallback(pod.priority_class, default),
                *pod.factors, pod.priority_class == "prod", standing.since_ms, pod.initialized_ms,
                *self._shown[row].get(pod.uid, UNKNOWN),
            )
            for i, row in enumerate(rows)
            for standing in self._pods[row].values()
            for pod in (standing.pod,)
        ]  # fmt: skip
        columns = np.array(said, dtype=np.int64).reshape(-1, 14)
        factors = np.array((rule.cpu_factor_percent, rule.memory_factor_percent))
        own = columns[:, 7:9] if rule.pods_choose_factors else np.full((len(columns), 2), ABSENT)
        prod, usage = columns[:, 9] > 0, columns[:, 12:14]
        return load.AssignedPods(
            owner=columns[:, 0],
            estimate=estimate.estimate(
                columns[:, 1:3], columns[:, 3:5], columns[:, 5:7], estimate.overlay(factors, own)
            ),
            usage=usage,
            prod=prod,
            # Records name no classes: a pod is reported as what it is.
            reported_prod=prod & (usage >= 0).any(axis=1),
            assigned_ms=columns[:, 10],
            estimate_until_ms=estimate.estimate_until_ms(
                columns[:, 10], columns[:, 11], rule.estimate_after_assigned_ms,
                rule.estimate_after_initialized_ms,
            ),
        )  # fmt: skip

    def _row(self, name: str) -> int:
        row = self._rows.get(name)
        if row is None and self._free:
            row = self._rows[name] = self._free.pop()
        elif row is None:
            row = self._rows[name] = len(self._pods)
            if row >= self._table.size:
                self._table.grow(2 * self._table.size)
            self._pods.append({})
            self._shown.append({})
        return row
