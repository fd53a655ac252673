"""What pods become on the way in: profiles, translation, second calls; dry runs, a webhook away."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from lightkube import AsyncClient
from lightkube.models.core_v1 import (
    Container,
    LimitRangeItem,
    LimitRangeSpec,
    PodSchedulingGate,
    ResourceRequirements,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.node_v1 import Overhead
from lightkube.resources.core_v1 import LimitRange, Pod
from lightkube.resources.node_v1 import RuntimeClass

from tests.kube import objects
from tests.kube.admission.serving import (
    BATCH_CPU,
    BATCH_MEMORY,
    a_pod,
    mark,
    priorities,
    refusal,
    serving,
)
from tests.kube.cluster import Cluster
from tests.support import patient

NOTE = "node.koordinator.sh/extended-resource-spec"
SPARK = """
profiles:
  - name: spark
    namespaces: {match_labels: {team: data}}
    pods: {match_expressions: [{key: app, operator: In, values: [spark]}]}
    labels: {colocated: "yes"}
    annotations: {slackwater.io/recoverable: "true"}
    qos: BE
    priority_class_name: PRIORITY
    scheduler_name: default-scheduler
"""


async def test_a_workload_that_knows_nothing_of_us_becomes_batch_work(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace, team="data")
    async with priorities(client, 5500) as named:
        rules = SPARK.replace("PRIORITY", named[5500])
        async with serving(cluster, client, tmp_path, rules):
            pod = a_pod(namespace, {}, labels={"app": "spark"}, annotations={})
            assert pod.spec is not None
            main = {"cpu": "1500m", "memory": "2Gi", "ephemeral-storage": "1Gi"}
            pod.spec.containers[0].resources = ResourceRequirements(requests=main, limits=main)
            side = ResourceRequirements(requests={"cpu": "100m"})
            first = ResourceRequirements(limits={"memory": "64Mi"})
            pod.spec.initContainers = [
                Container(name="first", image="none.invalid/x", resources=first),
                Container(
                    name="side", image="none.invalid/x", resources=side, restartPolicy="Always"
                ),
            ]
            made = await client.create(pod)
            other = await client.create(a_pod(namespace, {"cpu": "1"}, labels={"app": "web"}))
    assert made.metadata is not None
    assert made.spec is not None
    assert made.metadata.labels == {
        "app": "spark", "colocated": "yes", "koordinator.sh/qosClass": "BE",
    }  # fmt: skip
    assert (made.spec.priority, made.spec.priorityClassName) == (5500, named[5500])
    asked = made.spec.containers[0].resources
    assert asked is not None
    wanted = {BATCH_CPU: "1500", BATCH_MEMORY: "2Gi", "ephemeral-storage": "1Gi"}
    assert asked.requests == asked.limits == wanted
    assert made.spec.initContainers is not None
    first_asks, side_asks = (one.resources for one in made.spec.initContainers)
    assert first_asks is not None
    assert side_asks is not None
    assert first_asks.requests == first_asks.limits == {BATCH_MEMORY: "64Mi"}
    assert side_asks.requests == {BATCH_CPU: "100"}
    assert made.metadata.annotations is not None
    noted = json.loads(made.metadata.annotations[NOTE])
    assert noted["containers"]["main"]["limits"] == {BATCH_CPU: "1500", BATCH_MEMORY: str(2 << 30)}
    assert made.status is not None
    assert made.status.qosClass == "BestEffort", "it lies with the best-effort pods of its node"
    assert other.spec is not None
    assert other.spec.containers[0].resources is not None
    assert other.spec.containers[0].resources.requests == {"cpu": "1"}


async def test_defaults_of_a_limit_range_between_two_calls_leave_no_native_request(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace, team="data")
    item = LimitRangeItem(
        type="Container",
        default={"cpu": "700m", "memory": "1Gi"},
        defaultRequest={"cpu": "300m", "memory": "512Mi"},
    )
    limits = LimitRange(
        metadata=ObjectMeta(name="usual", namespace=namespace), spec=LimitRangeSpec(limits=[item])
    )
    async with priorities(client, 5500) as named:
        rules = SPARK.replace("PRIORITY", named[5500])
        async with serving(cluster, client, tmp_path, rules) as running:
            await client.create(limits)

            async def defaulted() -> bool:
                pod = a_pod(namespace, {}, labels={"app": "web"})
                made = await client.create(pod, dry_run=True)
                assert made.spec is not None
                resources = made.spec.containers[0].resources
                return resources is not None and bool(resources.requests)

            await objects.until(defaulted, "the limit range is in force")
            before = running.reviews("mutate")
            pod = a_pod(namespace, {}, labels={"app": "spark"}, annotations={})
            assert pod.spec is not None
            pod.spec.containers[0].resources = ResourceRequirements(requests={"cpu": "500m"})
            made = await client.create(pod)
            calls = running.reviews("mutate") - before
    assert made.spec is not None
    asked = made.spec.containers[0].resources
    assert asked is not None
    assert asked.requests is not None
    assert asked.requests[BATCH_CPU] == "500"
    assert not {"cpu", "memory"} & (asked.requests.keys() | (asked.limits or {}).keys())
    assert calls > 1, "the API server asked again after its own defaults"


async def test_the_overhead_of_a_runtime_class_stays_native_for_no_other_is_taken(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace, team="data")
    kind = RuntimeClass(
        metadata=ObjectMeta(name=f"boxed-{namespace}"),
        handler="boxed",
        overhead=Overhead(podFixed={"cpu": "250m", "memory": "120Mi"}),
    )
    await client.create(kind)
    try:
        async with priorities(client, 5500) as named:
            rules = SPARK.replace("PRIORITY", named[5500])
            async with serving(cluster, client, tmp_path, rules):
                pod = a_pod(namespace, {"cpu": "1"}, labels={"app": "spark"}, annotations={})
                assert pod.spec is not None
                pod.spec.runtimeClassName = f"boxed-{namespace}"

                async def taken() -> bool:
                    await client.create(pod, dry_run=True)
                    return True

                await objects.until(taken, "the runtime class is known")
                made = await client.create(pod)
    finally:
        await client.delete(RuntimeClass, f"boxed-{namespace}")
    assert made.spec is not None
    assert made.spec.overhead == {"cpu": "250m", "memory": "120Mi"}
    assert made.spec.containers[0].resources is not None
    assert made.spec.containers[0].resources.requests == {BATCH_CPU: "1k"}


async def test_a_profile_that_names_no_class_of_the_cluster_refuses_and_says_so(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace, team="data")
    async with serving(cluster, client, tmp_path, SPARK.replace("PRIORITY", "nowhere")):
        said = await refusal(client, a_pod(namespace, {}, labels={"app": "spark"}))
    assert "profile_unusable: profile spark gives the PriorityClass nowhere" in said
    assert "create it, or name another" in said


async def test_a_dry_run_leaves_no_trace_and_a_creation_is_counted_at_once(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    rules = """
quotas:
  - {name: team, max: {cpu_milli: 1000}, min: {cpu_milli: 1000}}
