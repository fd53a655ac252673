"""deploy/ as it is written: made from one source, commands that exist, values that are checked."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from agents.classes import DEFAULT_PRIORITY
from scheduler_bridge.admission import configuration
from scheduler_bridge.admission import rules as rules_of_admission
from scheduler_bridge.admission.names import Resources
from schemas import keys, policy
from streams import slis_queries
from streams.topics_cli import default_policy
from tests.command_line import parse
from tests.kube import manifests
from tests.kube.errors import KubeError
from tests.kube.manifests import Manifest, Variants, component, containers, templates
from tests.kube.tools import Tools


def test_what_is_made_is_up_to_date(charting: Tools) -> None:
    """If this fails: python -m tests.kube.manifests."""
    assert manifests.WEBHOOKS.read_text() == manifests.webhooks()
    made = manifests.generated(charting)
    there = {
        path: path.read_text()
        for folder in {path.parent for path in made}
        for path in folder.glob("*.yaml")
        if path.name not in manifests.OWN
    }
    assert there == made


def test_the_base_is_whole(variants: Variants) -> None:
    def names(found: list[Manifest]) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in found}

    own = {("Namespace", manifests.NAMESPACE)}
    assert names(variants["base"]) == names(variants["chart"]) | own
    assert names(variants["observe"]) == names(variants["base"])


def test_s4_the_node_agent_is_not_privileged(variants: Variants) -> None:
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


def test_tokens_go_to_those_who_use_them(variants: Variants) -> None:
    accounts = [one for one in variants["everything"] if one["kind"] == "ServiceAccount"]
    assert not any(one["automountServiceAccountToken"] for one in accounts)
    with_token = {
        component(one)
        for one, pod in templates(variants["everything"])
        if pod["spec"]["automountServiceAccountToken"]
    }
    assert with_token == {"node", "bridge", "evictor", "extender", "admission"}


@pytest.mark.parametrize("variant", ["base", "observe", "everything", "uninstall", "all", "bare"])
def test_every_container_runs_a_command_that_exists(
    variants: Variants, variant: str, monkeypatch: pytest.MonkeyPatch
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
        if listens := parameters.keys() & {"metrics_port", "port"}:
            asked: dict[str, Any] = {"port": "metrics"}
            if listens == {"port"}:  # its one server, for metrics too
                asked = {"port": "serve", "scheme": "HTTPS"}
            number = int(parameters[listens.pop()])
            assert one["ports"] == [{"name": asked["port"], "containerPort": number}]
            assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", **asked}
            assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", **asked}
            assert one["startupProbe"]["httpGet"] == {"path": "/healthz", **asked}
        assert one["resources"]["limits"]["memory"]
        assert one["resources"]["requests"].keys() == {"cpu", "memory"}


def test_yarn_is_told_and_reached(charting: Tools) -> None:
    found = manifests.objects(manifests.render(charting, f"--set={manifests.YARN}"))
    (arguments,) = [one["args"] for name, one in containers(found) if name == "bridge"]
    assert parse(arguments)["yarn"] == "http://rm1:8088,http://rm2:8090"
    (ports,) = [
        rule["ports"]
        for one in found
        if one["metadata"]["name"] == "slackwater-bridge-yarn"
        for rule in one["spec"]["egress"]
    ]
    assert ports == [{"port": 8088}, {"port": 8090}]


def test_observe_writes_nothing(variants: Variants) -> None:
    arguments = {name: one["args"] for name, one in containers(variants["observe"])}
    assert "--dry-run" in arguments["node"]
    assert "--dry-run" in arguments["evictor"]
    assert "--sink=dry-run" in arguments["bridge"]


def test_uninstall_gives_back_on_every_machine_by_either_way(
    charting: Tools, variants: Variants
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


def test_keys_are_mounted_where_they_are_named(variants: Variants) -> None:
    keyed = set()
    for one, pod in templates(variants["everything"]):
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
    assert keyed == {"node", "worker", "evictor"}
    bare = [argument for _, one in containers(variants["bare"]) for argument in one["args"]]
    assert not any(argument.startswith("--keys") for argument in bare)


def test_what_is_doubled_is_budgeted_and_spread(variants: Variants) -> None:
    budgets = {
        component(one): one["spec"]
        for one in variants["everything"]
        if one["kind"] == "PodDisruptionBudget"
    }
    for one, pod in templates(variants["everything"]):
        if one["spec"].get("replicas", 1) > 1:
            labels = pod["metadata"]["labels"].items()
            assert budgets[component(one)]["selector"]["matchLabels"].items() <= labels
            spread = pod["spec"]["topologySpreadConstraints"]
            assert len(spread) == 2
            assert all(each["labelSelector"]["matchLabels"].items() <= labels for each in spread)


def test_everything_is_denied_by_default(variants: Variants) -> None:
    policies = [one for one in variants["everything"] if one["kind"] == "NetworkPolicy"]
    for _, pod in templates(variants["everything"]):
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
    variants: Variants,
) -> None:
    """So its job finds that it holds already, and publishes nothing."""
    (text,) = [one["data"]["policy.yaml"] for one in variants["base"] if one["kind"] == "ConfigMap"]
    own, shipped = policy.parse(text, "the chart's"), policy.parse(default_policy(), "shipped")
    assert policy.digest(own) == policy.digest(shipped)
    assert own.rollout.stage == "observe"


def test_classes_have_the_numbers_of_the_law_and_what_borrows_pushes_nobody_out(
    variants: Variants,
) -> None:
    found = {
        one["metadata"]["name"].removeprefix("slackwater-"): one
        for one in variants["base"]
        if one["kind"] == "PriorityClass"
    }
    numbers = {name: number for name, number in DEFAULT_PRIORITY.items() if name}
    assert {name: found[name]["value"] for name in numbers} == numbers
    borrowing = numbers.keys() - {"prod"}
    assert all(found[name]["preemptionPolicy"] == "Never" for name in borrowing)
    assert found.keys() - numbers.keys() == {"node", "control"}


def test_the_rules_that_come_along_may_run(variants: Variants) -> None:
    texts = [
        one["data"]["rules.yaml"]
        for one in variants["everything"]
        if one["kind"] == "ConfigMap" and component(one) == "admission"
    ]
    assert [rules_of_admission.parse(text.encode(), "rules.yaml").quotas for text in texts] == [()]


def test_queries_are_given_as_they_were_written(variants: Variants, tmp_path: Path) -> None:
    (said,) = [
        one["data"]["queries.yaml"]
        for one in variants["all"]
        if one["kind"] == "ConfigMap" and component(one) == "slis"
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(said)
    assert [one.workload for one in slis_queries.read(file).services] == ["shop/web"]
    (rule,) = [
        one["spec"]["egress"]
        for one in variants["all"]
        if one["kind"] == "NetworkPolicy" and component(one) == "slis"
    ]
    assert [each["ports"] for each in rule] == [[{"port": 9090}]]


@pytest.mark.parametrize("variant", ["everything", "all"])
def test_the_api_server_is_told_what_admission_says_it_needs(
    variants: Variants, variant: str
) -> None:
    service = {"name": "slackwater-admission", "namespace": manifests.NAMESPACE, "port": 443}
    client: dict[str, Any] = {"service": service}
    if variant == "all":
        client["caBundle"] = "bm9ib2R5Cg=="
    said = [one for one in variants[variant] if one["kind"].endswith("WebhookConfiguration")]
    wanted = configuration.configurations(client, Resources(), manifests.NAMESPACE)
    kinds = {one["kind"]: one["webhooks"] for one in said}
    assert kinds == {one["kind"]: one["webhooks"] for one in wanted}
    (service_there,) = [
        one
        for one in variants[variant]
        if one["kind"] == "Service" and component(one) == "admission"
    ]
    assert service_there["metadata"]["name"] == service["name"]
    assert [port["port"] for port in service_there["spec"]["ports"]] == [443]


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
        ("node.namespace=slackwater", "node.namespace"),
        ("node.stateFolder=/etc", "/node/stateFolder"),
        ("node.stateFolder=/usr/share/x", "/node/stateFolder"),
        ("node.stateFolder=/var/lib/kubelet/x", "/node/stateFolder"),
        ("node.stateFolder=/var/lib/../../etc", "/node/stateFolder"),
        ("node.cgroups=/sys/../etc", "/node/cgroups"),
        ("keys.nodeFolder=/var/../root", "/keys/nodeFolder"),
        ("topics.partitions=1001", "/topics/partitions"),
        ("bridge.sink=nobody", "/bridge/sink"),
        ("workers.replicas=3", "'workers' not allowed"),
        ("worker.extraArgs={level=debug}", "/worker/extraArgs/0"),
        ("admission.enabled=true", "admission.caBundle"),
        ("slis.enabled=true", "slis.queries"),
        ("bridge.yarn={rm1}", "/bridge/yarn/0"),
        ("bridge.sink=dry-run,bridge.yarn={http://rm1:8088}", "bridge.yarn"),
        ("admission.recalls=kill", "/admission/recalls"),
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
