"""`make bench NAME=ledger`: one ledger for Kubernetes and YARN, asked 1,000 times at random.

A real API server, scheduler and topic, the ResourceManager's stand-in; needs `make kube`. Then ten
containers and ten machines die without a release, one after the other. Goals: at no offset of the
ledger was a slice granted that was not there, at no look did more run on a node than there was, and
each slice is back within 10 s, once. Then the bridge is killed 20 times while YARN and a
claimant ask. ``--asks N`` for fewer.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from pathlib import Path
from random import Random
from typing import Any

import typer
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, ServiceAccount

from scheduler_bridge.ledger.amounts import NOTHING
from scheduler_bridge.loop import Bridge
from scheduler_bridge.reconcile import Amount
from streams.dev_broker import DevBroker
from tests.bench.common import Goal, finish, say
from tests.kube import objects, programs
from tests.kube.cluster import Cluster
from tests.kube.two_schedulers import LENDABLE, Asking, Found, compete
from tests.scheduler_bridge.ledger.checker import check
from tests.scheduler_bridge.ledger.stage import GIB, Topics, bridge_of, until
from tests.scheduler_bridge.ledger.test_killed import die as die_often
from tests.scheduler_bridge.test_bridge_broker import make_topics
from tests.scheduler_bridge.yarn_server import YarnServer

NODES = 3
PAUSE_S = 0.06
DEATHS = 10
BACK_WITHIN_S = 10.0
KILLS = 20


async def two_schedulers(broker: DevBroker, cluster: Cluster, asks: int) -> Found:
    """The asks, on a cluster of `NODES` nodes."""
    prefix, namespace = f"b{uuid.uuid4().hex[:8]}.", f"b{uuid.uuid4().hex[:8]}"
    client = cluster.client()
    try:
        await client.create(Namespace(metadata=ObjectMeta(name=namespace)))

        async def has_account() -> bool:
            return (await client.get(ServiceAccount, "default", namespace=namespace)) is not None

        await objects.until(has_account, "the namespace's account", 30)
        names = [f"{namespace}-{number}" for number in range(NODES)]
        for name in names:
            await objects.join_node(client, name)
        await make_topics(broker.bootstrap, prefix)
        async with YarnServer() as yarn, Topics(broker.bootstrap, prefix) as topics:
            asking = Asking(client, yarn, namespace, names, Random(11))
            found = await compete(asking, cluster, topics, asks, PAUSE_S)
        for name in names:
            await client.delete(Node, name)
        return found
    finally:
        await client.close()


async def deaths(broker: DevBroker, folder: Path) -> dict[str, Any]:
    """Seconds from a death without release until the slice is back, and how often it came back."""
    prefix = f"b{uuid.uuid4().hex[:8]}."
    await make_topics(broker.bootstrap, prefix)
    took: dict[str, list[float]] = {"container": [], "machine": []}
    async with (
        YarnServer(expiry_s=2.0) as yarn,
        Topics(broker.bootstrap, prefix) as topics,
        bridge_of(topics, folder / "record", yarn) as bridge,
    ):
        for number in range(DEATHS):
            await topics.capacity(f"n{number}", LENDABLE)
            container_s, machine_s = await die(bridge, yarn, f"n{number}")
            took["container"].append(container_s)
            took["machine"].append(machine_s)
        said = await topics.ledger()
    entries = [one for one in said if one.key.endswith(b"/yarn")]
    releases = sum(one.raw is None for one in entries)
    return {
        "container_back_most_s": round(max(took["container"]), 2),
        "machine_back_most_s": round(max(took["machine"]), 2),
        "releases_a_machine": releases / DEATHS,
        "deaths_over": len(check(said).over),
    }


async def die(bridge: Bridge, yarn: YarnServer, node: str) -> tuple[float, float]:
    """A container of a node, and then the machine."""
    manager = yarn.join(node)

    def held() -> Amount:
        return bridge.view.book.of(node).holds("yarn")

    await until(lambda: manager.total[1] == 8, "YARN is told", 20)
    dies = yarn.ask(2048, 2)
    yarn.ask(1024, 1)
    await until(lambda: held() == Amount(3000, 3 * GIB), "both are held")
    yarn.die(node, dies.id)
    container_s = await until(lambda: held() == Amount(1000, GIB), "one is back", 30)
    yarn.lose(node)
    gone = await until(lambda: bridge.view.book.of(node).counted(0) == NOTHING, "all is back", 30)
    return container_s, gone


def main(asks: int = 1000) -> None:
    """Ask, judge, report."""
    with tempfile.TemporaryDirectory(prefix="slackwater-ledger-") as made, DevBroker() as broker:
        folder = Path(made)
        with Cluster(folder / "kube", programs.find()) as cluster:
            say(f"two schedulers ask {asks} times ...")
            found = asyncio.run(two_schedulers(broker, cluster, asks))
            say(f"  {found}")
        say(f"{DEATHS} containers and {DEATHS} machines die ...")
        died = asyncio.run(deaths(broker, folder))
        say(f"  {died}")
        say(f"the bridge dies {KILLS} times ...")
        killed = asyncio.run(die_often(broker.bootstrap, f"b{uuid.uuid4().hex[:8]}.", KILLS))
        say(f"  {killed}")
    verdict = found.verdict
    figures = {
        "asked": found.asked,
        "pods_bound": found.started["kubernetes"],
        "containers_started": found.started["yarn"],
        "ledger_records": verdict.records,
        "grants": verdict.grants,
        "looks": found.looks,
        "most_run_milli": found.most_milli,
        **died,
    }
    most = max(verdict.most_cpu_milli.values(), default=0)
    raise typer.Exit(
        finish(
            "ledger",
            figures,
            [
                Goal("asked", found.asked, asks, "at_least"),
                Goal("over_lent_offsets", len(verdict.over), 0),
                Goal("over_run_looks", len(found.over), 0),
                Goal("most_counted_milli", most, LENDABLE.cpu_milli),
                Goal("started_by_the_lesser", min(found.started.values()), asks / 20, "at_least"),
                Goal("container_back_s", died["container_back_most_s"], BACK_WITHIN_S),
                Goal("machine_back_s", died["machine_back_most_s"], BACK_WITHIN_S),
                Goal("over_lent_offsets_killed", len(killed.over), 0),
                Goal("grants_killed", killed.grants, KILLS, "at_least"),
                Goal("releases_a_machine", died["releases_a_machine"], 1),
            ],
        )
    )


if __name__ == "__main__":
    typer.run(main)
