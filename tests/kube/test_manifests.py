"""deploy/ on the real API server: everything is accepted, nothing may more than it must."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.reconcile import Amount
from schemas import keys, policy
from streams.topics_cli import default_policy
from tests.command_line import parse
from tests.kube import manifests
from tests.kube.api import Api, Refused
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes
from tests.kube.errors import KubeError
from tests.kube.manifests import Manifest
from tests.kube.telling import shows, telling
from tests.kube.tools import Tools

# Every switch of the chart turned the other way.
ALL = (
    "monitoring.enabled=true",
    "monitoring.labels.release=prometheus",
    "node.cpuManager=true",
    "node.hostPID=true",
    "node.dryRun=true",
    "node.kubeletInsecure=true",
    "node.capabilities={KILL,SYS_PTRACE}",
    "node.bestEffortRoots={cpu/kubepods/besteffort,memory/kubepods/besteffort}",
    "keys.acceptUnsigned=true",
    "image.pullSecrets={registry}",
    "policy.canary={pool=pilot}",
    "bridge.sink=dry-run",
    "worker.extraArgs={--level=debug}",
    "worker.nodeSelector.pool=system",
    "networkPolicies.metrics[0].namespaceSelector.matchLabels.name=monitoring",
    "networkPolicies.kafka[0].ipBlock.cidr=10.0.0.0/8",
)
BARE = (
    "keys.secret=",
    "keys.nodeFolder=",
    "networkPolicies.enabled=false",
    "priorityClasses.enabled=false",
    "node.createNamespace=false",
)
WORKLOADS = {"DaemonSet", "Deployment", "Job", "StatefulSet"}
RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
STANDING = {"Namespace", "ServiceAccount", "PriorityClass"} | RIGHTS  # what pods and rights need
READ = ("get", "list", "watch")
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
        *(("", "pods", "", verb) for verb in ("list", "watch")),
        *(
            ("topology.node.k8s.io", "noderesourcetopologies", "", verb)
            for verb in ("get", "patch")
        ),
        *lease("bridge"),
    },
}


@pytest.fixture(scope="session")
def variants(charting: Tools) -> dict[str, list[Manifest]]:
    """What an operator may apply, by name."""
    overlays = manifests.BASE.parent
    return {
        "base": manifests.objects(charting.kustomize(manifests.BASE)),
        "observe": manifests.objects(charting.kustomize(overlays / "observe")),
        "uninstall": manifests.objects(charting.kustomize(overlays / "uninstall")),
        "chart": manifests.objects(manifests.render(charting)),
        "all": manifests.objects(manifests.render(charting, *(f"--set={one}" for one in ALL))),
        "bare": manifests.objects(manifests.render(charting, *(f"--set={one}" for one in BARE))),
    }


@pytest.fixture(scope="module")
def api(cluster: Cluster, variants: dict[str, list[Manifest]]) -> Iterator[Api]:
    """The administrator, on a cluster that has the base's namespaces, accounts and rights."""
    own = Api(cluster.kubeconfig())
    standing = [one for one in variants["base"] if one["kind"] in STANDING]
    standing.sort(key=lambda one: one["kind"] != "Namespace")
    try:
        for one in standing:
            own.apply(one, dry_run=False)
        yield own
    finally:
        for one in reversed(standing):
            own.delete(one)
        own.close()


def templates(found: list[Manifest]) -> list[tuple[Manifest, Manifest]]:
    """(workload, the pod that it makes)."""
    made = []
    for one in found:
        if one["kind"] in WORKLOADS:
            template = one["spec"]["template"]
            meta = {**template["metadata"], "name": "p", "namespace": one["metadata"]["namespace"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
            made.append((one, pod))
    return made


def component(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def containers(found: list[Manifest]) -> list[tuple[str, Manifest]]:
    """(component, container), those of the start included."""
    return [
        (component(one), each)
        for one, pod in templates(found)
        for each in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])
    ]


def test_the_base_is_what_the_chart_gives(charting: Tools) -> None:
    """If this fails: python -m tests.kube.manifests."""
    files = manifests.base_files(charting)
    there = {path.name: path.read_text() for path in manifests.BASE.glob("*.yaml")}
    assert {name: there[name] for name in there.keys() - manifests.OWN} == files


def test_the_base_is_whole(variants: dict[str, list[Manifest]]) -> None:
    def names(found: list[Manifest]) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in found}

    own = {("Namespace", manifests.NAMESPACE)}
    assert names(variants["base"]) == names(variants["chart"]) | own
    assert names(variants["observe"]) == names(variants["base"])


@pytest.mark.parametrize("variant", ["base", "observe", "uninstall", "chart", "all", "bare"])
def test_every_object_passes_a_server_side_dry_run(
    api: Api, variants: dict[str, list[Manifest]], variant: str
) -> None:
    unknown = [one["kind"] for one in variants[variant] if not api.serves(one)]
    assert set(unknown) <= {"PodMonitor"}, "kinds of operators that are not here"
    warned = {
        (one["kind"], one["metadata"]["name"]): warnings
        for one in variants[variant]
        if api.serves(one) and (warnings := api.apply(one, dry_run=True))
    }
    assert warned == {}


