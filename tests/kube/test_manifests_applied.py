"""deploy/ on the real API server: everything is accepted, no account may more than it must."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.core_v1 import PodSchedulingGate
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.admission import cluster as admission_cluster
from scheduler_bridge.admission import rules as rules_of_admission
from scheduler_bridge.admission.gang import Decision
from scheduler_bridge.admission.gang_keeper import GangKeeper
from scheduler_bridge.admission.metrics import ADMISSION_TABLE
from scheduler_bridge.admission.names import GANG_GATE, GANG_LABELS, GANG_MIN_LABEL, Resources
from scheduler_bridge.evictions.api import EvictionApi
from scheduler_bridge.evictions.victim import victim
from scheduler_bridge.extender.api import ExtenderApi
from scheduler_bridge.extender.settings import ExtenderSettings
from scheduler_bridge.extender.wire import Binding
from scheduler_bridge.kube.client import Kube, connect
from scheduler_bridge.kube.election import Election
from scheduler_bridge.kube.errors import KubeRefused
from scheduler_bridge.kube.mirror import Mirror
from scheduler_bridge.metrics import Metrics
from scheduler_bridge.reconcile import Amount
from tests.kube import manifests, objects
from tests.kube.api import Api, Refused
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.manifests import Manifest, Variants, component, templates
from tests.kube.telling import shows, telling
from tests.kube.tools import Tools
from tests.support import patient

RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
STANDING = {"Namespace", "ServiceAccount", "PriorityClass"} | RIGHTS  # what pods and rights need
LOOK = ("list", "watch")
READ = ("get", *LOOK)
LEASES = "coordination.k8s.io"


def lease(component: str) -> set[tuple[str, str, str, str]]:
    """Make one, and have one of that name."""
    own = f"slackwater-{component}"
    return {
        (LEASES, "leases", "", "create"),
        *((LEASES, "leases", own, verb) for verb in ("get", "update")),
    }


# (group, resource, name, verb) of each component, and nothing else.
MAY: dict[str, set[tuple[str, str, str, str]]] = {
    "node": {("", "nodes", "", "get"), ("", "nodes/pods", "", "get")},
    "bridge": {
        *(("", "nodes", "", verb) for verb in READ),
        ("", "nodes/status", "", "patch"),
        *(("", "pods", "", verb) for verb in LOOK),
        *(
            ("topology.node.k8s.io", "noderesourcetopologies", "", verb)
            for verb in ("get", "patch")
        ),
        *lease("bridge"),
    },
    "evictor": {
        *(("", "nodes", "", verb) for verb in LOOK),
        *(("", "pods", "", verb) for verb in READ),
        ("", "pods/eviction", "", "create"),
        *lease("evictor"),
    },
    "extender": {
        *(("", "nodes", "", verb) for verb in LOOK),
        *(("", "pods", "", verb) for verb in READ),
        ("", "pods/binding", "", "create"),
    },
    "admission": {
        *(("", "namespaces", "", verb) for verb in READ),
        *(("", "nodes", "", verb) for verb in LOOK),
        *(("", "pods", "", verb) for verb in (*READ, "patch")),
        ("", "pods/status", "", "patch"),
        ("", "pods/eviction", "", "create"),
        *(("scheduling.k8s.io", "priorityclasses", "", verb) for verb in LOOK),
        *lease("admission"),
    },
}
NOTHING = {"worker", "fleet", "topics", "policy"}


@pytest.fixture(scope="module")
def api(cluster: Cluster, variants: Variants) -> Iterator[Api]:
    """The administrator, on a cluster that has the base's namespaces, accounts and rights."""
    own = Api(cluster.kubeconfig())
    standing = [one for one in variants["everything"] if one["kind"] in STANDING]
    accounts = [one for one in variants["all"] if one["kind"] == "ServiceAccount"]
    standing += [one for one in accounts if one not in standing]
    standing.sort(key=lambda one: one["kind"] != "Namespace")
    try:
        for one in standing:
            own.apply(one, dry_run=False)
        yield own
    finally:
        for one in reversed(standing):
            own.delete(one)
        own.close()


@pytest.mark.parametrize(
    "variant", ["base", "observe", "everything", "uninstall", "chart", "all", "bare"]
)
def test_every_object_passes_a_server_side_dry_run(
    api: Api, variants: Variants, variant: str
) -> None:
    unknown = [one["kind"] for one in variants[variant] if not api.serves(one)]
    assert set(unknown) <= {"PodMonitor", "Certificate", "Issuer"}, (
        "kinds of operators that are not here"
    )
    warned = {
        (one["kind"], one["metadata"]["name"]): warnings
        for one in variants[variant]
        if api.serves(one) and (warnings := api.apply(one, dry_run=True))
    }
    assert warned == {}


