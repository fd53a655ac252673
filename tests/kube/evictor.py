"""The evictor as tests run it: its topics, what is said on them, itself in process or apart."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.rbac_authorization_v1 import (
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
)

from scheduler_bridge.evictions.loop import Evictor
from scheduler_bridge.evictions.settings import EvictorSettings
from schemas import codec
from schemas.records import (
    FLEET_KEY,
    Ack,
    Cause,
    Command,
    DeadLetter,
    Decider,
    EvictionReport,
    FleetFacts,
    PolicyRecord,
    Reservation,
)
from tests.kube.cluster import Cluster
from tests.kube.manifests import BASE
from tests.support import patient

PARTITIONS = 2
RBAC = "rbac.authorization.k8s.io"
TOPICS = ("commands", "acks", "evictions", "policies", "fleet", "reservations")


class Log:
    """The topics of one installation: orders and hand-overs go in, reports come out."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self.reports: list[EvictionReport] = []
        self.letters: list[DeadLetter] = []
        self._number = 0
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._consumer: Any = None

    async def __aenter__(self) -> Self:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        stamped = {"message.timestamp.type": "LogAppendTime"}
        names = {**dict.fromkeys(TOPICS, PARTITIONS), "dead-letters": 1}
        try:
            await admin.create_topics(
                [
                    NewTopic(self.prefix + name, parts, 1, topic_configs=stamped)
                    for name, parts in names.items()
                ]
            )
        finally:
            await admin.close()
        await self._producer.start()
        self._consumer = AIOKafkaConsumer(
            self.prefix + "evictions",
            self.prefix + "dead-letters",
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()
        await self._consumer.stop()

    async def raw(self, topic: str, node: str, value: bytes) -> None:
        await self._producer.send_and_wait(
            self.prefix + topic, value, key=node.encode(), headers=codec.JSON_HEADERS
        )

    async def hand_over(self, node: str, *uids: str, decider: Decider = "evict_cpu") -> str:
        """A worker's order and the node's hand-over; the id of the order."""
        self._number += 1
        cause = Cause(1, 0, self._number, self._number, "abc", 1)
        order = Command(f"c{self._number}", node, decider, cause, 1 << 60, "cpu_starved", pods=uids)
        await self.raw("commands", node, codec.encode(order))
        await self.ack(node, order.id, *uids, decider=decider)
        return order.id

    async def ack(
        self, node: str, command_id: str, *uids: str, outcome: Any = "handed_over",
        decider: Decider = "evict_cpu",
    ) -> None:  # fmt: skip
        said = Ack(node, "ab" * 16, 1, 0, decider, outcome, command_id, 1, self._number, pods=uids)
        await self.raw("acks", node, codec.encode(said))

    async def policy(self, version: int, text: str) -> None:
        """Publish a policy."""
        record = PolicyRecord("default", version, f"d{version}", text)
        await self.raw("policies", "default", codec.encode(record))

    async def fleet_is_well(self) -> None:
        """What the second stage says of a healthy fleet."""
        facts = FleetFacts(1, 1, 2, 0, 0, 0, 1, 10_000)
        await self.raw("fleet", FLEET_KEY.decode(), codec.encode(facts))

    async def usage(self, node: str, system_milli: int, milli: Mapping[str, int]) -> None:
        """A node's report: what system and pods use."""
        said = Reservation(
            node,
            Cause(1, 0, 1, 1, "abc", 1),
            0,
            {},
            {},
            system_cpu_milli=system_milli,
            pods=tuple(milli),
            pod_cpu_milli={"usage": list(milli.values())},
            pod_memory_bytes={"usage": [1 << 20] * len(milli)},
        )
        await self.raw("reservations", node, codec.encode(said))

    async def says(self, outcome: str, uid: str, within_s: float = 15.0) -> EvictionReport:
        """The first report of this outcome about a pod."""
        found: list[EvictionReport] = []

        def said() -> bool:
            found[:] = [
                each for each in self.reports if each.pod == uid and each.outcome == outcome
            ]
            return bool(found)

        await self.until(said, f"{outcome} of {uid}", within_s)
        return found[0]

    def of(self, uid: str) -> list[tuple[str, str]]:
        """Everything said so far of a pod."""
        return [(each.outcome, each.reason) for each in self.reports if each.pod == uid]

    async def until(self, true: Callable[[], bool], what: str, within_s: float = 15.0) -> None:
        """Read on until it is so."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patient(within_s)
        while not true():
            assert loop.time() < end, f"not within {within_s} s: {what}; said: {self.reports}"
            for tp, records in (await self._consumer.getmany(timeout_ms=50)).items():
                for record in records:
                    if tp.topic.endswith("dead-letters"):
                        self.letters.append(codec.decode(DeadLetter, record.value))
                    else:
                        self.reports.append(codec.decode(EvictionReport, record.value))


def shipped_rules(kind: str, component: str = "evictor") -> list[PolicyRule]:
    """What the manifests let a component do, of one kind of role."""
    objects = list(yaml.safe_load_all((BASE / f"{component}.yaml").read_text()))
    (role,) = [one for one in objects if one["kind"] == kind]
    return [PolicyRule(**rule) for rule in role["rules"]]


@asynccontextmanager
async def shipped_rights(
    cluster: Cluster, client: AsyncClient, namespace: str, component: str = "evictor"
) -> AsyncIterator[Path]:
    """A kubeconfig of somebody who has a component's shipped rights, and no other."""
    group = f"{component}-{namespace}"
    who = Subject(kind="Group", name=group, apiGroup=RBAC)
    meta = ObjectMeta(name=group)
    here = ObjectMeta(name=group, namespace=namespace)
    await client.create(ClusterRole(metadata=meta, rules=shipped_rules("ClusterRole", component)))
    await client.create(Role(metadata=here, rules=shipped_rules("Role", component)))
    whole = RoleRef(apiGroup=RBAC, kind="ClusterRole", name=group)
    await client.create(ClusterRoleBinding(metadata=meta, roleRef=whole, subjects=[who]))
    own = RoleRef(apiGroup=RBAC, kind="Role", name=group)
    await client.create(RoleBinding(metadata=here, roleRef=own, subjects=[who]))
    try:
        yield cluster.kubeconfig(component, group)
    finally:
        await client.delete(ClusterRoleBinding, group)
        await client.delete(ClusterRole, group)


@asynccontextmanager
async def running(
    cluster: Cluster, log: Log, namespace: str, kubeconfig: Path | None = None, **more: Any
) -> AsyncIterator[Evictor]:
    """An evictor in this process, with its Lease in the test's namespace."""
    settings = EvictorSettings(
        log.bootstrap,
        log.prefix,
        kubeconfig=kubeconfig or cluster.kubeconfig(),
        lease_namespace=namespace,
        poll_ms=20,
        **more,
    )
    evictor = Evictor(settings)
    task = asyncio.create_task(evictor.run())
    try:
        yield evictor
        assert not task.done(), task
    finally:
        evictor.stop()
        await task


@asynccontextmanager
async def apart(
    cluster: Cluster, log: Log, namespace: str, *options: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An evictor in a process of its own, as an operator starts it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from scheduler_bridge.cli import app; app()", "evict",
        "--brokers", log.bootstrap, "--prefix", log.prefix,
        "--kubeconfig", str(cluster.kubeconfig()), "--lease-namespace", namespace, *options,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
