"""The process that `tests.bench.webhook` asks: admission's webhook over a made-up cluster.

Nodes, namespaces and pods go in as the bytes of a watch, through the mirrors that the service runs;
pods keep coming and going all the while, so that answers compete with them.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import orjson
import uvloop

from scheduler_bridge.admission.cluster import Cluster
from scheduler_bridge.admission.metrics import ADMISSION_TABLE
from scheduler_bridge.admission.names import Resources
from scheduler_bridge.admission.rules import parse
from scheduler_bridge.admission.service import settle_memory
from scheduler_bridge.admission.webhook import Webhook
from scheduler_bridge.http import HttpServer, HttpSettings
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.mirror import Mirror, _Event
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.tls import TlsFiles

NODES, PODS = 1000, 20_000
QUOTAS, PROFILES = 100, 20
CHANGES_S = 100
"""Pods that change a second, all the while."""
GIB = 1 << 30


def rules() -> str:
    """Quotas of two levels, and profiles of which one chooses the pods that are asked about."""
    quotas = [
        {
            "name": f"team{i}",
            "parent": f"unit{i % 10}",
            "min": {"batch_cpu_milli": 10_000_000, "batch_memory_bytes": 10_000 * GIB},
            "max": {"batch_cpu_milli": 90_000_000, "batch_memory_bytes": 90_000 * GIB},
        }
        for i in range(QUOTAS)
    ]
    most = {"batch_cpu_milli": 900_000_000, "batch_memory_bytes": 900_000 * GIB}
    units = [{"name": f"unit{i}", "max": most} for i in range(10)]
    profiles = [
        {
            "name": f"profile{i}",
            "pods": {"match_labels": {"app": f"app{i}"}},
            "qos": "BE",
            "priority_class": "batch",
            "labels": {"profile": str(i)},
        }
        for i in range(PROFILES)
    ]
    return orjson.dumps({"quotas": [*units, *quotas], "profiles": profiles}).decode()


def node(i: int) -> dict[str, Any]:
    has = {
        "cpu": "64", "memory": "256Gi", "pods": "110",
        "kubernetes.io/batch-cpu": "3000000", "kubernetes.io/batch-memory": f"{8000 * GIB}",
    }  # fmt: skip
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": f"n{i}"}, "status": {"allocatable": has, "conditions": ready}}


def pod(i: int, phase: str = "Running") -> dict[str, Any]:
    asks = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": str(GIB)}
    labels = {
        "koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch",
        "quota.scheduling.koordinator.sh/name": f"team{i % QUOTAS}", "other": "label",
    }  # fmt: skip
    container = {"name": "main", "image": "x", "resources": {"requests": asks, "limits": asks}}
    return {
        "metadata": {
            "name": f"p{i}", "namespace": "bench", "uid": f"uid-{i}", "labels": labels,
            "annotations": {"slackwater.io/recoverable": "true"},
        },
        "spec": {"nodeName": f"n{i % NODES}", "containers": [container]},
        "status": {"phase": phase, "qosClass": "BestEffort"},
    }  # fmt: skip


def tell(mirror: Mirror[Any], documents: list[dict[str, Any]]) -> None:
    """As a watch tells."""
    for one in documents:
        line = orjson.dumps({"type": "MODIFIED", "object": one})
        mirror._fold(msgspec.json.decode(line, type=_Event))


async def serve(certificate: Path, key: Path) -> None:
    cluster = Cluster(cast("Kube", None), Resources())
    metrics = Metrics(ADMISSION_TABLE)
    webhook = Webhook(cluster, parse(rules(), "bench"), Resources(), metrics)
    tell(cluster.nodes, [node(i) for i in range(NODES)])
    tell(cluster.namespaces, [{"metadata": {"name": "bench", "labels": {"a": "b"}}}])
    tell(cluster.pods, [pod(i) for i in range(PODS)])
    for mirror in cluster.mirrors:
        mirror._synced.set()
    settle_memory()
    settings = HttpSettings(tls=TlsFiles(certificate, key))
    server = HttpServer(settings, webhook.routes, metrics, lambda: True, lambda: cluster.fresh)
    sys.stdout.write(f"{await server.start()}\n")
    sys.stdout.flush()
    turn = 0
    while True:
        for mirror in cluster.mirrors:
            mirror._heard_s = asyncio.get_running_loop().time()
        turn += 1
        phase = "Succeeded" if turn % 2 else "Running"
        tell(cluster.pods, [pod((turn // 2 * 7 + i) % PODS, phase) for i in range(CHANGES_S // 10)])
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    assert gc.isenabled()
    uvloop.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
