"""NUMA zones: told to topology objects on the real API server, where it has that kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from lightkube import AsyncClient
from lightkube.generic_resource import create_global_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition

from scheduler_bridge.settings import CPU_NAME, MEMORY_NAME
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.telling import GIB, shows, telling

TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
ZONES_SCHEMA = {
    "type": "object",
    "properties": {
        "zones": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
    },
}


async def make_topology_kind(client: AsyncClient) -> None:
    said = {
        "metadata": {
            "name": TOPOLOGIES,
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
        },
        "spec": {
            "group": "topology.node.k8s.io",
            "scope": "Cluster",
            "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies"},
            "versions": [
                {
                    "name": "v1alpha2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": ZONES_SCHEMA},
                }
            ],
        },
    }
    await client.create(cast("CustomResourceDefinition", CustomResourceDefinition.from_dict(said)))

    async def established() -> bool:
        found = await client.get(CustomResourceDefinition, TOPOLOGIES)
        conditions = (found.status.conditions if found.status else None) or []
        return any(one.type == "Established" and one.status == "True" for one in conditions)

    await objects.until(established, "the new kind is served")


async def test_zones_are_told_where_the_cluster_has_them(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    name = await nodes.join()
    async with telling(cluster, name) as told:
        told.want(name, 3_000)
        await shows(client, name, "3k")
        assert told.events("zones") == 0, "no such kind yet: nothing, and no failure"
        await make_topology_kind(client)
        kind = create_global_resource(
            "topology.node.k8s.io", "v1alpha2", "NodeResourceTopology", "noderesourcetopologies"
        )
        try:
            cpu = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "3"}
            zones = [
                {"name": f"node-{at}", "type": "Node", "resources": [cpu], "costs": [{"a": 1}]}
                for at in (0, 1)
            ]

            async def made() -> bool:
                made = kind(metadata=ObjectMeta(name=name), zones=zones)
                await client.create(cast("Any", made))
                return True

            await objects.until(made, "the new kind takes objects")
            told.sink._topology._ask_s = float("-inf")
            told.want(name, 4_000, offset=2)
            told.desired[name] = replace(told.desired[name], zones=((3_000, 3 * GIB), (1_000, GIB)))

            async def told_zones() -> bool:
                found = await client.get(kind, name)
                return [
                    {one["name"]: one["available"] for one in zone["resources"]}
                    for zone in found["zones"]
                ] == [
                    {"cpu": "3", CPU_NAME: "3000", MEMORY_NAME: str(3 * GIB)},
                    {"cpu": "3", CPU_NAME: "1000", MEMORY_NAME: str(GIB)},
                ]

            await objects.until(told_zones, "both zones")
            found = await client.get(kind, name)
            assert [zone["costs"] for zone in found["zones"]] == [[{"a": 1}]] * 2
            assert found["zones"][0]["resources"][0] == cpu
        finally:
            await client.delete(CustomResourceDefinition, TOPOLOGIES)