def test_a_field_that_does_not_exist_is_refused(
    api: Api, variants: dict[str, list[Manifest]]
) -> None:
    """Else the dry run would show nothing."""
    pod = next(pod for one, pod in templates(variants["base"]) if component(one) == "worker")
    with pytest.raises(Refused, match="readOnlyRoot"):
        api.apply({**pod, "spec": {**pod["spec"], "readOnlyRoot": True}}, dry_run=True)


@pytest.mark.parametrize("variant", ["base", "observe", "all", "bare"])
def test_s4_all_but_the_node_agent_are_restricted(
    api: Api, variants: dict[str, list[Manifest]], variant: str
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


def test_s4_the_node_agent_is_not_privileged(variants: dict[str, list[Manifest]]) -> None:
    ((_, pod),) = [one for one in templates(variants["base"]) if component(one[0]) == "node"]
    spec = pod["spec"]
    assert not (spec["hostPID"] or spec.get("hostNetwork") or spec.get("hostIPC"))
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (one,) = spec["containers"]
    assert one["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    writable = {
        host[mount["name"]] for mount in one["volumeMounts"] if not mount.get("readOnly", False)
    }
    best_effort = "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice"
    assert writable == {best_effort, "/var/lib/slackwater"}
    assert set(host.values()) - writable == {"/sys/fs/cgroup", "/etc/slackwater/keys"}


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
    cluster: Cluster, api: Api, variants: dict[str, list[Manifest]]
) -> None:
    accounts = [one for one in variants["base"] if one["kind"] == "ServiceAccount"]
    assert len(accounts) >= 6
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


def test_s5_no_wildcard_and_no_secret(variants: dict[str, list[Manifest]]) -> None:
    for one in variants["all"]:
        if one["kind"] in {"ClusterRole", "Role"}:
            for rule in one["rules"]:
                assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
                assert not {"secrets", "nodes/proxy", "pods/exec"} & set(rule["resources"])


def test_tokens_go_to_those_who_use_them(variants: dict[str, list[Manifest]]) -> None:
    accounts = [one for one in variants["base"] if one["kind"] == "ServiceAccount"]
    assert not any(one["automountServiceAccountToken"] for one in accounts)
    with_token = {
        component(one)
        for one, pod in templates(variants["base"])
        if pod["spec"]["automountServiceAccountToken"]
    }
    assert with_token == MAY.keys()


