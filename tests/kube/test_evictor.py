"""The evictor on a real API server and a real broker: asked once, in its limits, whatever dies."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from lightkube import AsyncClient
from lightkube.models.apps_v1 import ReplicaSetSpec
from lightkube.models.core_v1 import PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import ReplicaSet
from lightkube.resources.core_v1 import Pod

from scheduler_bridge.evictions.budget import Limits
from streams.dev_broker import DevBroker
from tests.kube import objects
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.evictor import Log, apart, running, shipped_rights
from tests.kube.pods import BEST_EFFORT, best_effort, budget, settled

WIDE = Limits(per_node=100, per_namespace=100, fleet=100, node_rest_ms=0)


@pytest.fixture
async def log(broker: DevBroker, prefix: str) -> AsyncIterator[Log]:
    async with Log(broker.bootstrap, prefix) as own:
        yield own


def uid(pod: Pod) -> str:
    assert pod.metadata is not None
    assert pod.metadata.uid
    return pod.metadata.uid


async def is_going(client: AsyncClient, pod: Pod) -> bool:
    assert pod.metadata is not None
    found = await client.get(Pod, str(pod.metadata.name), namespace=str(pod.metadata.namespace))
    assert found.metadata is not None
    return found.metadata.deletionTimestamp is not None


async def test_s5_the_shipped_rights_are_enough(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pod = await best_effort(client, namespace, "one", node=node)
    async with (
        shipped_rights(cluster, client, namespace) as kubeconfig,
        running(cluster, log, namespace, kubeconfig, limits=WIDE),
    ):
        await log.hand_over(node, uid(pod))
        assert (await log.says("evicted", uid(pod))).tries == 1


async def test_s6_a_budget_is_respected_and_then_the_pod_goes(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    one, two = [await best_effort(client, namespace, name, node=node) for name in ("one", "two")]
    await budget(client, namespace, at_least=2)
    await settled(client, namespace, allowed=0)
    async with running(cluster, log, namespace, limits=WIDE):
        order = await log.hand_over(node, uid(one))
        waits = await log.says("waiting", uid(one))
        assert (waits.reason, waits.command_id, waits.why) == (
            "disruption_budget", order, "cpu_starved",
        )  # fmt: skip
        assert not await is_going(client, one)
        await budget(client, namespace, at_least=1)
        done = await log.says("evicted", uid(one))
        assert done.tries >= 2
        assert (done.namespace, done.name, done.node) == (namespace, "one", node)
        assert await is_going(client, one)
        assert not await is_going(client, two)


async def test_s6_refused_and_gone_are_said_with_the_reason(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    label = {"koordinator.sh/qosClass": "LS"}
    online = await best_effort(client, namespace, "online", label, node=node)
    off = {"slackwater.io/evictable": "false"}
    spared = await best_effort(client, namespace, "spared", notes=off, node=node)
    gone = await best_effort(client, namespace, "gone", node=node)
    await objects.bury_pod(client, gone)
    again = await best_effort(client, namespace, "gone", node=node)
    elsewhere = await best_effort(client, namespace, "elsewhere", node=await nodes.join())
    async with running(cluster, log, namespace, limits=WIDE):
        every = (online, spared, gone, elsewhere)
        await log.hand_over("of-another-cluster", "stranger")
        await log.hand_over(node, *(uid(pod) for pod in every))
        await log.raw("acks", node, b"{no json")
        await log.raw("acks", node, b'{"decider": "evict_cpu"')
        for pod in every:
            await log.until(lambda pod=pod: bool(log.of(uid(pod))), "a word about each")  # type: ignore[misc]
        assert [log.of(uid(pod)) for pod in every] == [
            [("refused", "not_best_effort")], [("refused", "opted_out")],
            [("gone", "no_such_pod")], [("refused", "other_node")],
        ]  # fmt: skip
        await log.until(lambda: bool(log.letters), "a dead letter")
        assert [letter.reason for letter in log.letters] == ["broken_json"]
        assert not log.of("stranger"), "that is another evictor's"
    for pod in (online, spared, again, elsewhere):
        assert not await is_going(client, pod)


async def test_budgets_bound_a_node_and_who_waits_expires(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pods = [await best_effort(client, namespace, f"p{i}", node=node) for i in range(3)]
    limits = Limits(per_node=2, node_rest_ms=0)
    async with running(cluster, log, namespace, limits=limits, expire_ms=5_000):
        await log.hand_over(node, *(uid(pod) for pod in pods))
        await log.until(
            lambda: sum(each.outcome == "expired" for each in log.reports) == 1, "one expires"
        )
    outcomes = sorted(each.outcome for each in log.reports)
    assert outcomes == ["evicted", "evicted", "expired", "waiting"]
    assert {r.reason for r in log.reports if r.outcome != "evicted"} == {"node_budget"}
    assert sum([await is_going(client, pod) for pod in pods]) == 2
    async with running(cluster, log, namespace, limits=limits):
        again = await log.hand_over(node, uid(next_of(pods, log)))
        await log.until(
            lambda: any(r.command_id == again and r.reason == "node_budget" for r in log.reports),
            "the budget is known after a restart",
        )


def next_of(pods: list[Pod], log: Log) -> Pod:
    """The one that has not gone."""
    gone = {each.pod for each in log.reports if each.outcome == "evicted"}
    return next(pod for pod in pods if uid(pod) not in gone)


async def test_a_dry_run_says_and_does_nothing(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pod = await best_effort(client, namespace, "one", node=node)
    async with running(cluster, log, namespace, limits=WIDE, dry_run=True):
        await log.hand_over(node, uid(pod))
        assert (await log.says("evicted", uid(pod))).dry_run
    assert not await is_going(client, pod)


async def test_what_the_node_gave_up_is_left_alone(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pod = await best_effort(client, namespace, "one", node=node)
    await budget(client, namespace, at_least=1)
    await settled(client, namespace, allowed=0)
    async with running(cluster, log, namespace, limits=WIDE) as evictor:
        order = await log.hand_over(node, uid(pod))
        await log.says("waiting", uid(pod))
        await log.ack(node, order, outcome="failed")
        await log.until(lambda: not evictor.queue.pending, "nothing is pending")
        await budget(client, namespace, at_least=0)
        await settled(client, namespace, allowed=1)
    assert not await is_going(client, pod)


async def test_one_leads_another_stands_by_and_takes_over(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    first, second = [
        await best_effort(client, namespace, name, node=node) for name in ("one", "two")
    ]
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(running(cluster, log, namespace, limits=WIDE))
        await log.until(lambda: leader.ready and leader.election.leads, "the first one leads")
        async with running(cluster, log, namespace, limits=WIDE) as other:
            await log.until(lambda: other.ready, "the second one has read")
            await log.hand_over(node, uid(first))
            await log.says("evicted", uid(first))
            assert (leader.calls, other.calls) == (1, 0)
            await stack.aclose()
            await log.hand_over(node, uid(second))
            await log.says("evicted", uid(second))
            assert other.calls == 1
            assert not other.queue.pending
    assert len(log.reports) == 2


async def test_killed_in_the_middle_evicts_nobody_twice(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pods = [await best_effort(client, namespace, f"p{i}", node=node) for i in range(6)]
    options = ("--per-node", "100", "--node-rest-s", "0", "--rate", "2")
    async with apart(cluster, log, namespace, *options) as process:
        await log.hand_over(node, *(uid(pod) for pod in pods))
        await log.until(lambda: len(log.reports) >= 2, "some have gone", within_s=30)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    early = {each.pod for each in log.reports}
    assert len(early) < len(pods)
    async with running(cluster, log, namespace, limits=WIDE):
        await log.until(
            lambda: {each.pod for each in log.reports} == {uid(pod) for pod in pods},
            "all have gone",
            within_s=30,
        )
    evicted = [each.pod for each in log.reports if each.outcome == "evicted"]
    assert len(evicted) == len(set(evicted)), "nobody twice"
    assert {each.outcome for each in log.reports} <= {"evicted", "gone"}
    for pod in pods:
        assert await is_going(client, pod)


async def test_it_ends_by_sigterm(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pod = await best_effort(client, namespace, "one", node=node)
    async with apart(cluster, log, namespace) as process:
        await log.hand_over(node, uid(pod))
        await log.says("evicted", uid(pod), within_s=30)
        process.terminate()
        assert await process.wait() == 0


async def test_an_api_server_that_is_away_is_waited_for(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    node = await nodes.join()
    pod = await best_effort(client, namespace, "one", node=node)
    async with running(cluster, log, namespace, limits=WIDE) as evictor:
        await log.until(lambda: evictor.ready and evictor.election.leads, "it leads")
        cluster.api_server.kill()
        try:
            await log.hand_over(node, uid(pod))
            await log.until(lambda: uid(pod) in evictor.queue.pending, "it is known")
        finally:
            cluster.api_server.start()
        assert (await log.says("evicted", uid(pod), within_s=30)).outcome == "evicted"
    assert log.of(uid(pod))[-1] == ("evicted", "accepted")


MIGRATION = """
name: default
rollout: {stage: expand}
blast: {facts_stale_ms: 600000}
low_node_load: {low_cpu_percent: 30, high_cpu_percent: 60, consecutive_rounds: 1}
migration: {enabled: true, round_ms: 300, dry_run: %s, per_node: 1}
"""


async def made(client: AsyncClient, namespace: str, count: int) -> None:
    """A ReplicaSet of best-effort pods."""
    pod = objects.new_pod("etl", namespace, {"cpu": "100m"}, BEST_EFFORT)
    assert pod.metadata is not None
    template = PodTemplateSpec(metadata=ObjectMeta(labels=pod.metadata.labels), spec=pod.spec)
    selector = LabelSelector(matchLabels={"app": "batch"})
    spec = ReplicaSetSpec(selector=selector, replicas=count, template=template)
    meta = ObjectMeta(name="etl", namespace=namespace)
    await client.create(ReplicaSet(metadata=meta, spec=spec))


async def bound(client: AsyncClient, namespace: str) -> dict[str, Pod]:
    """Pods of the namespace that have a node, by uid."""
    found = {uid(pod): pod async for pod in client.list(Pod, namespace=namespace)}
    return {key: pod for key, pod in found.items() if objects.is_bound(pod)}


async def test_a_hot_node_is_relieved_and_the_pod_starts_elsewhere(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, log: Log
) -> None:
    hot = await nodes.join()
    await made(client, namespace, 4)

    async def all_run() -> bool:
        return len(await bound(client, namespace)) == 4

    await objects.until(all_run, "four pods are bound")
    first = await bound(client, namespace)
    for pod in first.values():
        await objects.run_pod(client, pod)
    cold = await nodes.join()
    await log.policy(1, MIGRATION % "true")
    await log.fleet_is_well()
    await log.usage(hot, 0, dict.fromkeys(first, 1_500))
    await log.usage(cold, 0, {})
    async with running(cluster, log, namespace, limits=WIDE):
        await log.until(lambda: len(log.reports) >= 1, "a dry run says who would go")
        would = log.reports[0]
        assert (would.outcome, would.dry_run, would.source) == ("evicted", True, "low_node_load")
        assert (would.why, would.node) == ("hot_cpu", hot)
        assert not any([await is_going(client, pod) for pod in first.values()])
        log.reports.clear()
    await log.policy(2, MIGRATION % "false")
    async with running(cluster, log, namespace, limits=WIDE) as evictor:
        await log.until(
            lambda: any(not one.dry_run and one.outcome == "evicted" for one in log.reports),
            "one goes",
        )
        gone = next(one.pod for one in log.reports if not one.dry_run)
        await objects.bury_pod(client, first[gone])

        new: list[Pod] = []

        async def starts_anew() -> bool:
            found = await bound(client, namespace)
            new[:] = [pod for key, pod in found.items() if key not in first]
            return bool(new)

        # The controllers may still be finding their way back to the API server that was killed.
        await objects.until(starts_anew, "its successor is bound", within_s=30)
        assert [pod.spec.nodeName for pod in new if pod.spec] == [cold]
        assert evictor.calls == 1, "one at a time from a node"
        assert [one.uid for one in evictor.migration.flights.all] == [gone]
