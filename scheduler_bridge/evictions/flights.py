"""Pods on their way to another node, and what that leaves for more. Pure.

Kept by `migrate`; after a restart, and in who stands by, learned from the bridge's own reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agents.placement import arbitration
from agents.placement.arbitration import Bounds, Flight, Workload
from scheduler_bridge.evictions.node import LiveNode
from scheduler_bridge.evictions.pod import LivePod
from schemas.records import EvictionReport

UNKNOWN = -1  # how many ready pods the workload had: its flight ends by time alone

MOVED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Since:
    flight: Flight
    asked_ms: int
    ready: int


class Flights:
    """Who is on his way, and how often each workload was asked of late."""

    def __init__(self) -> None:
        self._flights: dict[str, _Since] = {}
        self._moved: deque[tuple[int, str, str]] = deque()  # when, workload, uid
        self._uids: set[str] = set()

    @property
    def all(self) -> list[Flight]:
        return [each.flight for each in self._flights.values()]

    def begin(self, flight: Flight, now_ms: int, ready: int = UNKNOWN) -> None:
        """``ready``: pods of its workload that are ready before it goes."""
        self._flights.setdefault(flight.uid, _Since(flight, now_ms, ready))
        if flight.uid not in self._uids:
            self._uids.add(flight.uid)
            self._moved.append((now_ms, flight.workload, flight.uid))
        if len(self._moved) > MOVED_MAX:  # who stands by learns and never plans
            self._uids.discard(self._moved.popleft()[2])

    def drop(self, uid: str) -> None:
        """It does not go after all."""
        self._flights.pop(uid, None)

    def note(self, report: EvictionReport, log_ms: int) -> None:
        """What became of a pod that migration asked for."""
        if report.source != "low_node_load" or report.outcome == "waiting":
            return
        if report.outcome == "evicted" and not report.dry_run:
            self.begin(Flight(report.pod, report.node, report.namespace, report.workload), log_ms)
        else:
            self.drop(report.pod)

    def land(
        self, now_ms: int, ttl_ms: int, pause_ms: int, pods: Mapping[str, LivePod],
        ready: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Those end whose time is over, or whose pod is gone and whose workload is whole again."""
        for uid, each in list(self._flights.items()):
            late = now_ms - each.asked_ms >= ttl_ms
            whole = 0 <= each.ready <= ready.get(each.flight.workload, 0)
            if late or (uid not in pods and whole):
                del self._flights[uid]
        while self._moved and now_ms - self._moved[0][0] >= pause_ms:
            self._uids.discard(self._moved.popleft()[2])

    def moved(self, workload: str) -> int:
        """How many pods of it were asked to leave within the pause."""
        return sum(one == workload for _, one, _ in self._moved)


class Plan:
    """What is free on each node and who may leave, while one round takes pods; see `relief`."""

    def __init__(
        self,
        nodes: list[LiveNode],
        pods: Collection[LivePod],
        flights: Flights,
        bounds: Bounds,
        now_ms: int,
    ) -> None:
        self._nodes, self._bounds, self._now_ms = nodes, bounds, now_ms
        self._flights = flights
        self._pods = {pod.uid: pod for pod in pods}
        rows = {node.name: row for row, node in enumerate(nodes)}
        self._free = [dict(node.allocatable) for node in nodes]
        self._members: dict[str, list[LivePod]] = {}
        for pod in pods:
            if pod.over:
                continue
            row = rows.get(pod.node)
            if row is not None:
                self._book(pod, row)
            self._members.setdefault(pod.workload, []).append(pod)
        self.refused: dict[str, str] = {}
        self.taken: list[str] = []

    def ready(self) -> dict[str, int]:
        """Ready pods by workload."""
        return {
            workload: sum(pod.ready and pod.active for pod in pods)
            for workload, pods in self._members.items()
        }

    def may_leave(self, uid: str) -> bool:
        pod = self._pods[uid]
        reason = self._refusal(pod)
        if reason:
            self.refused[uid] = reason
        return not reason

    def fits(self, uid: str, row: int) -> bool:
        needs = self._pods[uid].needs
        free = self._free[row]
        return self._nodes[row].accepts(needs) and all(
            free.get(name, 0) >= amount for name, amount in {**needs.requests, "pods": 1}.items()
        )

    def take(self, uid: str, row: int) -> None:
        pod = self._pods[uid]
        self._book(pod, row)
        self.taken.append(uid)
        ready = sum(one.ready and one.active for one in self._members[pod.workload])
        self._flights.begin(_flight(pod), self._now_ms, ready)

    def _book(self, pod: LivePod, row: int) -> None:
        free = self._free[row]
        for name, amount in {**pod.needs.requests, "pods": 1}.items():
            free[name] = free.get(name, 0) - amount

    def _refusal(self, pod: LivePod) -> str:
        if pod.needs.tied:
            return "tied"  # only the scheduler can say where it would fit
        if not pod.maker or pod.maker_kind == "DaemonSet":
            return "no_maker"  # nobody makes it anew, or only on this node
        members = [one for one in self._members[pod.workload] if one.active]
        missing = {one.uid for one in members if not one.ready}
        known = Workload(len(members), missing, self._flights.moved(pod.workload))
        return arbitration.refusal(_flight(pod), self._flights.all, known, self._bounds)


def _flight(pod: LivePod) -> Flight:
    return Flight(pod.uid, pod.node, pod.namespace, pod.workload)