total: {cpu_milli: 1000}
"""
    await mark(client, namespace)
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    async with serving(cluster, client, tmp_path, rules) as running:
        for _ in range(3):
            pod = a_pod(namespace, {"cpu": "600m"}, labels=labels)
            await client.create(pod, dry_run=True)
        assert not running.admission.webhook.book.of("team").used
        assert not await refusal(client, a_pod(namespace, {"cpu": "600m"}, labels=labels))
        said = await refusal(client, a_pod(namespace, {"cpu": "600m"}, labels=labels))
    assert "quota_over_runtime: quota team may use 1000 of cpu now and uses 600" in said


async def test_a_webhook_that_is_away_holds_up_borrowers_and_nobody_else(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace)
    gated = a_pod(namespace, {}, labels={"koordinator.sh/qosClass": "BE",
                                         "koordinator.sh/priority-class": "batch"})  # fmt: skip
    assert gated.spec is not None
    gated.spec.schedulingGates = [PodSchedulingGate(name="test.invalid/later")]
    async with serving(cluster, client, tmp_path) as running:
        await client.create(gated)
        await running.away()
        assert gated.metadata is not None
        assert gated.metadata.name is not None
        online = a_pod(namespace, {"cpu": "1"}, labels={"koordinator.sh/qosClass": "LS"})
        assert not await refusal(client, online)
        assert not await refusal(client, a_pod(namespace, {"cpu": "1"}))
        borrower = a_pod(namespace, {BATCH_CPU: 500}, labels={"koordinator.sh/qosClass": "BE"})
        said = await refusal(client, borrower)
        assert "failed calling webhook" in said
        assert "borrowers.admission.slackwater.io" in said
        # Whoever holds borrowers by finalizers or other labels gets on without us.
        body = {"metadata": {"labels": {"any": "label"}}}
        await client.patch(Pod, gated.metadata.name, body, namespace=namespace)
        system = a_pod("kube-system", {}, labels={"koordinator.sh/qosClass": "BE"})
        assert not await refusal(client, system), "what runs the cluster never waits for us"
        assert system.metadata is not None
        assert system.metadata.name is not None
        await client.delete(Pod, system.metadata.name, namespace="kube-system", grace_period=0)


async def test_a_webhook_that_hangs_holds_an_online_pod_up_for_a_moment_only(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace)
    async with serving(cluster, client, tmp_path) as running:
        port = running.admission.server.port
        await running.away()
        held: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(
            lambda _reader, writer: held.append(writer), "127.0.0.1", port
        )
        began_s = time.monotonic()
        assert not await refusal(client, a_pod(namespace, {"cpu": "1"}))
        took_s = time.monotonic() - began_s
        silent.close()
        for writer in held:
            writer.close()
    assert held, "it was asked"
    assert took_s < patient(5.0), "a second for each of the two webhooks"
