"""A machine of the test cluster: its node object is real, its pods are what the scheduler binds.

The node agent's real parts run on the fake kernel of `tests.sim`; but the log is a real Kafka, the
clock the real one, and pods come from the API server, read as the agent reads a kubelet's list.
What a kubelet says of pods is said too: they run, and once deleted they end and their objects go.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import ConsumerRecord
from lightkube import ApiError
from lightkube.resources.core_v1 import Pod

from node_agent.inbox import Deliver, Reader
from node_agent.kubelet import facts
from node_agent.kubelet.facts import KubePod
from node_agent.outbox import Outbox
from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.mirror import Mirror
from schemas.records import Ack, Command, PodFact
from schemas.topics import full_name
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.sim.broker import Broker
from tests.sim.kernel import FakePod, Kernel
from tests.sim.node import Agent, SimNode

QUANTUM_MS = 50
AT_ONCE = 1024
POD_BYTES = 256 << 20
HISTORY_MS = 60_000


@dataclass(slots=True)
class ApiPod(FakePod):
    """A pod of the API server, with what the agent reads of it."""

    said: PodFact = field(kw_only=True)

    def fact(self) -> PodFact:
        return self.said


class Watcher:
    """Keeps what a node hears, answers and kills."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.acks: list[tuple[float, Ack]] = []  # with the monotonic second
        self.killed_uids: list[str] = []

    def started(self, _node: SimNode) -> None:
        """Nothing of it is kept."""

    def heard(self, _node: SimNode, command: Command) -> None:
        self.commands.append(command)

    def renewed(self, _node: SimNode, _lease: object) -> None:
        """Nothing of it is kept."""

    def acked(self, _node: SimNode, ack: Ack) -> None:
        self.acks.append((time.monotonic(), ack))

    def killed(self, _node: SimNode, uid: str, _was_there: bool) -> None:
        self.killed_uids.append(uid)

    def quota(self) -> None:
        """Nothing of it is kept."""


class VirtualNode(SimNode):
    """`running` makes one. `use` sets what its online pods want, together."""

    watcher: Watcher
    outbox: Outbox
    prefix: str
    sampled_s: float = 0.0

    @classmethod
    def of(
        cls, name: str, brokers: str, prefix: str, folder: Path, cpu_milli: int, memory_bytes: int
    ) -> VirtualNode:
        """A machine that has just started, with an agent on it."""
        dice, watcher = Random(name), Watcher()
        kernel = Kernel(name, cpu_milli, memory_bytes, dice)
        kernel.boot()
        kernel.mono_us = time.monotonic_ns() // 1000
        clock = Broker()  # of the simulation's log nothing but its time is used
        clock.now_ms = time.time_ns() // 1_000_000
        phase_ms = clock.now_ms % QUANTUM_MS
        node = cls(kernel, clock, 0, watcher, dice, folder, on_the_spot, phase_ms)
        node.watcher, node.prefix = watcher, prefix
        node.start()
        assert node.agent is not None
        node.outbox = Outbox(
            brokers,
            f"node-{name}",
            lambda: kernel.mono_us,
            node.agent.obey.lease.clock.acknowledged,
        )
        node._records = deque()
        node._sampled = asyncio.Event()
        return node

    _records: deque[tuple[bool, ConsumerRecord]]
    _sampled: asyncio.Event

    async def next_sample(self) -> float:
        """Wait for it; the monotonic second at which it was taken."""
        await self._sampled.wait()
        return self.sampled_s

    async def use(self, online_milli: int) -> float:
        """From the next sample on; when the first one was taken that shows nothing else."""
        await self.next_sample()
        online = list(self.kernel.of("online"))
        assert online, f"{self.name} has no online pod"
        for pod in online:
            pod.want_milli = online_milli // len(online)
        return await self.next_sample()

    def acked(self, decider: str, outcome: str, since_s: float) -> list[tuple[float, Ack]]:
        """Answers of this kind since then, each with its monotonic second."""
        return [
            (at_s, ack)
            for at_s, ack in self.watcher.acks
            if at_s >= since_s and (ack.decider, ack.outcome) == (decider, outcome)
        ]

    def have(self, pods: tuple[KubePod, ...]) -> None:
        """These pods run here, and no others."""
        here = {pod.fact.uid: pod.fact for pod in pods if not pod.over}
        for uid in self.kernel.pods.keys() - here.keys():
            del self.kernel.pods[uid]
        for uid, fact in here.items():
            known = self.kernel.pods.get(uid)
            if isinstance(known, ApiPod):
                known.said = fact
                continue
            asked = fact.cpu_request_milli
            if fact.qos == "BE":  # takes what it may; who is online wants what the test says
                pod = ApiPod(uid, "best_effort", asked, POD_BYTES, asked, said=fact)
            else:
                pod = ApiPod(uid, "online", 0, POD_BYTES, asked, said=fact)
            self.kernel.pods[uid] = pod

    async def live(self) -> None:
        """Let time pass, as it does, until cancelled."""
        clock = asyncio.get_running_loop()
        due = clock.time()
        while True:
            self.broker.now_ms += QUANTUM_MS
            self.advance(QUANTUM_MS)
            due += QUANTUM_MS / 1000
            await asyncio.sleep(max(0.0, due - clock.time()))

    async def hear_command(self, record: ConsumerRecord) -> None:
        self._records.append((True, record))

    async def hear_policy(self, record: ConsumerRecord) -> None:
        self._records.append((False, record))

    def _beat(self, agent: Agent) -> None:
        self.sampled_s = time.monotonic()
        super()._beat(agent)
        before, self._sampled = self._sampled, asyncio.Event()
        before.set()

    def _hear(self, agent: Agent) -> None:
        while self._records:
            is_command, record = self._records.popleft()
            self._guarded(self._on_command if is_command else self._on_policy, agent, record)

    def _send(self, agent: Agent) -> None:
        for parcel in agent.spool.take(AT_ONCE):
            self.outbox.put(replace(parcel, topic=full_name(self.prefix, parcel.topic)))


