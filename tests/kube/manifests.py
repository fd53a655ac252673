"""deploy/: the chart rendered, the kustomize base made of it, every object by its folder.

The chart is the one source; `deploy/kubernetes/base` is what it gives with its own values, kept in
the tree for those who use kustomize alone. `python -m tests.kube.manifests` writes it again; a test
fails while it differs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml

from scheduler_bridge.admission import configuration
from scheduler_bridge.admission.names import Resources
from tests.kube import tools
from tests.kube.errors import KubeError
from tests.kube.tools import Tools

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
BASE = DEPLOY / "kubernetes" / "base"
RELEASE = NAMESPACE = "slackwater"
OWN = {"kustomization.yaml", "namespace.yaml"}  # written by hand; the rest is rendered
COMPONENTS = {
    "admission": ("admission.enabled=true", "admission.certManager=true"),
    "extender": ("extender.enabled=true",),
}
"""What a cluster chooses: folders of their own beside the base, with the values that they take."""
WEBHOOKS = CHART / "files" / "webhooks.yaml"
HEADER = "# Made from deploy/chart by `python -m tests.kube.manifests`; change it there.\n"

WORKLOADS = {"DaemonSet", "Deployment", "Job", "StatefulSet"}

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
    "evictor.dryRun=true",
    "evictor.mayDelete=true",
    "slis.enabled=true",
    "extender.enabled=true",
    "extender.annotate=true",
    "admission.enabled=true",
    "admission.caBundle=bm9ib2R5Cg==",
    "worker.extraArgs={--level=debug}",
    "worker.nodeSelector.pool=system",
    "networkPolicies.metrics[0].namespaceSelector.matchLabels.name=monitoring",
    "networkPolicies.kafka[0].ipBlock.cidr=10.0.0.0/8",
)
# A value of several lines, in Helm's own words for JSON.
QUERIES = """
services:
  - workload: shop/web
    node_label: node
    window_ms: 30000
    p99: {query: "p99", unit: s}
    requests: {query: "requests", unit: per_s}
    errors: {query: "errors", unit: per_s}
"""
YARN = "bridge.yarn={http://rm1:8088,http://rm2:8090}"
BARE = (
    YARN,
    "keys.secret=",
    "keys.nodeFolder=",
    "networkPolicies.enabled=false",
    "priorityClasses.enabled=false",
    "priorityClasses.tenants=false",
    "node.createNamespace=false",
)

Manifest = dict[str, Any]
Variants = dict[str, list[Manifest]]
"""What an operator may apply, by name."""


def render(helm: Tools, *options: str) -> str:
    """What the chart gives, with further options of `helm template`. Raises KubeError."""
    return helm.helm("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *options)


def objects(text: str) -> list[Manifest]:
    """The objects of a stream of YAML documents."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


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


def generated(helm: Tools) -> dict[Path, str]:
    """Path -> content of everything in deploy/ that is made."""
    made = {BASE / name: text for name, text in _files(render(helm)).items()}
    for component, values in COMPONENTS.items():
        only = f"--show-only=templates/{component}.yaml"
        text = render(helm, only, *(f"--set={value}" for value in values))
        folder = BASE.with_name(component)
        made |= {folder / name: one for name, one in _files(text).items()}
    return made


def variants(helm: Tools) -> Variants:
    """Base, overlays, and the chart with its own, with all and with few values."""
    overlays = BASE.parent
    queries = f"--set-json=slis.queries={orjson.dumps(QUERIES).decode()}"
    return {
        "base": objects(helm.kustomize(BASE)),
        "observe": objects(helm.kustomize(overlays / "observe")),
        "everything": objects(helm.kustomize(overlays / "everything")),
        "uninstall": objects(helm.kustomize(overlays / "uninstall")),
        "chart": objects(render(helm)),
        "all": objects(render(helm, *(f"--set={one}" for one in ALL), queries)),
        "bare": objects(render(helm, *(f"--set={one}" for one in BARE))),
    }


def webhooks() -> str:
    """The chart's own file: what the API server is told of admission, with Helm's words in it."""
    service = {
        "name": "{{ .Release.Name }}-admission",
        "namespace": "{{ .Release.Namespace }}",
        "port": 443,
    }
    both = configuration.configurations(
        {"service": service}, Resources(), "{{ .Release.Namespace }}"
    )
    plain = orjson.loads(orjson.dumps(both))  # each part written out, instead of named elsewhere
    return yaml.safe_dump_all(plain, sort_keys=False, width=1000)


def _files(rendered: str) -> dict[str, str]:
    files: dict[str, str] = {}
    pattern = r"^---\n# Source: [^/]+/templates/(\S+)\n"
    _, *parts = re.split(pattern, rendered, flags=re.MULTILINE)
    for name, document in zip(parts[::2], parts[1::2], strict=True):
        files[name] = files.get(name, HEADER) + "---\n" + document.strip() + "\n"
    return files


def main() -> int:
    """Write all of it again."""
    WEBHOOKS.write_text(webhooks())
    try:
        made = generated(tools.find())
    except KubeError as error:
        sys.stderr.write(f"manifests: {error}\n")
        return 1
    for folder in {path.parent for path in made}:
        for path in folder.glob("*.yaml"):
            if path.name not in OWN and path not in made:
                path.unlink()
    for path, content in made.items():
        path.write_text(content)
    sys.stderr.write(f"manifests: {len(made)} files in {BASE.parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
