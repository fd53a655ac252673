"""The extender with the real scheduler: TLS both ways, a real log, a real API server."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Namespace, Node, Pod, ServiceAccount
from lightkube.types import PatchType

from scheduler_bridge.extender.records import EVERYTHING, RECENT
from scheduler_bridge.extender.service import Extender
from scheduler_bridge.extender.settings import (
    SCORE_ANNOTATION,
    Annotating,
    ExtenderSettings,
    Resources,
)
from scheduler_bridge.http import HttpSettings
from scheduler_bridge.kube.client import connect
from scheduler_bridge.tls import TlsFiles
from schemas import codec, ledger
from schemas.records import Capacity, LedgerEntry, PolicyRecord, Reservation
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.programs import Programs
from tests.scheduler_bridge.extender.world import capacity, reservation
from tests.support import patient

SCHEDULER = "system:kube-scheduler"
NAMES = Resources()
ONLINE, BATCH = range(2)
SHIPPED = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scheduler-extender.yaml"
"""Its two configurations are what these tests run the scheduler with."""
HOT_MILLI, WARM_MILLI, COOL_MILLI = 7_500, 4_000, 500
USED = {"hot": HOT_MILLI, "warm": WARM_MILLI, "cool": COOL_MILLI}
CPU_MILLI = 8_000


@pytest.fixture(scope="module")
def own(kube_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose scheduler these tests may set up anew."""
    with Cluster(tmp_path_factory.mktemp("extender") / "cluster", kube_programs) as mine:
        yield mine


@dataclass(frozen=True)
class Given:
    """What a test talks to."""

    cluster: Cluster
    client: AsyncClient
    namespace: str
    producer: Any
    bootstrap: str
    prefix: str

    async def say(self, *records: Reservation | Capacity | LedgerEntry) -> None:
        topics = {Reservation: "reservations", Capacity: "capacity", LedgerEntry: "ledger"}
        for record in records:
            key = record.node.encode()
            if isinstance(record, LedgerEntry):
                key = ledger.entry_key(record.node, record.scheduler)
            await self.producer.send_and_wait(
                full_name(self.prefix, topics[type(record)]),
                codec.encode(record),
                key=key,
                headers=codec.JSON_HEADERS,
            )

    async def join(self, name: str, system_milli: int, lends_milli: int = 0) -> str:
        """A node that is used so much, by a report, and shows so much batch CPU."""
        await objects.join_node(self.client, name, cpu_milli=CPU_MILLI)
        if lends_milli:
            await self.lend(name, lends_milli)
        await self.say(reservation(name, system_milli, at_ms=now_ms()))
        return name

    async def lend(self, name: str, milli: int) -> None:
        """What the bridge shows of a node."""
        lent = {NAMES.batch_cpu: str(milli), NAMES.batch_memory: str(milli << 20)}
        said = {"status": {"capacity": lent, "allocatable": lent}}
        await self.client.patch(Node.Status, name, said, patch_type=PatchType.MERGE)

    async def place(self, name: str, asks: Mapping[str, str], on: str = "") -> Pod:
        """Ask for a pod; who borrows asks the scheduler of batch work."""
        pod = objects.new_pod(name, self.namespace, asks)
        assert pod.spec is not None
        if NAMES.batch_cpu in asks:
            pod.spec.schedulerName = "slackwater-batch"
        if on:
            pod.spec.nodeSelector = {"kubernetes.io/hostname": on}
        return await self.client.create(pod)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
async def given(own: Cluster, broker: DevBroker, prefix: str) -> AsyncIterator[Given]:
    """Topics, a namespace and no nodes of one's own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        configs = {"message.timestamp.type": "LogAppendTime"}
        names = (*EVERYTHING, *RECENT, "dead-letters")
        await admin.create_topics(
            [NewTopic(full_name(prefix, name), 1, 1, topic_configs=configs) for name in names]
        )
    finally:
        await admin.close()
    client = own.client()
    name = prefix.rstrip(".")
    await client.create(Namespace(metadata=ObjectMeta(name=name)))

    async def has_account() -> bool:
        return bool([one async for one in client.list(ServiceAccount, namespace=name)])

    await objects.until(has_account, "the default account of a new namespace")
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        yield Given(own, client, name, producer, broker.bootstrap, prefix)
    finally:
        await producer.stop()
        await client.deletecollection(Pod, namespace=name, grace_period=0)
        await client.deletecollection(Node)
        await client.delete(Namespace, name)
        await client.close()


def tls_of(cluster: Cluster, name: str) -> tuple[TlsFiles, dict[str, Any]]:
    """Our files, and what the scheduler's configuration says of TLS."""
    authority = cluster._authority
    ours, theirs = authority.server(name), authority.user(SCHEDULER)
    ca = authority.certificate
    config = {"certFile": str(theirs.certificate), "keyFile": str(theirs.key), "caFile": str(ca)}
    return TlsFiles(ours.certificate, ours.key, ca), config