class Kubelet:
    """What the kubelet of one node does with pods, by that node's own rights."""

    def __init__(self, cluster: Cluster, node: VirtualNode) -> None:
        self._node = node
        who = f"system:node:{node.name}", "system:nodes"
        self._kube = connect(cluster.kubeconfig(*who))
        self._client = cluster.client(*who)
        self._here = {"fieldSelector": f"spec.nodeName={node.name}"}
        self._mirror: Mirror[str] = Mirror(
            self._kube,
            Pod,
            lambda pod: pod.metadata.resourceVersion,
            fields=self._here["fieldSelector"],
        )
        self._news = asyncio.Event()
        self._mirror.listen(lambda *_: self._news.set())

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._mirror.run())
                group.create_task(self._follow())
        finally:
            await self._client.close()
            await self._kube.close()

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            answer = facts.read(await self._kube.get("/api/v1/pods", self._here))
            self._node.have(answer.pods)
            for pod in answer.pods:
                await self._say(pod)

    async def _say(self, pod: KubePod) -> None:
        """A pod that was deleted has ended; one that has just come runs."""
        name, namespace = pod.fact.name, pod.fact.namespace
        try:
            found = await self._client.get(Pod, name, namespace=namespace)
            if pod.fact.terminating:
                await objects.bury_pod(self._client, found)
            elif found.status is not None and found.status.phase == "Pending":
                await objects.run_pod(self._client, found)
        except ApiError as error:
            if error.status.code != 404:  # it went meanwhile
                raise


def on_the_spot(coroutine: Coroutine[Any, Any, list[Ack]]) -> list[Ack]:
    """Nothing that the hands do here waits: nobody is killed."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return list(done.value)
    coroutine.close()
    raise AssertionError("the node set about killing a pod")


@asynccontextmanager
async def running(
    cluster: Cluster,
    brokers: str,
    prefix: str,
    name: str,
    folder: Path,
    cpu_milli: int = 16_000,
    memory_bytes: int = 64 << 30,
) -> AsyncIterator[VirtualNode]:
    """The machine behind the node object ``name``: it samples, obeys, and runs what is bound."""
    node = VirtualNode.of(name, brokers, prefix, folder, cpu_milli, memory_bytes)

    def reader(topic: str, deliver: Deliver, own: str | None, history_ms: int | None) -> Reader:
        full = full_name(prefix, topic)
        return Reader(brokers, f"node-{name}", full, deliver, node=own, history_ms=history_ms)

    parts = (
        node.live(),
        node.outbox.run(),
        reader("commands", node.hear_command, name, HISTORY_MS).run(),
        reader("policies", node.hear_policy, None, None).run(),
        Kubelet(cluster, node).run(),
    )
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield node
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        node.crash()
