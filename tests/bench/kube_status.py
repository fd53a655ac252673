"""`python -m tests.bench.kube_status`: 5,000 nodes on a real API server, 100 patches a second.

One bridge (a process, as the command line starts it) between a real Kafka and a real cluster with
5,000 node objects. Measured by a watch of the nodes:

- a fleet-wide fall: from the first record written to the last node that shows it;
- freshness: every node is told again each ``--refresh-s`` while others change at random. 900 s are
  scaled down to 90 by default, which asks ten times as many refreshes of the same 100 patches; how
  late changes are seen meanwhile, and the longest that any node went untold;
- the pace: node updates in the busiest 10 s.

Ends with one line of JSON; exit 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from lightkube.models.core_v1 import NodeStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.kube.node_status import ANNOTATION
from scheduler_bridge.kube.quantities import whole
from scheduler_bridge.settings import CPU_NAME
from schemas import codec
from schemas.records import Capacity, Cause
from streams.dev_broker import DevBroker
from streams.dev_broker.process import Child
from tests.bench.common import Goal, finish, say
from tests.kube import objects, programs
from tests.kube.cluster import Cluster
from tests.kube.fault_stage import make_topics

GIB = 1 << 30
PACE = 100
FALL_WITHIN_S = 60.0
BUSIEST_S = 10
LATE_REFRESH_S = 20.0
Seen = tuple[int, str]  # allocatable millicores, annotation


class Watcher:
    """When each node last changed, and to what."""

    def __init__(self) -> None:
        self.cpu: dict[str, int] = {}
        self.told_s: dict[str, float] = {}
        self.gaps_s: list[float] = []
        self.times_s: deque[float] = deque()
        self.due: dict[str, tuple[int, float]] = {}
        self.late_s: list[float] = []

    def changed(self, name: str, before: Seen | None, after: Seen | None) -> None:
        now_s = time.monotonic()
        if after is None or (before is not None and before[1] == after[1]):
            return
        self.times_s.append(now_s)
        if name in self.told_s:
            self.gaps_s.append(now_s - self.told_s[name])
        self.told_s[name] = now_s
        self.cpu[name] = after[0]
        want = self.due.get(name)
        if want is not None and want[0] == after[0]:
            self.late_s.append(now_s - want[1])
            del self.due[name]

    def busiest(self) -> int:
        """Most updates within ``BUSIEST_S``."""
        most, window = 0, deque[float]()
        for at in self.times_s:
            window.append(at)
            while window[0] <= at - BUSIEST_S:
                window.popleft()
            most = max(most, len(window))
        return most


def keep(node: Node) -> Seen | None:
    meta, status = node.metadata, node.status
    said = ((meta.annotations if meta else None) or {}).get(ANNOTATION)
    if said is None or status is None:
        return None
    return whole((status.allocatable or {}).get(CPU_NAME, "0")), said


class Fleet:
    """Node objects, and the records that say what is desired of them."""

    def __init__(self, producer: AIOKafkaProducer, prefix: str, count: int) -> None:
        self.names = [f"node-{at:05}" for at in range(count)]
        self._producer = producer
        self._topic = prefix + "capacity"
        self._offset = 0

    async def join(self, cluster: Cluster) -> None:
        client = cluster.client()
        has = objects.amounts(64_000, 256 * GIB)
        names = iter(self.names)

        async def some() -> None:
            for name in names:
                status = NodeStatus(capacity=dict(has), allocatable=dict(has))
                await client.create(Node(metadata=ObjectMeta(name=name), status=status))

        try:
            await asyncio.gather(*(some() for _ in range(16)))
        finally:
            await client.close()

    async def say(self, name: str, cpu_milli: int) -> None:
        self._offset += 1
        cause = Cause(1, 0, self._offset, self._offset, "abc", 1)
        record = Capacity(name, cause, cpu_milli, 4 * GIB, "usage", mid_cpu_milli=1_000)
        await self._producer.send(
            self._topic, codec.encode(record), key=name.encode(), headers=codec.JSON_HEADERS
        )

    async def say_all(self, cpu_milli: int) -> None:
        for name in self.names:
            await self.say(name, cpu_milli)
        await self._producer.flush()


async def until_all(watcher: Watcher, fleet: Fleet, cpu_milli: int, within_s: float) -> float:
    """Seconds until every node shows this; infinite when it takes too long."""
    began = time.monotonic()
    shown = 0
    while time.monotonic() - began < within_s:
        shown = sum(watcher.cpu.get(name) == cpu_milli for name in fleet.names)
        if shown == len(fleet.names):
            return time.monotonic() - began
        await asyncio.sleep(0.1)
    say(f"only {shown} nodes show {cpu_milli}")
    return float("inf")


async def refreshes(watcher: Watcher, fleet: Fleet, refresh_s: float, changes_per_s: float) -> None:
    """Random changes for as long as every node should be told once more, and a bit."""
    rng = random.Random(5)
    end = time.monotonic() + refresh_s + LATE_REFRESH_S
    while time.monotonic() < end:
        name = rng.choice(fleet.names)
        if name not in watcher.due:
            cpu = watcher.cpu[name] * 3 // 4 if rng.random() < 0.5 else watcher.cpu[name] * 4 // 3
            watcher.due[name] = (cpu, time.monotonic())
            await fleet.say(name, cpu)
        await asyncio.sleep(1 / changes_per_s)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def play(
    cluster: Cluster, bootstrap: str, folder: Path, chosen: argparse.Namespace
) -> dict[str, Any]:
    prefix = f"b{uuid.uuid4().hex[:8]}."
    await make_topics(bootstrap, prefix, partitions=12)
    config = cluster.kubeconfig()
    command = [
        *(sys.executable, "-c", "from scheduler_bridge.cli import app; app()", "run"),
        *("--sink", "kubernetes", "--brokers", bootstrap, "--prefix", prefix),
        *("--kubeconfig", str(config), "--lease-namespace", "default", "--rate", str(PACE)),
        *("--refresh-s", str(chosen.refresh_s), "--stale-s", "3600"),
    ]
    watcher = Watcher()
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer,
        connect(config) as kube,
    ):
        fleet = Fleet(producer, prefix, chosen.nodes)
        began = time.monotonic()
        await fleet.join(cluster)
        say(f"{chosen.nodes} nodes joined in {time.monotonic() - began:.0f} s")
        mirror = Mirror(kube, Node, keep)
        mirror.listen(watcher.changed)
        mirroring = asyncio.create_task(mirror.run())
        await mirror.wait_synced()
        await fleet.say_all(8_000)
        bridge = Child(command, folder / "bridge.log", cluster._lock)
        try:
            first_s = await until_all(watcher, fleet, 8_000, 300.0)
            say(f"first told in {first_s:.1f} s")
            spent_s, began = cpu_s(bridge.pid), time.monotonic()
            await fleet.say_all(3_000)
            said_s = time.monotonic() - began
            fall_s = said_s + await until_all(watcher, fleet, 3_000, 300.0)
            spent_s = cpu_s(bridge.pid) - spent_s
            say(f"the fall took {fall_s:.1f} s, {spent_s:.1f} s of CPU of the bridge")
            watcher.gaps_s.clear()
            await refreshes(watcher, fleet, chosen.refresh_s, chosen.changes_per_s)
        finally:
            bridge.kill()
            mirroring.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await mirroring
    now_s = time.monotonic()
    late_s = sorted(watcher.late_s)
    untold_s = max(*watcher.gaps_s, *(now_s - at for at in watcher.told_s.values()))
    return {
        "first_s": round(first_s, 1),
        "fall_s": round(fall_s, 1),
        "bridge_cpu_permille_in_fall": round(1000 * spent_s / fall_s),
        "longest_untold_s": round(untold_s, 1),
        "changes": len(late_s),
        "changes_unseen": len(watcher.due),
        "change_seen_p50_s": round(late_s[len(late_s) // 2], 2),
        "change_seen_p99_s": round(late_s[len(late_s) * 99 // 100], 2),
        "busiest_10_s": watcher.busiest(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--refresh-s", type=int, default=90)
    parser.add_argument("--changes-per-s", type=float, default=20.0)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        DevBroker() as broker,
        Cluster(Path(folder) / "cluster", programs.find()) as cluster,
    ):
        # Nobody is to be placed here, and the machine is busy enough.
        cluster.scheduler.stop()
        cluster.controller_manager.stop()
        found = asyncio.run(play(cluster, broker.bootstrap, Path(folder), chosen))
    goals = [
        Goal("fall_s", found["fall_s"], FALL_WITHIN_S),
        Goal("longest_untold_s", found["longest_untold_s"], chosen.refresh_s + LATE_REFRESH_S),
        # A watcher sees them a little closer together, or further apart, than they were sent.
        Goal("busiest_10_s", found["busiest_10_s"], PACE * BUSIEST_S * 1.03),
        Goal("change_seen_p99_s", found["change_seen_p99_s"], 5.0),
    ]
    figures = {"nodes": chosen.nodes, "refresh_s": chosen.refresh_s, **found}
    return finish("kube_status", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
