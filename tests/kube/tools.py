"""Helm and Kustomize, from the Go module proxy: what an operator applies deploy/ with.

Built by `make kube` after the cluster's programs; tests only ask (`find`).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kube.errors import KubeError, MissingError
from tests.kube.go_module import GoModule, Say

MODULE = Path(__file__).with_name("tools")


@dataclass(frozen=True)
class Tools:
    """Where the two programs are."""

    folder: Path

    def helm(self, *arguments: str, kubeconfig: Path | None = None) -> str:
        """What Helm prints; without a kubeconfig it talks to no cluster.

        Raises KubeError with what it complains of.
        """
        return _run(self.folder / "helm", *arguments, kubeconfig=kubeconfig)

    def kustomize(self, folder: Path) -> str:
        """What `kustomize build` makes of a folder. Raises KubeError."""
        return _run(self.folder / "kustomize", "build", str(folder))


def find() -> Tools:
    """The programs of this machine. Raises MissingError."""
    folder = cache_folder(_module().go_version())
    if not folder.is_dir():
        raise MissingError(f"{versions()} are not built here: run 'make kube'")
    return Tools(folder)


def build(say: Say) -> Path:
    """The folder of the programs, built if they are not there yet. Raises KubeError."""
    module = _module()
    go = module.go_version()
    return module.build(cache_folder(go), go, say)


def cache_folder(go: str) -> Path:
    """Where that Go's build belongs, whether or not it is there."""
    return _module().cache_folder("kube-tools", go)


def versions() -> str:
    """Both by name and version."""
    module = GoModule(MODULE, "Helm and Kustomize")
    helm = module.named(r"^\s*helm\.sh/helm/v\d+ v(\S+)", "version of helm.sh/helm")
    pattern = r"^\s*sigs\.k8s\.io/kustomize/kustomize/v\d+ v(\S+)"
    kustomize = module.named(pattern, "version of kustomize")
    return f"Helm {helm} and Kustomize {kustomize}"


def _module() -> GoModule:
    return GoModule(MODULE, versions())


def _run(program: Path, *arguments: str, kubeconfig: Path | None = None) -> str:
    # Nothing of this user's own settings, and no file in their folders.
    with tempfile.TemporaryDirectory() as home:
        answer = subprocess.run(
            [program, *arguments],
            env={"HOME": home, "PATH": os.defpath, "KUBECONFIG": str(kubeconfig or home)},
            capture_output=True,
            text=True,
            check=False,
        )
    if answer.returncode != 0:
        raise KubeError(f"{program.name} {arguments[0]}: {answer.stderr.strip()}")
    return answer.stdout
