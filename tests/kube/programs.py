"""The cluster's programs: Kubernetes' and the etcd it is released with, from the Go module proxy.

`make kube` runs `python -m tests.kube.programs`, which builds and says how far it is; tests only
ask (`find`). What is built lies in a cache folder named after its version and a digest.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kube import tools as charting
from tests.kube.errors import KubeError, MissingError
from tests.kube.go_module import GoModule, Say

MODULE = Path(__file__).with_name("go")
ETCD = "go.etcd.io/etcd/server/v3"
VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    folder: Path

    @property
    def etcd(self) -> Path:
        return self.folder / "etcd"

    @property
    def api_server(self) -> Path:
        return self.folder / "kube-apiserver"

    @property
    def controller_manager(self) -> Path:
        return self.folder / "kube-controller-manager"

    @property
    def scheduler(self) -> Path:
        return self.folder / "kube-scheduler"


def find() -> Programs:
    """The programs of this machine. Raises MissingError."""
    folder = cache_folder(go_version())
    if not folder.is_dir():
        raise MissingError(f"Kubernetes {kubernetes_version()} is not built here: run 'make kube'")
    return Programs(folder)


def tools() -> list[str]:
    """The import paths that go.mod names as tools."""
    return _module().tools()


def kubernetes_version() -> str:
    """The version of Kubernetes that go.mod names, without its v."""
    pattern = r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)"
    return GoModule(MODULE, "Kubernetes").named(pattern, "version of k8s.io/kubernetes")


def go_version() -> str:
    """The Go that would build, such as `go1.26.8`. Raises MissingError."""
    return _module().go_version()


def cache_folder(go: str) -> Path:
    """Where that Go's build belongs, whether or not it is there."""
    return _module().cache_folder(f"kube-{kubernetes_version()}", go)


def build(say: Say) -> Path:
    """The folder of the programs, built if they are not there yet. Raises KubeError."""
    go = go_version()
    return _module().build(cache_folder(go), go, say)


def _module() -> GoModule:
    what = f"Kubernetes {kubernetes_version()}"
    return GoModule(MODULE, what, _link_flags(), {ETCD: "etcd"})


def _link_flags() -> str:
    """No symbols, and the version that the programs tell of themselves."""
    version = kubernetes_version()
    major, minor = version.split(".")[:2]
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    stamps["gitCommit"] = "from-the-module-proxy"
    stamped = [f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items()]
    return " ".join(["-s", "-w", *stamped])


def main() -> int:
    """Entry point of `make kube`."""

    def say(line: str) -> None:
        sys.stderr.write(f"kube: {line}\n")

    try:
        folder = build(say)
        charted = charting.build(say)
    except KubeError as error:
        say(str(error))
        return 1
    say(f"Kubernetes {kubernetes_version()} is in {folder}")
    say(f"{charting.versions()} are in {charted}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
