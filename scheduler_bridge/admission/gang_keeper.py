"""Lets gangs go, all members at once, and rejects those that waited too long. Run by `service`.

Only the leader of the Lease acts. A webhook sees one pod at a time, so it gates each; here all are
seen. What was let go counts as going until the mirror shows it; a keeper that dies half-way leaves
the rest to the next one, for which the members that are free already have their places booked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from scheduler_bridge.admission import gang
from scheduler_bridge.admission.cluster import Cluster, KeptPod
from scheduler_bridge.admission.gang import Decision, Member
from scheduler_bridge.admission.names import GANG_GATE
from scheduler_bridge.admission.room import NodeView, Room
from scheduler_bridge.admission.rules import Gangs
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError, translated
from scheduler_bridge.metrics import Metrics

log = logging.getLogger("slackwater.admission")
TURN_S = 0.25
REST = 4
"""So many times as long as a turn took it rests after it."""
SHOWN_MS = 10_000
"""The mirror shows a gate that was taken away long before; then it is looked at again."""
REJECTED = "GangTimeout"


class GangKeeper:
    """``leads`` is asked before each write; ``rules`` gives those of now."""

    def __init__(
        self,
        kube: Kube,
        cluster: Cluster,
        metrics: Metrics,
        leads: Callable[[], bool],
        rules: Callable[[], Gangs],
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._kube = kube
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._rules = rules
        self._clock = clock
        self._seen_ms: dict[str, int] = {}
        self._let_go: dict[str, int] = {}
        self.decided: list[Decision] = []
        """The answers of the last turn that had any to give."""

    async def run(self) -> None:
        """Turn after turn, until cancelled; no failure of the API server ends it."""
        while True:
            began_s = time.monotonic()
            if self._leads() and self._cluster.fresh:
                await self.turn()
            # Of a large cluster's deciding the webhook's answers must not notice much.
            await asyncio.sleep(max(TURN_S, REST * (time.monotonic() - began_s)))

    async def turn(self) -> None:
        """Decide on all gangs that wait, and do it."""
        members = list(self._members())
        self._metrics.set("admission_gangs_waiting", 0)
        if all(one.state != "waiting" for one in members):
            return
        pods = list(self._cluster.pods.objects.values())
        nodes = list(self._cluster.nodes.objects.values())
        self.decided = await asyncio.to_thread(self._decide, members, pods, nodes)
        self._metrics.set("admission_gangs_waiting", len(self.decided))
        for decision in self.decided:
            if decision.act == "release":
                await self._release(decision)
            elif decision.act == "reject":
                await self._reject(decision)

    def _decide(
        self, members: list[Member], pods: list[KeptPod], nodes: list[NodeView]
    ) -> list[Decision]:
        """Where gangs are switched off, nobody is left behind a gate."""
        rules = self._rules()
        if not rules.enabled:
            return gang.let_all_go(members)
        return gang.decide(members, self._room(pods, nodes), self._clock(), rules.wait_s)

    def _members(self) -> Iterator[Member]:
        """Members of gangs that are neither over nor on their way out."""
        now_ms = self._clock()
        self._let_go = {uid: until for uid, until in self._let_go.items() if until > now_ms}
        seen: dict[str, int] = {}
        for kept in self._cluster.pods.objects.values():
            member = self._member(kept, now_ms)
            if member is not None:
                seen[member.uid] = member.seen_ms
                yield member
        self._seen_ms = seen

    def _member(self, kept: KeptPod, now_ms: int) -> Member | None:
        view = kept.view
        if view.over or view.going:
            return None
        try:
            said = gang.membership(view.labels, view.annotations)
        except ValueError:
            return None
        if said is None:
            return None
        state = gang.gated(view.gates)
        if view.uid in self._let_go:
            state = "released"
        return Member(
            view.uid,
            view.namespace,
            view.name,
            said,
            kept.wants,
            "bound" if view.node else state,
            self._seen_ms.get(view.uid, now_ms),
        )

    def _room(self, pods: list[KeptPod], nodes: list[NodeView]) -> Room:
        """What is left beside pods that have a node, and those that may be given one any moment."""
        room = Room(nodes)
        loose = []
        for kept in pods:
            if kept.view.over:
                continue
            if kept.view.node:
                room.put(kept.view.node, kept.wants.amounts)
            elif not kept.view.gates or kept.view.uid in self._let_go:
                loose.append((kept.view.created, kept.view.uid, kept.wants))
        room.take_what_fits(wants for *_, wants in sorted(loose, key=lambda one: one[:2]))
        return room

    async def _release(self, decision: Decision) -> None:
        if not self._leads():
            return
        results = await asyncio.gather(*(self._open(one) for one in decision.members))
        log.info("gang %s/%s: %s; %d of %d let go", *decision.gang, decision.why, sum(results),
                 len(results))  # fmt: skip
        self._metrics.count("admission_gangs", "release")

    async def _open(self, member: Member) -> bool:
        """Take our gate away, if it is this pod and no other gate has come."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": member.uid},
            {"op": "test", "path": "/spec/schedulingGates", "value": [{"name": GANG_GATE}]},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]
        try:
            with translated(f"let pod {member.namespace}/{member.name} go"):
                await self._kube.api.patch(
                    Pod,
                    member.name,
                    patch,
                    namespace=member.namespace,
                    patch_type=PatchType.JSON,
                )
        except KubeError as error:
            self._failed(error)
            return False
        self._let_go[member.uid] = self._clock() + SHOWN_MS
        return True

    async def _reject(self, decision: Decision) -> None:
        """As a kubelet rejects a pod that it cannot run: failed, and whoever made it sees why."""
        log.warning("gang %s/%s is rejected: %s", *decision.gang, decision.why)
        self._metrics.count("admission_gangs", "reject")
        status = {"phase": "Failed", "reason": REJECTED, "message": decision.why}
        for member in decision.members:
            if not self._leads():
                return
            about = {"uid": member.uid}
            try:
                with translated(f"reject pod {member.namespace}/{member.name}"):
                    await self._kube.api.patch(
                        Pod.Status,
                        member.name,
                        {"metadata": about, "status": status},
                        namespace=member.namespace,
                    )
            except KubeError as error:
                self._failed(error)

    def _failed(self, error: KubeError) -> None:
        self._metrics.count("admission_keeper_errors")
        log.warning("%s; trying again", error)
