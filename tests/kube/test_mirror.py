"""A mirror of real objects through everything that can break it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node, Pod

from scheduler_bridge.kube.client import connect
from scheduler_bridge.kube.mirror import Mirror
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.programs import Programs

Change = tuple[str, str | None, str | None]


@pytest.fixture(scope="module")
def own(kube_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that these tests may harm."""
    with Cluster(tmp_path_factory.mktemp("own") / "cluster", kube_programs) as mine:
        yield mine


def value(found: ConfigMap) -> str | None:
    return (found.data or {}).get("value")


@asynccontextmanager
async def running(mirror: Mirror[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(mirror.run())
    try:
        await asyncio.wait_for(mirror.wait_synced(), objects.WITHIN_S)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def mirroring(
    cluster: Cluster, kind: type[Any], keep: Callable[[Any], Any], **chosen: str
) -> AsyncIterator[tuple[Mirror[Any], list[Change]]]:
    """A mirror that runs, and the changes it told."""
    async with connect(cluster.kubeconfig()) as kube:
        mirror = Mirror(kube, kind, keep, **chosen)
        told: list[Change] = []
        mirror.listen(lambda *change: told.append(change))
        async with running(mirror):
            yield mirror, told


async def shows(mirror: Mirror[Any], **expected: str) -> None:
    wanted = {f"default/{name}": said for name, said in expected.items()}

    async def equal() -> bool:
        return dict(mirror.objects) == wanted

    await objects.until(equal, f"mirrored {wanted}")


class Writer:
    """Config maps of one label, written by a client of its own each time."""

    def __init__(self, cluster: Cluster, label: str) -> None:
        self._cluster = cluster
        self._label = label

    async def say(self, name: str, said: str, *, first: bool = False) -> None:
        meta = ObjectMeta(name=name, namespace="default", labels={"test": self._label})
        made = ConfigMap(metadata=meta, data={"value": said})
        client = self._cluster.client()
        try:
            await (client.create(made) if first else client.replace(made))
        finally:
            await client.close()

    async def drop(self, name: str) -> None:
        client = self._cluster.client()
        try:
            await client.delete(ConfigMap, name, namespace="default")
        finally:
            await client.close()


async def test_tells_what_comes_changes_and_goes(cluster: Cluster) -> None:
    writer = Writer(cluster, "tells")
    await writer.say("there", "1", first=True)
    async with mirroring(cluster, ConfigMap, value, labels="test=tells") as (mirror, told):
        assert dict(mirror.objects) == {"default/there": "1"}
        assert mirror.age_s < 10
        await writer.say("new", "x\u2028\x85y", first=True)
        await shows(mirror, there="1", new="x\u2028\x85y")
        await writer.say("there", "2")
        await shows(mirror, there="2", new="x\u2028\x85y")
        await writer.drop("new")
        await shows(mirror, there="2")
        assert told == [
            ("default/there", None, "1"),
            ("default/new", None, "x\u2028\x85y"),
            ("default/there", "1", "2"),
            ("default/new", "x\u2028\x85y", None),
        ]
    await writer.drop("there")


async def test_keeps_only_what_keep_picks(cluster: Cluster, nodes: Nodes) -> None:
    here, there = await nodes.join(), await nodes.join()

    def keep(node: Node) -> int | None:
        assert node.metadata is not None
        return 1 if node.metadata.name == here else None

    async with mirroring(cluster, Node, keep) as (mirror, _):
        assert dict(mirror.objects) == {here: 1}
        assert there not in mirror.objects


async def test_pods_of_one_node_by_field(cluster: Cluster, nodes: Nodes) -> None:
    name = await nodes.join()
    async with mirroring(cluster, Pod, str, fields=f"spec.nodeName={name}") as (mirror, _):
        assert not mirror.objects


async def test_goes_on_after_the_api_server_died(own: Cluster) -> None:
    writer = Writer(own, "died")
    await writer.say("kept", "1", first=True)
    async with mirroring(own, ConfigMap, value, labels="test=died") as (mirror, told):
        own.api_server.kill()
        own.api_server.start()
        await writer.say("kept", "2")
        await shows(mirror, kept="2")
        assert mirror.lists == 1, "it resumes, it does not list again"
        assert told[1:] == [("default/kept", "1", "2")]


async def test_lists_again_when_the_past_is_gone_and_says_what_vanished(own: Cluster) -> None:
    writer = Writer(own, "gone")
    await writer.say("stays", "1", first=True)
    await writer.say("goes", "1", first=True)
    async with connect(own.kubeconfig()) as kube:
        mirror = Mirror(kube, ConfigMap, value, labels="test=gone")
        async with running(mirror):
            await shows(mirror, stays="1", goes="1")
        await writer.drop("goes")
        await writer.say("comes", "1", first=True)
        own.compact()
        own.api_server.restart()
        told: list[Change] = []
        mirror.listen(lambda *change: told.append(change))
        async with running(mirror):
            await shows(mirror, stays="1", comes="1")
        assert mirror.lists == 2
        assert told == [("default/goes", "1", None), ("default/comes", None, "1")]
