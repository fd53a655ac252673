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

import yaml

from tests.kube import tools
from tests.kube.errors import KubeError
from tests.kube.tools import Tools

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
BASE = DEPLOY / "kubernetes" / "base"
RELEASE = NAMESPACE = "slackwater"
OWN = {"kustomization.yaml", "namespace.yaml"}  # of the base; the rest is rendered
HEADER = "# Made from deploy/chart by `python -m tests.kube.manifests`; change it there.\n"

Manifest = dict[str, Any]


def render(helm: Tools, *options: str) -> str:
    """What the chart gives, with further options of `helm template`. Raises KubeError."""
    return helm.helm("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *options)


def objects(text: str) -> list[Manifest]:
    """The objects of a stream of YAML documents."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def base_files(helm: Tools) -> dict[str, str]:
    """File name -> content of everything of the base that is rendered."""
    files: dict[str, str] = {}
    pattern = r"^---\n# Source: [^/]+/templates/(\S+)\n"
    _, *parts = re.split(pattern, render(helm), flags=re.MULTILINE)
    for name, document in zip(parts[::2], parts[1::2], strict=True):
        files[name] = files.get(name, HEADER) + "---\n" + document.strip() + "\n"
    return files


def main() -> int:
    """Write the base again."""
    try:
        files = base_files(tools.find())
    except KubeError as error:
        sys.stderr.write(f"manifests: {error}\n")
        return 1
    for path in BASE.glob("*.yaml"):
        if path.name not in OWN | files.keys():
            path.unlink()
    for name, content in files.items():
        (BASE / name).write_text(content)
    sys.stderr.write(f"manifests: {len(files)} files in {BASE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
