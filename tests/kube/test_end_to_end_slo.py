"""The whole loop, and a service beside borrowed work that leaves its objective and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka import AIOKafkaProducer
from lightkube import AsyncClient
from lightkube.resources.core_v1 import Pod

from scheduler_bridge.settings import MID_CPU_NAME
from schemas import codec
from schemas.records import Capacity, Sli
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.whole_loop import (
    ASKED_MILLI,
    BATCH,
    CALM_MILLI,
    POLICY,
    WITHIN_S,
    Loop,
    looping,
)
from tests.sim.node import FLOOR_MILLI
from tests.support import patient

# Work that does not offer itself to eviction is held down, and stays.
HELD = {name: said for name, said in BATCH.items() if name != "koordinator.sh/eviction-enabled"}
SLOW_US, CALM_US = 200_000, 10_000
STOPPED_WITHIN_S = 2.0
OBJECTIVE = """
mid: {{mode: static, static_cpu_percent: 10, static_memory_percent: 10}}
slo_guard:
  step_permille: 1000
  step_wait_ms: 1000
  calm_ms: 1000
  return_permille: 500
  objectives: [{{workload: {workload}, p99_us: 100000, rounds: 1, window_ms: 10000}}]
"""


async def test_a_service_beyond_its_objective_gets_capacity_back_until_it_is_calm(
    broker: DevBroker, prefix: str, cluster: Cluster, client: AsyncClient, namespace: str,
    nodes: Nodes, tmp_path: Path,
) -> None:  # fmt: skip
    policy = POLICY + OBJECTIVE.format(workload=f"{namespace}/shop")
    where = broker, prefix, cluster, client, namespace, nodes, tmp_path
    async with looping(*where, policy) as loop, serving(loop, f"{namespace}/shop") as service:
        sampled_s = await loop.node.use(CALM_MILLI)
        await loop.offers(lambda milli: milli >= 2 * ASKED_MILLI, "much is lent", sampled_s)
        first = await loop.ask("etl", ASKED_MILLI, HELD)
        await objects.pod_becomes(client, first, objects.is_running, "running")
        await loop.offers(lambda milli: milli > 0, "mid is lent", sampled_s, MID_CPU_NAME)
        before = await capacities(loop, lambda said: said[-1].new_work)
        late = await new_work_stops(loop, service)
        begun = await it_falls_by_class(loop, len(before))
        assert objects.is_refused(await loop.client.get(Pod, "late", namespace=namespace))
        await it_returns_step_by_step(loop, service, begun, late)
        await loop.untouched()
        assert loop.node.watcher.killed_uids == []


async def new_work_stops(loop: Loop, service: Service) -> Pod:
    """The service suffers; what is offered is no more than what is held, the next pod waits."""
    suffered_s = await service.says(SLOW_US)
    stopped_s = await loop.offers(lambda milli: milli <= ASKED_MILLI, "no new work", suffered_s)
    late = await loop.ask("late", ASKED_MILLI // 4, HELD)
    await objects.pod_becomes(loop.client, late, objects.is_refused, "refused")
    refused_s = time.monotonic() - suffered_s
    print(f"service slow: no new work {stopped_s:.2f} s after its word, refused {refused_s:.2f} s")
    assert stopped_s < patient(STOPPED_WITHIN_S)
    return late


async def it_falls_by_class(loop: Loop, begin: int) -> Capacity:
    """On the topic free falls first, then batch, then mid; the API server shows both at 0.

    What was said first: of free alone something was called back.
    """
    began_s = time.monotonic()
    batch_s = await loop.offers(lambda milli: milli == 0, "no batch", began_s)
    mid_s = await loop.offers(lambda milli: milli == 0, "no mid", began_s, MID_CPU_NAME)
    said = (await capacities(loop, lambda said: amounts(said[-1]) == (0, 0, 0)))[begin:]
    falls = [amounts(one) for one in said]
    print(f"called back (free, batch, mid): {falls}; batch {batch_s:.2f} s, mid {mid_s:.2f} s")
    gone = [next(i for i, each in enumerate(falls) if each[k] == 0) for k in range(3)]
    assert gone[0] < gone[1] < gone[2]
    assert not any(one.new_work for one in said)
    assert {one.reason for one in said} == {"slo"}
    (work,) = loop.node.kernel.of("best_effort")
    await loop.node.next_sample()
    assert work.got_milli <= FLOOR_MILLI
    return said[0]


async def it_returns_step_by_step(loop: Loop, service: Service, begun: Capacity, late: Pod) -> None:
    """Calm: classes come back as they went, in steps, and who waited is bound."""
    calm_s = await service.says(CALM_US)
    begin = len(loop.heard.of(Capacity))
    await objects.pod_becomes(loop.client, late, objects.is_bound, "bound", 2 * WITHIN_S)
    bound_s = time.monotonic() - calm_s
    whole = amounts(begun)[1:]
    said = await capacities(loop, lambda said: amounts(said[-1])[1:] >= whole)
    rises = list(dict.fromkeys(amounts(one)[1:] for one in said[begin:]))
    print(f"calm: (batch, mid) {rises}; the next pod bound {bound_s:.2f} s after it")
    assert len(rises) >= 4, "step by step"
    assert rises == sorted(rises, key=sum)


def amounts(said: Capacity) -> tuple[int, int, int]:
    """CPU for free, batch and mid work."""
    return said.cpu_terms["free"], said.batch_cpu_milli, said.mid_cpu_milli


async def capacities(loop: Loop, true: Callable[[list[Capacity]], bool]) -> list[Capacity]:
    """What was said of the node so far, once this is true of it."""

    def is_so() -> bool:
        said = loop.heard.of(Capacity)
        return bool(said) and true(said)

    await loop.heard.until(is_so, "capacity on its topic", WITHIN_S)
    return loop.heard.of(Capacity)


class Service:
    """An online service on the node, that says every half a second how it does."""

    def __init__(self, loop: Loop, workload: str) -> None:
        self._loop, self._workload = loop, workload
        self._p99_us = CALM_US
        self._told: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def says(self, p99_us: int) -> float:
        """From now on; the monotonic second of its first word."""
        self._p99_us = p99_us
        self._told = asyncio.get_running_loop().create_future()
        return await self._told

    async def run(self) -> None:
        """Until cancelled."""
        one, node = self._loop.one, self._loop.node.name
        async with AIOKafkaProducer(bootstrap_servers=one.brokers) as producer:
            while True:
                said = Sli(self._workload, node, 500, 0, self._p99_us, 1_000)
                at_s, told = time.monotonic(), self._told
                await producer.send_and_wait(
                    full_name(one.prefix, "slis"), codec.encode(said), key=node.encode(),
                    headers=codec.JSON_HEADERS,
                )  # fmt: skip
                if not told.done():
                    told.set_result(at_s)
                await asyncio.sleep(0.5)


@asynccontextmanager
async def serving(loop: Loop, workload: str) -> AsyncIterator[Service]:
    """The service says it is well, until the test has it say otherwise."""
    service = Service(loop, workload)
    task = asyncio.create_task(service.run())
    try:
        yield service
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