def test_a_field_that_does_not_exist_is_refused(api: Api, variants: Variants) -> None:
    """Else the dry run would show nothing."""
    pod = next(pod for one, pod in templates(variants["base"]) if component(one) == "worker")
    with pytest.raises(Refused, match="readOnlyRoot"):
        api.apply({**pod, "spec": {**pod["spec"], "readOnlyRoot": True}}, dry_run=True)


@pytest.mark.parametrize("variant", ["base", "observe", "everything", "all", "bare"])
def test_s4_all_but_the_node_agent_are_restricted(
    api: Api, variants: Variants, variant: str
) -> None:
    for workload, pod in templates(variants[variant]):
        if component(workload) != "node":
            assert api.apply(pod, dry_run=True) == []
            continue
        api.apply(pod, dry_run=True)
        meta = {**pod["metadata"], "namespace": manifests.NAMESPACE}
        spec = {**pod["spec"], "serviceAccountName": "slackwater-worker"}
        with pytest.raises(Refused, match="hostPath"):
            api.apply({**pod, "metadata": meta, "spec": spec}, dry_run=True)


def rules(api: Api, account: str, namespace: str) -> set[tuple[str, str, str, str]]:
    """What an account may do, as the API server itself sums it up."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    found, _ = api.call("POST", path, review)
    assert not found["status"].get("evaluationError"), account
    return {
        (group, resource, name, verb)
        for rule in found["status"]["resourceRules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_s5_accounts_may_what_they_must_and_nothing_else(
    cluster: Cluster, api: Api, variants: Variants
) -> None:
    accounts = [one for one in variants["everything"] if one["kind"] == "ServiceAccount"]
    assert {component(one) for one in accounts} == MAY.keys() | NOTHING
    stranger = Api(cluster.kubeconfig("stranger", ""))
    try:
        anybody = rules(stranger, "stranger", manifests.NAMESPACE)
    finally:
        stranger.close()
    for one in accounts:
        name, own = one["metadata"]["name"], one["metadata"]["namespace"]
        user = Api(cluster.kubeconfig(f"system:serviceaccount:{own}:{name}", ""))
        try:
            for namespace in (own, "kube-system"):
                wanted = MAY.get(component(one), set())
                if namespace != own:
                    wanted = {each for each in wanted if each[1] != "leases"}
                assert rules(user, name, namespace) - anybody == wanted, name
        finally:
            user.close()


def account(name: str) -> tuple[str, str]:
    return f"system:serviceaccount:{manifests.NAMESPACE}:slackwater-{name}", ""


@pytest.mark.usefixtures("api")
async def test_s5_the_bridge_s_account_is_enough_for_the_bridge(
    cluster: Cluster, client: AsyncClient, nodes: Nodes
) -> None:
    node = await nodes.join()
    own = account("bridge")
    async with telling(
        cluster, "slackwater-bridge", user=own, namespace=manifests.NAMESPACE
    ) as told:
        told.want(node, 3_000)
        await shows(client, node, "3k")
        told.want(node, 2_000, new_work=False, offset=2)
        told.lent[node] = Amount(1_000, 1 << 20)
        await shows(client, node, "2k", "1k")
        kube = told.kube.api
        patch = {"spec": {"unschedulable": True}}
        for refused in (
            kube.patch(Node, node, patch),
            kube.delete(Node, node),
            kube.delete(Pod, "any", namespace="default"),
            kube.get(Lease, "another", namespace=manifests.NAMESPACE),
        ):
            with pytest.raises(ApiError) as error:
                await refused
            assert error.value.status.code == 403


@pytest.mark.usefixtures("api")
async def test_s5_the_extender_s_account_is_enough_for_the_extender(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes
) -> None:
    node = await nodes.join()
    pod = await client.create(a_pod("one", namespace))
    assert pod.metadata is not None
    assert pod.metadata.uid is not None
    async with connect(cluster.kubeconfig(*account("extender"))) as kube:
        extender = ExtenderApi(kube, ExtenderSettings("kafka:9092").resources)
        await extender.bind(Binding("one", namespace, pod.metadata.uid, node))
        found = await extender.pod(namespace, "one")
        assert found is not None
        assert found.node == node
        await listed(kube, Node, Pod)
        with pytest.raises(KubeRefused, match="nodes"):
            await extender.annotate(node, "slackwater.io/load-score", "1")


@pytest.mark.usefixtures("api")
async def test_s5_the_evictor_s_account_is_enough_for_the_evictor(
    cluster: Cluster, client: AsyncClient, namespace: str
) -> None:
    await client.create(a_pod("one", namespace))
    async with connect(cluster.kubeconfig(*account("evictor"))) as kube:
        evictor = EvictionApi(kube)
        seen = await evictor.look(namespace, "one")
        assert seen is not None
        chosen = victim(seen, "evict_cpu")
        refused = await evictor.delete(chosen, dry_run=False)
        assert (refused.kind, refused.reason) == ("wait", "api_refuses")
        assert (await evictor.evict(chosen, dry_run=False)).kind == "evicted"
        await listed(kube, Pod)
        await elected(kube, "evictor")


@pytest.mark.usefixtures("api")
async def test_s5_admission_s_account_is_enough_for_admission(
    cluster: Cluster, client: AsyncClient, namespace: str
) -> None:
    async with connect(cluster.kubeconfig(*account("admission"))) as kube:
        known = admission_cluster.Cluster(kube, Resources())
        mirrors = asyncio.create_task(known.run())
        try:
            await known.wait_synced()
            rules = rules_of_admission.Gangs()
            keeper = GangKeeper(kube, known, Metrics(ADMISSION_TABLE), lambda: True, lambda: rules)
            for name in ("one", "two"):
                await client.create(a_pod(name, namespace, gate=GANG_GATE))

            async def shown() -> bool:
                return len(list(keeper._members())) == 2

            await objects.until(shown, "the mirror shows both")
            one, two = sorted(keeper._members(), key=lambda member: member.name)
            assert await keeper._open(one)
            await keeper._reject(Decision((namespace, "g"), "reject", (two,), "no room"))
        finally:
            mirrors.cancel()
            with suppress(asyncio.CancelledError):
                await mirrors
        await elected(kube, "admission")
        with pytest.raises(ApiError) as error:
            await kube.api.delete(Pod, "one", namespace=namespace)
        assert error.value.status.code == 403
    free = await client.get(Pod, "one", namespace=namespace)
    failed = await client.get(Pod, "two", namespace=namespace)
    assert free.spec is not None
    assert failed.status is not None
    assert (free.spec.schedulingGates, failed.status.phase) == (None, "Failed")


def a_pod(name: str, namespace: str, gate: str = "") -> Pod:
    """A best-effort pod that no scheduler takes; with a gate: of a gang of two."""
    labels = {"koordinator.sh/qosClass": "BE"}
    if gate:
        labels |= {GANG_LABELS[0]: "g", GANG_MIN_LABEL: "2"}
    pod = objects.new_pod(name, namespace, {}, labels)
    assert pod.spec is not None
    pod.spec.schedulerName = "nobody"
    pod.spec.schedulingGates = [PodSchedulingGate(name=gate)] if gate else None
    return pod


async def listed(kube: Kube, *kinds: Any) -> None:
    """What a mirror asks: a list, and a watch."""
    for kind in kinds:
        mirror: Mirror[str] = Mirror(kube, kind, lambda one: str(one.metadata.name))
        task = asyncio.create_task(mirror.run())
        try:
            async with asyncio.timeout(patient(10)):
                await mirror.wait_synced()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def elected(kube: Kube, component: str) -> None:
    """A whole term: made, renewed, given back."""
    election = Election(kube, manifests.NAMESPACE, f"slackwater-{component}", "me", lease_s=1)
    task = asyncio.create_task(election.run())

    async def leads() -> bool:
        return election.leads

    try:
        await objects.until(leads, f"{component} leads")
        await asyncio.sleep(0.5)  # three renewals
        assert election.leads
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_s5_no_wildcard_and_no_secret(variants: Variants) -> None:
    for one in variants["all"]:
        if one["kind"] in {"ClusterRole", "Role"}:
            for rule in one["rules"]:
                assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
                assert not {"secrets", "nodes/proxy", "pods/exec"} & set(rule["resources"])


async def test_helm_installs_upgrades_and_leaves_nothing(
    cluster: Cluster, charting: Tools, namespace: str
) -> None:
    release = f"r{namespace}"
    said = ("-n", namespace, f"--set=node.namespace={namespace}-node")

    def run(*arguments: str) -> None:
        charting.helm(*arguments, kubeconfig=cluster.kubeconfig())

    def made(*options: str) -> list[Manifest]:
        return manifests.objects(
            charting.helm("template", release, str(manifests.CHART), *said, *options)
        )

    change = "--set=topics.partitions=48"
    before, after = made(), made(change)
    api = Api(cluster.kubeconfig())
    try:
        run("install", release, str(manifests.CHART), *said)
        assert [one["metadata"]["name"] for one in before if not api.there(one)] == []
        run("upgrade", release, str(manifests.CHART), *said, change)
        assert [one["metadata"]["name"] for one in after if not api.there(one)] == []
        old = [one for one in before if one not in after and not api.there(one)]
        assert [(one["kind"], component(one)) for one in old] == [("Job", "topics")]
        run("uninstall", release, "-n", namespace)
        assert [one["metadata"]["name"] for one in after if api.there(one)] == []
    finally:
        api.close()
