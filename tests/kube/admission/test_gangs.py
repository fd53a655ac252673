"""Gangs on the real scheduler: all members or none."""

from __future__ import annotations

from pathlib import Path

from lightkube import AsyncClient
from lightkube.models.core_v1 import PodSchedulingGate
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from tests.kube import objects
from tests.kube.admission.serving import a_pod, mark, refusal, serving
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes

NAME = "gang.scheduling.koordinator.sh/name"
LEAST = "gang.scheduling.koordinator.sh/min-available"
WAIT = "gang.scheduling.koordinator.sh/waiting-time"
GATE = "slackwater.io/gang"


def member(namespace: str, number: int, *, least: int = 5, wait: str = "10m") -> Pod:
    notes = {NAME: "train", LEAST: str(least), WAIT: wait}
    return a_pod(namespace, {"cpu": "1"}, name=f"member-{number}", annotations=notes)


async def bound(client: AsyncClient, namespace: str) -> int:
    count = 0
    async for pod in client.list(Pod, namespace=namespace):
        count += objects.is_bound(pod)
    return count


async def test_s5_with_its_own_rights_alone_a_gang_of_five_runs_in_five_places_and_not_in_four(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    await mark(client, namespace)
    for _ in range(2):
        await nodes.join(cpu_milli=2_500)
    async with serving(cluster, client, tmp_path) as running:
        for number in range(4):
            assert not await refusal(client, member(namespace, number))
        assert await bound(client, namespace) == 0
        assert not await refusal(client, member(namespace, 4))

        async def seen_whole() -> bool:
            return "no room for all" in running.gangs()

        await objects.until(seen_whole, "all five are there, and there is room for four")
        assert await bound(client, namespace) == 0
        assert running.metric("admission_gangs", act="release") == 0
        await nodes.join(cpu_milli=1_500)
        for number in range(5):
            pod = member(namespace, number)
            await objects.pod_becomes(client, pod, objects.is_bound, "bound")
        assert running.metric("admission_gangs", act="release") == 1


async def test_a_gang_that_waits_too_long_is_rejected_and_says_why(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    await mark(client, namespace)
    await nodes.join(cpu_milli=8_000)
    async with serving(cluster, client, tmp_path):
        for number in range(2):
            assert not await refusal(client, member(namespace, number, least=3, wait="1s"))

        def rejected(pod: Pod) -> bool:
            return pod.status is not None and pod.status.reason == "GangTimeout"

        for number in range(2):
            pod = await objects.pod_becomes(client, member(namespace, number), rejected, "rejected")
            assert pod.status is not None
            assert pod.status.phase == "Failed"
            assert pod.status.message == "2 of 3 members are there after 1 s"


async def test_gates_of_others_are_theirs_and_their_holders_are_waited_for(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    await mark(client, namespace)
    await nodes.join(cpu_milli=8_000)
    async with serving(cluster, client, tmp_path) as running:
        other = member(namespace, 0, least=2)
        assert other.spec is not None
        other.spec.schedulingGates = [PodSchedulingGate(name="other.invalid/gate")]
        made = await client.create(other)
        assert made.spec is not None
        assert [gate.name for gate in made.spec.schedulingGates or ()] == [
            "other.invalid/gate", GATE,
        ]  # fmt: skip
        assert not await refusal(client, member(namespace, 1, least=2))

        async def waits() -> bool:
            return "1 of 2 members" in running.gangs()

        await objects.until(waits, "the held member does not count")
        patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        await client.patch(Pod, "member-0", patch, namespace=namespace, patch_type=PatchType.JSON)
        for number in range(2):
            await objects.pod_becomes(client, member(namespace, number), objects.is_bound, "bound")


async def test_gangs_switched_off_leave_nobody_behind_a_gate(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    await mark(client, namespace)
    await nodes.join(cpu_milli=8_000)
    async with serving(cluster, client, tmp_path) as running:
        assert not await refusal(client, member(namespace, 0))
        await running.use("gangs: {enabled: false}")
        await objects.pod_becomes(client, member(namespace, 0), objects.is_bound, "bound")
        made = await client.create(member(namespace, 1))
        assert made.spec is not None
        assert not made.spec.schedulingGates


async def test_a_gang_that_does_not_say_how_many_is_refused(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    await mark(client, namespace)
    async with serving(cluster, client, tmp_path):
        pod = a_pod(namespace, {}, labels={"pod-group.scheduling.sigs.k8s.io/name": "g"})
        said = await refusal(client, pod)
        assert "gang_unclear: gang g has no least number of members; say it in" in said