def shipped(which: int, port: int, tls: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration as it is shipped, with our address and certificates in place of its own."""
    said = list(yaml.safe_load_all(SHIPPED.read_text()))[which]
    found = {name: said[name] for name in ("profiles", "extenders") if name in said}
    (extender,) = found["extenders"]
    extender |= {"urlPrefix": f"https://127.0.0.1:{port}", "tlsConfig": dict(tls), **more}
    return found


@asynccontextmanager
async def answering(given: Given, which: int = ONLINE, **settings: Any) -> AsyncIterator[Extender]:
    """An extender that is ready, asked by the scheduler as one of the shipped configurations."""
    files, tls = tls_of(given.cluster, f"extender-{given.namespace}")
    names = frozenset({SCHEDULER})
    async with connect(given.cluster.kubeconfig()) as kube:
        extender = Extender(
            ExtenderSettings(
                given.bootstrap, given.prefix, HttpSettings(tls=files, client_names=names), NAMES,
                **settings,
            ),
            kube,
        )  # fmt: skip
        port = await extender.server.start()
        task = asyncio.create_task(extender.run())

        async def ready() -> bool:
            assert not task.done(), task
            return extender.ready

        try:
            await objects.until(ready, "the extender is ready")
            said = shipped(which, port, tls)
            await asyncio.to_thread(partial(given.cluster.schedule, **said))
            yield extender
            assert not task.done(), task
        finally:
            extender.stop()
            await task


async def heard(extender: Extender, *names: str) -> None:
    """Wait until reports and node objects of these nodes have arrived."""

    async def all_of_them() -> bool:
        rows = extender.fleet.rows_of(names)
        known = extender.fleet.take("known", rows) > 0
        held = extender.fleet.take("allocatable", rows)[:, 0] > 0
        return bool((known & held).all())

    await objects.until(all_of_them, f"the extender has heard of {', '.join(names)}")


async def bound_to(given: Given, pod: Pod) -> str:
    bound = await objects.pod_becomes(given.client, pod, objects.is_bound, "bound")
    assert bound.spec is not None
    return str(bound.spec.nodeName)


async def test_a_pod_goes_to_the_less_loaded_and_never_to_the_overloaded(given: Given) -> None:
    hot, warm, cool = [
        await given.join(f"{name}-{given.namespace}", used) for name, used in USED.items()
    ]
    await given.producer.send_and_wait(
        full_name(given.prefix, "reservations"), b"{", key=b"n", headers=codec.JSON_HEADERS
    )
    async with answering(given) as extender:
        await heard(extender, hot, warm, cool)
        counted = extender.metrics.registry.get_sample_value
        bad = {"topic": "reservations", "fate": "bad"}
        assert counted("slackwater_bridge_extender_records_total", bad) == 1, "it harms itself only"
        asks = {"cpu": "400m", "memory": "64Mi"}
        for i in range(3):
            assert await bound_to(given, await given.place(f"any-{i}", asks)) == cool
        stuck = await given.place("stuck", asks, on=hot)
        refused = await objects.pod_becomes(given.client, stuck, objects.is_refused, "refused")
        assert "whose CPU would be loaded beyond the bound" in objects.why_refused(refused)

        async def told() -> bool:
            seen = given.client.list(
                Event, namespace=given.namespace, fields={"involvedObject.name": "stuck"}
            )
            messages = [one.message or "" async for one in seen]
            return any("loaded beyond the bound" in message for message in messages)

        await objects.until(told, "the pod's events say why")

        # The node calms down: the pod goes there when the scheduler looks again, which any change
        # of a node makes it do; here the bridge's, which lends what has become idle.
        await given.say(reservation(hot, COOL_MILLI, at_ms=now_ms()))

        async def calm() -> bool:
            usage = extender.fleet.take("usage", extender.fleet.rows_of([hot]))
            return int(usage[0, 0]) == COOL_MILLI

        await objects.until(calm, "the report has arrived")
        await given.lend(hot, 1_000)
        assert await bound_to(given, stuck) == hot


async def test_what_was_just_placed_counts_before_it_is_measured(given: Given) -> None:
    names = [await given.join(f"{name}-{given.namespace}", COOL_MILLI) for name in ("a", "b")]
    async with answering(given) as extender:
        await heard(extender, *names)
        # Two of these fill a node to its bound of 65 percent, though no report knows of them.
        asks = {"cpu": "2500m", "memory": "64Mi"}
        for i in range(4):
            await bound_to(given, await given.place(f"big-{i}", asks))

            async def seen(count: int = i + 1) -> bool:
                return int(extender.fleet.refresh() or 0) >= 0 and standing(extender) == count

            await objects.until(seen, "the extender has seen the binding")
        fifth = await given.place("big-4", asks)
        refused = await objects.pod_becomes(given.client, fifth, objects.is_refused, "refused")
        assert "2 node(s) whose CPU would be loaded" in objects.why_refused(refused)


def standing(extender: Extender) -> int:
    return sum(len(one) for one in extender.fleet._pods)


def bind_body(pod: Pod, node: str) -> dict[str, str]:
    assert pod.metadata is not None
    return {
        "PodName": str(pod.metadata.name), "PodNamespace": str(pod.metadata.namespace),
        "PodUID": str(pod.metadata.uid), "Node": node,
    }  # fmt: skip


@asynccontextmanager
async def scheduler_of(given: Given, extender: Extender) -> AsyncIterator[aiohttp.ClientSession]:
    """A session that asks as the scheduler does."""
    pair = given.cluster._authority.user(SCHEDULER)
    context = ssl.create_default_context(cafile=str(given.cluster._authority.certificate))
    context.load_cert_chain(pair.certificate, pair.key)
    base = f"https://127.0.0.1:{extender.server.port}"
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(base, connector=connector) as session:
        yield session


async def test_the_scheduler_binds_what_is_left_and_no_more(given: Given) -> None:
    node = await given.join(f"n-{given.namespace}", COOL_MILLI, lends_milli=8_000)
    await given.say(
        capacity(node, 8_000, at_ms=now_ms()), LedgerEntry(node, "yarn", 5_000, 1 << 30)
    )
    async with answering(given, BATCH, patience_ms=500) as extender:
        await heard(extender, node)
        asks = {NAMES.batch_cpu: "2000", NAMES.batch_memory: str(1 << 20)}
        assert await bound_to(given, await given.place("first", asks)) == node
        second = await given.place("second", asks)
        refused = await objects.pod_becomes(given.client, second, objects.is_refused, "refused")
        assert "with too little left to lend" in objects.why_refused(refused)

        first = await given.client.get(Pod, "first", namespace=given.namespace)
        await objects.bury_pod(given.client, first)
        assert await bound_to(given, second) == node


async def test_ten_at_once_take_three_slices_of_three(given: Given) -> None:
    node = await given.join(f"n-{given.namespace}", COOL_MILLI, lends_milli=8_000)
    await given.say(capacity(node, 3_000, at_ms=now_ms()))
    async with answering(given, BATCH) as extender:
        await heard(extender, node)
        given.cluster.scheduler.stop()  # this test is the scheduler
        asks = {NAMES.batch_cpu: "1000", NAMES.batch_memory: str(1 << 20)}
        made = [await given.place(f"one-{i}", asks) for i in range(10)]

        async with scheduler_of(given, extender) as session:

            async def ask(pod: Pod, times: int = 2) -> list[str]:
                """Ask as often at once; every time the same answer."""
                asked = [session.post("/bind", json=bind_body(pod, node)) for _ in range(times)]
                return [(await one.json())["Error"] for one in await asyncio.gather(*asked)]

            answers = await asyncio.gather(*(ask(pod) for pod in made))
            assert all(one == other for one, other in answers)
            took = [i for i, (one, _) in enumerate(answers) if not one]
            assert len(took) == 3
            assert all("too little left" in one for one, _ in answers if one)
            now = [await given.client.get(Pod, f"one-{i}", namespace=given.namespace) for i in took]
            assert all(objects.is_bound(pod) for pod in now)
            # Long after, the answer is the same, and so it is when the node is another.
            assert await ask(made[took[0]]) == ["", ""]
            elsewhere = (await ask_elsewhere(session, made[took[0]]))["Error"]
            assert elsewhere == f"the pod is bound to {node} already"

            # A binding that fails gives back: this pod is gone before it is asked for.
            await objects.bury_pod(given.client, now[0])
            lost = made[next(i for i in range(10) if i not in took)]
            await objects.bury_pod(given.client, lost)

            async def given_back() -> bool:
                return standing(extender) == 2

            await objects.until(given_back, "the slice of a pod that went is free")
            assert (await ask(lost, 1)) == ["there is no such pod any more"]
            assert standing(extender) == 2
            left = next(i for i in range(10) if i not in took and made[i] is not lost)
            assert await ask(made[left], 1) == [""]


async def ask_elsewhere(session: aiohttp.ClientSession, pod: Pod) -> dict[str, str]:
    async with session.post("/bind", json=bind_body(pod, "another")) as answer:
        said: dict[str, str] = await answer.json()
        return said


async def test_a_silent_log_blinds_the_extender_not_the_fleet(given: Given) -> None:
    hot = await given.join(f"hot-{given.namespace}", HOT_MILLI)
    text = "load_aware: {expire_after_ms: 1000}"
    record = PolicyRecord("default", 1, "digest", text)
    await given.producer.send_and_wait(
        full_name(given.prefix, "policies"), codec.encode(record), key=b"default",
        headers=codec.JSON_HEADERS,
    )  # fmt: skip
    async with answering(given) as extender:
        await objects.until(lambda: as_said(extender.blind()), "a second of silence")
        assert "no node was reported on for" in extender.blind()
        pod = await given.place("pod", {"cpu": "100m"})
        assert await bound_to(given, pod) == hot, "it is ignored, as it asks to be"

        # Who starts now reads the same old reports, and does not take them for new.
        await given.say(capacity(hot, 1, at_ms=now_ms()))
        async with connect(given.cluster.kubeconfig()) as kube:
            later = Extender(ExtenderSettings(given.bootstrap, given.prefix), kube)
            task = asyncio.create_task(later.run())
            await objects.until(lambda: as_said("reported on" in later.blind()), "it is blind too")
            later.stop()
            await task

        await given.say(reservation(hot, COOL_MILLI, at_ms=now_ms()))
        await objects.until(lambda: as_said(extender.ready), "it sees again")


async def as_said(what: object) -> bool:
    return bool(what)


async def test_scores_are_noted_on_nodes_where_that_is_asked_for(given: Given) -> None:
    nodes = [await given.join(f"{one}-{given.namespace}", used) for one, used in USED.items()]
    async with answering(given, annotating=Annotating(writes_per_s=50, every_ms=1000)) as extender:
        await heard(extender, *nodes)
        notes: dict[str, str] = {}

        async def noted() -> bool:
            for name in nodes:
                found = await given.client.get(Node, name)
                assert found.metadata is not None
                notes[name] = (found.metadata.annotations or {}).get(SCORE_ANNOTATION, "")
            return all(notes.values())

        await objects.until(noted, "every node has its note")
        hot, warm, cool = (notes[name] for name in nodes)
        assert hot == "full"
        assert int(warm) < int(cool) <= 100


def is_put_off(pod: Pod) -> bool:
    """Whether the scheduler failed with it: its extender does not answer."""
    said = (pod.status.conditions if pod.status is not None else None) or []
    return any(one.type == "PodScheduled" and one.reason == "SchedulerError" for one in said)


@pytest.mark.parametrize("ignorable", [True, False])
async def test_when_it_is_killed_ignorable_says_what_happens(
    given: Given, ignorable: bool, tmp_path: Path
) -> None:
    hot = await given.join(f"hot-{given.namespace}", HOT_MILLI)
    files, tls = tls_of(given.cluster, f"extender-{given.namespace}")
    options = {
        "brokers": given.bootstrap, "prefix": given.prefix, "port": "0",
        "kubeconfig": given.cluster.kubeconfig(), "certificate": files.certificate,
        "key": files.key, "client-ca": files.client_ca, "client-name": SCHEDULER,
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from scheduler_bridge.extender.cli import app; app()", "run", *words,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        port = 0
        async with asyncio.timeout(patient(30)):
            async for line in process.stderr:
                if b"answering on https://127.0.0.1:" in line:
                    port = int(line.rpartition(b":")[2])
                if b"ready: 1 nodes" in line:
                    break
        said = shipped(ONLINE, port, tls, ignorable=ignorable)
        await asyncio.to_thread(partial(given.cluster.schedule, **said))
        pod = await given.place("pod", {"cpu": "100m"})
        refused = await objects.pod_becomes(given.client, pod, objects.is_refused, "refused")
        assert "whose CPU would be loaded beyond" in objects.why_refused(refused)

        process.send_signal(signal.SIGKILL)
        await process.wait()
        second = await given.place("second", {"cpu": "100m"})
        if ignorable:
            assert await bound_to(given, second) == hot
        else:
            failed = await objects.pod_becomes(given.client, second, is_put_off, "put off")
            assert not objects.is_bound(failed)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
