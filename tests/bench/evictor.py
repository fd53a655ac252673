"""`make bench NAME=evictor`: an evictor is killed in the middle, another goes on; nobody twice.

    python -m tests.bench.evictor [--runs 20] [--seed 1]

Real API server, controllers and broker. In each run one evictor leads, another stands by, and six
best-effort pods are handed over; whoever has gone starts again under the same name at once, as a
StatefulSet would do it. After one to four evictions the leader is killed with -9. Goals: each pod
has its last word within 10 s (the lease is 3 s, a pod that is not seen is gone after 3 more, four
calls a second), nobody is evicted twice, no successor is touched. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lightkube import AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Namespace, Node, Pod, ServiceAccount

from scheduler_bridge.evictions.budget import Limits
from scheduler_bridge.evictions.loop import Evictor
from scheduler_bridge.evictions.queue import LAST_WORDS
from scheduler_bridge.evictions.settings import LEASE
from streams.dev_broker import DevBroker
from tests.bench.common import Goal, finish, median, say
from tests.kube import objects, programs
from tests.kube.cluster import Cluster
from tests.kube.evictor import Log, apart, running
from tests.kube.pods import best_effort

PODS = 6
OPTIONS = ("--per-node", "6", "--node-rest-s", "0", "--rate", "4")
LIMITS = Limits(per_node=6, node_rest_ms=0)
WITHIN_S = 10.0


class Run:
    """What one run has seen."""

    def __init__(self, cluster: Cluster, client: AsyncClient, log: Log) -> None:
        self.cluster, self.client, self.log = cluster, client, log
        self.space, self.node = f"b{uuid.uuid4().hex[:8]}", f"n{uuid.uuid4().hex[:8]}"
        self.first: dict[str, str] = {}  # uid -> name
        self.took_s = 0.0
        self.successors: dict[str, str] = {}
        self.going = 0  # of them

    async def play(self, after: int) -> None:
        """The whole run; the leader dies ``after`` so many evictions."""
        await self.client.create(Namespace(metadata=ObjectMeta(name=self.space)))
        await objects.until(self._has_account, "the account of a new namespace")
        await objects.join_node(self.client, self.node)
        for i in range(PODS):
            pod = await best_effort(self.client, self.space, f"p{i}", node=self.node)
            assert pod.metadata is not None
            self.first[str(pod.metadata.uid)] = f"p{i}"
        async with (
            apart(self.cluster, self.log, self.space, *OPTIONS) as leader,
            self._second() as other,
        ):
            again = asyncio.create_task(self._start_again())
            try:
                await self.log.until(lambda: other.ready, "the other has read", 60)
                await self._kill(leader, after)
                await objects.until(self._all_again, "all have started again", 60)
            finally:
                again.cancel()
        self.going = len(self.successors) - await self.untouched()
        await self.client.deletecollection(Pod, namespace=self.space, grace_period=0)
        await self.client.delete(Namespace, self.space)
        await self.client.delete(Node, self.node)

    async def _kill(self, leader: Process, after: int) -> None:
        await self.log.hand_over(self.node, *self.first)
        await self.log.until(lambda: self._evicted() >= after, "some have gone", 60)
        leader.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        await self.log.until(lambda: self._ended() == PODS, "all have their last word", 60)
        self.took_s = time.monotonic() - killed_s

    @asynccontextmanager
    async def _second(self) -> AsyncIterator[Evictor]:
        """It starts when the first one leads."""
        await objects.until(self._held, "the first one leads", 60)
        async with running(self.cluster, self.log, self.space, limits=LIMITS, per_s=4) as other:
            yield other

    async def _held(self) -> bool:
        """Whether somebody leads."""
        lease = await self.client.get(Lease, LEASE, namespace=self.space)
        return bool(lease.spec and lease.spec.holderIdentity)

    async def _start_again(self) -> None:
        """Who has gone is another pod of the same name at once."""
        while True:
            async for pod in self.client.list(Pod, namespace=self.space):
                assert pod.metadata is not None
                if pod.metadata.deletionTimestamp is not None and pod.metadata.uid in self.first:
                    await objects.bury_pod(self.client, pod)
                    name = str(pod.metadata.name)
                    new = await best_effort(self.client, self.space, name, node=self.node)
                    assert new.metadata is not None
                    self.successors[str(new.metadata.uid)] = name
            await asyncio.sleep(0.02)

    async def untouched(self) -> int:
        """Successors that are there and are to stay."""
        found = [pod async for pod in self.client.list(Pod, namespace=self.space)]
        return sum(
            pod.metadata is not None
            and pod.metadata.uid in self.successors
            and pod.metadata.deletionTimestamp is None
            for pod in found
        )

    def _evicted(self) -> int:
        return sum(one.outcome == "evicted" and one.pod in self.first for one in self.log.reports)

    def _ended(self) -> int:
        return len(
            {one.pod for one in self.log.reports if one.outcome in LAST_WORDS} & self.first.keys()
        )

    async def _all_again(self) -> bool:
        return len(self.successors) == PODS

    async def _has_account(self) -> bool:
        found = await self.client.get(ServiceAccount, "default", namespace=self.space)
        return found.metadata is not None


async def series(runs: int, seed: int) -> int:
    chance = random.Random(seed)
    took: list[float] = []
    twice = touched = unended = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), programs.find()) as cluster,
        DevBroker() as broker,
    ):
        client = cluster.client()
        for number in range(runs):
            async with Log(broker.bootstrap, f"r{number}.") as log:
                run = Run(cluster, client, log)
                after = chance.randint(1, 4)
                await run.play(after)
                ends = [one for one in log.reports if one.outcome in LAST_WORDS]
                evicted = [one.pod for one in ends if one.outcome == "evicted"]
                twice += len(evicted) - len(set(evicted))
                touched += run.going + sum(one.pod in run.successors for one in ends)
                unended += len(run.first) - len({one.pod for one in ends})
                took.append(run.took_s)
                say(f"run {number + 1}: killed after {after}, all ended after {run.took_s:.1f} s")
        await client.close()
    figures = {
        "runs": runs, "seed": seed, "ended_median_s": median(took),
        "load_1m": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    goals = [
        Goal("runs_done", len(took), runs, "at_least"),
        Goal("evicted_twice", twice, 0),
        Goal("successors_touched", touched, 0),
        Goal("without_last_word", unended, 0),
        Goal("ended_most_s", round(max(took), 2) if took else None, WITHIN_S),
    ]
    return finish("evictor", figures, goals)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    return asyncio.run(series(given.runs, given.seed))


if __name__ == "__main__":
    sys.exit(main())
