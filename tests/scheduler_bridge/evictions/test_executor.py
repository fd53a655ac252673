"""Turns over the queue, with answers that no API server here can be made to give.

All else of the executor is tested on the real one: `tests/kube/test_evictor.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents.classes import classify
from scheduler_bridge.evictions.api import Answer
from scheduler_bridge.evictions.budget import Budget, Limits
from scheduler_bridge.evictions.executor import Executor
from scheduler_bridge.evictions.pod import LivePod
from scheduler_bridge.evictions.queue import Queue
from scheduler_bridge.evictions.victim import Victim
from scheduler_bridge.kube.errors import KubeUnreachable
from schemas.records import EvictionReport
from tests.scheduler_bridge.evictions.said import NODE, ack, command


class Scripted:
    """An API server that knows pods and says what it is told to say."""

    def __init__(self, *uids: str) -> None:
        said = classify("BE", None, None, "Burstable")
        self.pods = {
            uid: LivePod(uid, "batch", uid, NODE, said, True, None, f"batch/{uid}") for uid in uids
        }
        self.answer = Answer("evicted")
        self.away = False
        self.called: list[tuple[str, str]] = []

    async def look(self, namespace: str, name: str) -> LivePod | None:
        del namespace
        self.called.append(("look", name))
        if self.away:
            raise KubeUnreachable("no answer")
        return self.pods.get(name)

    async def evict(self, pod: Victim, *, dry_run: bool) -> Answer:
        del dry_run
        self.called.append(("evict", pod.name))
        return self.answer

    async def delete(self, pod: Victim, *, dry_run: bool) -> Answer:
        del dry_run
        self.called.append(("delete", pod.name))
        return Answer("evicted", "deleted")


class Table:
    """An executor with its queue, and what it said."""

    def __init__(self, api: Scripted, **more: Any) -> None:
        self.said: list[EvictionReport] = []
        self.now_ms = 0
        self.leads = True
        given: dict[str, Any] = {"here": lambda _: True, "may_delete": lambda _: False, **more}
        limits = Limits(per_node=100, node_rest_ms=0)
        self.queue = Queue()
        self.executor = Executor(
            self.queue, Budget(limits), api, api.pods, self.said.append, lambda: self.leads,
            given["here"], given["may_delete"], per_s=1000,
        )  # fmt: skip
        for number, uid in enumerate(sorted(api.pods)):
            self.queue.fold_command(command(number, uid), 0)
            self.queue.fold_ack(ack(number, uid), 0)

    async def turn(self, at_ms: int = 0) -> list[tuple[str, str, str]]:
        """What is said in one turn: pod, outcome, reason."""
        self.said.clear()
        self.now_ms = at_ms
        await self.executor.turn(lambda: self.now_ms)
        return [(one.pod, one.outcome, one.reason) for one in self.said]


async def test_without_an_eviction_api_nobody_goes_unless_policy_lets_delete() -> None:
    api = Scripted("a")
    api.answer = Answer("unserved")
    assert await Table(api).turn() == [("a", "refused", "no_eviction_api")]
    table = Table(api, may_delete=lambda node: node == NODE)
    assert await table.turn() == [("a", "evicted", "deleted")]


async def test_a_budgets_no_is_never_passed_over_by_deleting() -> None:
    api = Scripted("a")
    api.answer = Answer("wait", "disruption_budget", 2_000)
    table = Table(api, may_delete=lambda _: True)
    assert await table.turn() == [("a", "waiting", "disruption_budget")]
    for at_ms in (1_999, 2_000, 4_000):
        assert await table.turn(at_ms) == [], "the same is not said again"
    assert api.called.count(("evict", "a")) == 3
    assert await table.turn(60_000) == [("a", "expired", "disruption_budget")]
    assert ("delete", "a") not in api.called
    assert await table.turn(61_000) == []


async def test_an_api_server_that_is_away_is_asked_by_one_not_by_all() -> None:
    api = Scripted("a", "b", "c")
    api.away = True
    table = Table(api)
    assert await table.turn() == [("a", "waiting", "api_away")]
    assert await table.turn(999) == []
    assert api.called == [("look", "a")]
    api.away = False
    assert [one[:2] for one in await table.turn(1_000)] == [
        ("a", "evicted"), ("b", "evicted"), ("c", "evicted"),
    ]  # fmt: skip


async def test_who_leads_no_longer_asks_no_longer() -> None:
    api = Scripted("a", "b")
    table = Table(api)
    table.leads = False
    assert await table.turn() == []
    assert api.called == []


async def test_nothing_is_said_of_nodes_of_another_cluster() -> None:
    api = Scripted("a")
    table = Table(api, here=lambda _: False)
    assert await table.turn() == []
    assert await table.turn(60_000) == []
    assert not table.queue.pending
    assert api.called == []


async def test_a_pod_that_became_another_or_ended_is_gone() -> None:
    api = Scripted("a", "b", "c")
    table = Table(api)
    mirror = dict(api.pods)
    api.pods["a"] = replace(mirror["a"], uid="new")
    api.pods["b"] = replace(mirror["b"], terminating=True)
    api.pods["c"] = replace(mirror["c"], over=True)
    assert await table.turn() == [
        ("a", "gone", "no_such_pod"), ("b", "gone", "going"), ("c", "gone", "over"),
    ]  # fmt: skip
    assert not [one for one in api.called if one[0] == "evict"]