@pytest.mark.parametrize("variant", ["base", "observe", "uninstall", "all", "bare"])
def test_every_container_runs_a_command_that_exists(
    variants: dict[str, list[Manifest]], variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = "kafka.example:9092" if variant == "observe" else "kafka.kafka.svc:9092"
    for name, one in containers(variants[variant]):
        if "command" in one:
            assert (variant, name, one["command"]) == ("uninstall", "node", ["sleep", "infinity"])
            continue
        for variable in one.get("env", []):
            monkeypatch.setenv(variable["name"], variable.get("value", "told by the kubelet"))
        parameters = parse(one["args"])
        if "brokers" in parameters:
            assert parameters["brokers"] == brokers, name
            assert parameters["prefix"] == "slackwater.", name
        if "metrics_port" in parameters:
            assert one["ports"] == [
                {"name": "metrics", "containerPort": int(parameters["metrics_port"])}
            ]
            assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
            assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert one["resources"]["limits"]["memory"]
        assert one["resources"]["requests"].keys() == {"cpu", "memory"}


def test_observe_writes_nothing(variants: dict[str, list[Manifest]]) -> None:
    arguments = {name: one["args"] for name, one in containers(variants["observe"])}
    assert "--dry-run" in arguments["node"]
    assert "--sink=dry-run" in arguments["bridge"]


def test_uninstall_gives_back_on_every_machine_by_either_way(
    charting: Tools, variants: dict[str, list[Manifest]]
) -> None:
    rendered = manifests.objects(manifests.render(charting, "--set=node.uninstall=true"))
    shown = []
    for found in (variants["uninstall"], rendered):
        ((_, pod),) = [one for one in templates(found) if component(one[0]) == "node"]
        (first,), (then,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
        parse(first["args"])
        assert "/var/lib/slackwater" in {each["mountPath"] for each in first["volumeMounts"]}
        assert not {"livenessProbe", "readinessProbe", "startupProbe"} & (
            first.keys() | then.keys()
        )
        security = first["securityContext"], then["securityContext"]
        shown.append((first["args"], security, then["command"], then.get("args")))
    assert shown[0] == shown[1]


def test_keys_are_mounted_where_they_are_named(variants: dict[str, list[Manifest]]) -> None:
    keyed = set()
    for one, pod in templates(variants["base"]):
        (main,) = pod["spec"]["containers"]
        if "--keys=/etc/slackwater/keys" in main["args"]:
            keyed.add(component(one))
            mounts = {each["mountPath"]: each for each in main["volumeMounts"]}
            assert mounts["/etc/slackwater/keys"]["readOnly"]
            for volume in pod["spec"]["volumes"]:
                if "secret" in volume:
                    assert volume["secret"]["defaultMode"] == 0o400
                    assert pod["spec"]["securityContext"]["fsGroup"] == 10001
                    # What the kubelet makes of it is what our reader lets through.
                    mode = stat.S_IFREG | 0o440
                    keys.check_owner(keys.WORKER_KEY, "worker.key", mode, 0, 10001)
    assert keyed == {"node", "worker"}
    bare = [argument for _, one in containers(variants["bare"]) for argument in one["args"]]
    assert not any(argument.startswith("--keys") for argument in bare)


def test_what_is_doubled_is_budgeted_and_spread(variants: dict[str, list[Manifest]]) -> None:
    budgets = {
        component(one): one["spec"]
        for one in variants["base"]
        if one["kind"] == "PodDisruptionBudget"
    }
    for one, pod in templates(variants["base"]):
        if one["spec"].get("replicas", 1) > 1:
            labels = pod["metadata"]["labels"].items()
            assert budgets[component(one)]["selector"]["matchLabels"].items() <= labels
            spread = pod["spec"]["topologySpreadConstraints"]
            assert len(spread) == 2
            assert all(each["labelSelector"]["matchLabels"].items() <= labels for each in spread)


def test_everything_is_denied_by_default(variants: dict[str, list[Manifest]]) -> None:
    policies = [one for one in variants["base"] if one["kind"] == "NetworkPolicy"]
    for _, pod in templates(variants["base"]):
        meta = pod["metadata"]
        directions = {
            direction
            for one in policies
            if one["metadata"]["namespace"] == meta["namespace"]
            and one["spec"]["podSelector"]["matchLabels"].items() <= meta["labels"].items()
            for direction in one["spec"]["policyTypes"]
        }
        assert directions == {"Ingress", "Egress"}


def test_the_policy_that_comes_along_is_the_default_one(
    variants: dict[str, list[Manifest]],
) -> None:
    """So its job finds that it holds already, and publishes nothing."""
    (text,) = [one["data"]["policy.yaml"] for one in variants["base"] if one["kind"] == "ConfigMap"]
    own, shipped = policy.parse(text, "the chart's"), policy.parse(default_policy(), "shipped")
    assert policy.digest(own) == policy.digest(shipped)
    assert own.rollout.stage == "observe"


def test_a_job_that_changes_has_another_name(charting: Tools) -> None:
    def jobs(*options: str) -> set[str]:
        found = manifests.objects(manifests.render(charting, *options))
        return {one["metadata"]["name"] for one in found if one["kind"] == "Job"}

    usual = jobs()
    assert jobs("--set=worker.replicas=3") == usual
    assert len(jobs("--set=topics.partitions=48") & usual) == 1
    assert len(jobs("--set=policy.canary={pool=pilot}") & usual) == 1
    assert len(jobs("--set-string=policy.text=name: default") & usual) == 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("worker.replicas=0", "/worker/replicas"),
        ("worker.replica=3", "'replica' not allowed"),
        ("kafka.brokers=kafka", "/kafka/brokers"),
        ("node.capabilities={SYS_ADMIN}", "/node/capabilities/0"),
        ("node.bestEffortRoots={}", "/node/bestEffortRoots"),
        ("node.bestEffortRoots={../x}", "/node/bestEffortRoots/0"),
        ("topics.partitions=1001", "/topics/partitions"),
        ("bridge.sink=nobody", "/bridge/sink"),
        ("workers.replicas=3", "'workers' not allowed"),
        ("worker.extraArgs={level=debug}", "/worker/extraArgs/0"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(charting: Tools, value: str, named: str) -> None:
    with pytest.raises(KubeError) as error:
        manifests.render(charting, f"--set={value}")
    assert named in str(error.value)


def test_helm_finds_no_fault(charting: Tools) -> None:
    assert "0 chart(s) failed" in charting.helm("lint", "--strict", str(manifests.CHART))


def test_the_version_is_the_package_s(charting: Tools, tmp_path: Path) -> None:
    chart: dict[str, Any] = manifests.objects((manifests.CHART / "Chart.yaml").read_text())[0]
    project = (manifests.DEPLOY.parent / "pyproject.toml").read_text()
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert chart["version"] == chart["appVersion"]
    # What is packed is what is rendered: nothing of it is left out by .helmignore.
    copy = tmp_path / "chart"
    shutil.copytree(manifests.CHART, copy)
    charting.helm("package", str(copy), f"--destination={tmp_path}")
    packed = tmp_path / f"slackwater-{chart['version']}.tgz"
    given = charting.helm("template", "slackwater", str(packed), "--namespace=slackwater")
    assert given == manifests.render(charting)


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
