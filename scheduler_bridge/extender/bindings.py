"""Bind-time reservation: a slice is taken in memory before the API server is asked to bind.

Called by `service` for `/bind`. One pod's binding runs once however often it is asked for; two pods
cannot both take the last slice, because it is looked at and taken between two awaits. What failed
gives back; of what is not known to have failed the slice stays taken until the pod was looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from agents.placement import borrow_filter
from scheduler_bridge.extender import judge
from scheduler_bridge.extender.fleet import Fleet
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.wire import Binding
from scheduler_bridge.kube.errors import KubeError, KubeRefused


class Api(Protocol):
    """What of the API server is needed here."""

    async def bind(self, asked: Binding) -> None:
        """Raises KubeError."""

    async def pod(self, namespace: str, name: str) -> PodRow | None:
        """As it is now; None: there is no such pod. Raises KubeError."""


class Bindings:
    """``pods`` is the mirror, by namespace/name; ``now_ms`` is log time."""

    def __init__(
        self,
        fleet: Fleet,
        pods: Mapping[str, PodRow],
        api: Api,
        now_ms: Callable[[], int],
        stale_capacity_ms: int,
        unsure_ms: int,
    ) -> None:
        self._fleet = fleet
        self._pods = pods
        self._api = api
        self._now_ms = now_ms
        self._stale_capacity_ms = stale_capacity_ms
        self._unsure_ms = unsure_ms
        self._under_way: dict[str, tuple[str, asyncio.Task[str]]] = {}
        self._unsure: dict[str, tuple[Binding, int]] = {}

    @property
    def unsure(self) -> int:
        """Slices taken for pods that were not yet seen where they were bound to."""
        return len(self._unsure)

    async def bind(self, asked: Binding) -> str:
        """Why it is not bound; "" when it is. Goes on when whoever asked has gone."""
        node, task = self._under_way.get(asked.uid, (asked.node, None))
        if node != asked.node:
            return f"the pod is being bound to {node} just now; ask again"
        if task is None:
            task = asyncio.create_task(self._decide(asked), name=f"bind {asked.uid}")
            self._under_way[asked.uid] = (asked.node, task)
            task.add_done_callback(lambda _: self._under_way.pop(asked.uid, None))
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for the bindings under way, before an end."""
        tasks = [task for _, task in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks)

    async def sweep(self) -> None:
        """Look at pods whose binding was not seen for long, and give back what is not held."""
        now_ms = self._now_ms()
        for uid, (asked, until_ms) in list(self._unsure.items()):
            stands = self._fleet.stands(uid)
            if stands is None or stands[1].seen:
                del self._unsure[uid]
            elif now_ms >= until_ms and uid not in self._under_way:
                try:
                    await self._look(asked)
                except KubeError:
                    continue  # nobody knows yet: it stays taken

    async def _decide(self, asked: Binding) -> str:
        try:
            pod = self._pods.get(f"{asked.namespace}/{asked.name}")
            if pod is None or pod.uid != asked.uid:
                pod = await self._api.pod(asked.namespace, asked.name)
        except KubeError as error:
            return str(error)
        if pod is None or pod.uid != asked.uid:
            return "there is no such pod any more"
        if pod.node:
            return "" if pod.node == asked.node else f"the pod is bound to {pod.node} already"
        refused = self._reserve(pod, asked)
        if refused:
            return refused
        try:
            await self._api.bind(asked)
        except KubeError as error:
            return await self._after(asked, error)
        return ""

    def _reserve(self, pod: PodRow, asked: Binding) -> str:
        """Take the slice, or say why not. No await here: nobody comes between look and take."""
        now_ms = self._now_ms()
        stands = self._fleet.stands(pod.uid)
        if stands is not None and stands[0] != asked.node:
            return f"an earlier binding to {stands[0]} is not decided yet; ask again"
        if stands is None:
            row = self._fleet.rows_of([asked.node])
            reason = int(judge.by_offer(self._fleet, row, pod, now_ms, self._stale_capacity_ms)[0])
            if reason >= borrow_filter.NOTHING_KNOWN:
                return f"{asked.node} is one of the {judge.BORROW_WORDS[reason]}"
            self._fleet.put(msgspec.structs.replace(pod, node=asked.node), now_ms, seen=False)
        self._unsure[pod.uid] = (asked, now_ms + self._unsure_ms)
        return ""

    async def _after(self, asked: Binding, error: KubeError) -> str:
        """What a failure means: only the pod itself tells whether the binding took effect."""
        try:
            node = await self._look(asked, give_back=isinstance(error, KubeRefused))
        except KubeError:
            return f"{error}; whether it took effect is not known, ask again"
        if node == asked.node:
            return ""
        return f"the pod is bound to {node} already" if node else str(error)

    async def _look(self, asked: Binding, *, give_back: bool = True) -> str:
        """The node that the pod is bound to, "" for none; the fleet follows. Raises KubeError."""
        pod = await self._api.pod(asked.namespace, asked.name)
        gone = pod is None or pod.uid != asked.uid
        if pod is not None and not gone and pod.holds:
            self._fleet.put(pod, self._now_ms(), seen=True)
            self._unsure.pop(asked.uid, None)
            return pod.node
        if gone or give_back:
            self._fleet.drop(asked.uid)
            self._unsure.pop(asked.uid, None)
        return ""
