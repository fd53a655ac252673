"""The cluster's programs: Kubernetes' and the etcd it is released with, from the Go module proxy.

`make kube` runs `python -m tests.kube.programs`, which builds and says how far it is; tests only
ask (`find`). What is built lies in a cache folder named after its version and a digest of go.mod,
go.sum, the flags and the Go that built it. A folder of that name is always whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kube.errors import KubeError, MissingError

MODULE = Path(__file__).with_name("go")
SAY_EVERY_S = 20.0
ETCD = "go.etcd.io/etcd/server/v3"
VERSION_PACKAGE = "k8s.io/component-base/version"
# No C compiler, no symbols (half the size), nothing but what go.sum pins.
ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}

Say = Callable[[str], None]


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
    block = re.search(r"^tool \((.*?)^\)", _go_mod(), re.MULTILINE | re.DOTALL)
    return [] if block is None else block.group(1).split()


def built_as(tool: str) -> str:
    """The file that `go build` makes of an import path: its last part that is no version."""
    return next(part for part in reversed(tool.split("/")) if not re.fullmatch(r"v\d+", part))


def kubernetes_version() -> str:
    """The version of Kubernetes that go.mod names, without its v."""
    return _named(r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)", "version of k8s.io/kubernetes")


def go_needed() -> tuple[int, int]:
    """The oldest Go that builds it."""
    major, minor = _named(r"^go (\d+\.\d+)", "version of Go").split(".")
    return int(major), int(minor)


def go_version() -> str:
    """The Go that would build, such as `go1.26.8`. Raises MissingError."""
    need = ".".join(map(str, go_needed()))
    if shutil.which("go") is None:
        raise MissingError(f"there is no 'go' on PATH: install Go {need} or newer (go.dev/dl)")
    # Asked in the folder of go.mod: Go may fetch a toolchain of its own for it.
    answer = _go("env", "GOVERSION")
    said = (answer.stdout + answer.stderr).strip()
    found = re.match(r"go(\d+)\.(\d+)", said)
    if answer.returncode != 0 or found is None:
        raise MissingError(f"Go {need} or newer is needed (go.dev/dl): {said}")
    if (int(found[1]), int(found[2])) < go_needed():
        raise MissingError(f"{said} is on PATH: install Go {need} or newer (go.dev/dl)")
    return said


def cache_folder(go: str) -> Path:
    """Where that Go's build belongs, whether or not it is there."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    parts = [_go_mod(), (MODULE / "go.sum").read_text(), go, _link_flags(), *ENVIRONMENT.values()]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    return Path(base) / "slackwater" / f"kube-{kubernetes_version()}-{digest}"


def build(say: Say) -> Path:
    """The folder of the programs, built if they are not there yet. Raises KubeError."""
    go = go_version()
    folder = cache_folder(go)
    if folder.is_dir():
        return folder
    say(f"building Kubernetes {kubernetes_version()} with {go} (once; minutes)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        say("fetching its sources (about 150 MB, unless Go has them)")
        listed = _go("list", "-deps", *tools())
        if listed.returncode != 0:
            raise KubeError(f"Go could not fetch the sources: {_last(listed.stderr.splitlines())}")
        _compile(work / "made", len(listed.stdout.split()), say)
        try:
            (work / "made").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster, and its folder is as good
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _compile(target: Path, packages: int, say: Say) -> None:
    """Build into `target`; Go names each package that it has compiled on its standard error."""
    target.mkdir()
    command = ["go", "build", "-v", "-ldflags", _link_flags(), "-o", f"{target}/", *tools()]
    said: deque[str] = deque(maxlen=20)
    compiled, began = 0, time.monotonic()
    told = began
    with subprocess.Popen(
        command, cwd=MODULE, env=os.environ | ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as go:
        assert go.stderr is not None
        for line in go.stderr:
            if re.fullmatch(r"\S+", line.strip()):
                compiled += 1
            else:
                said.append(line.rstrip())
            now = time.monotonic()
            if now - told >= SAY_EVERY_S:
                told = now
                minutes = (now - began) / 60
                say(f"{compiled} of at most {packages} packages compiled, {minutes:.1f} min")
    missing = [tool for tool in tools() if not (target / built_as(tool)).is_file()]
    if go.returncode != 0 or missing:
        raise KubeError(f"Go could not build {', '.join(missing) or 'Kubernetes'}: {_last(said)}")
    (target / built_as(ETCD)).rename(target / "etcd")
    say(f"built in {(time.monotonic() - began) / 60:.1f} min")


def _link_flags() -> str:
    """No symbols, and the version that the programs tell of themselves."""
    version = kubernetes_version()
    major, minor = version.split(".")[:2]
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    stamps["gitCommit"] = "from-the-module-proxy"
    stamped = [f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in stamps.items()]
    return " ".join(["-s", "-w", *stamped])


def _go(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments],
        cwd=MODULE,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def _go_mod() -> str:
    return (MODULE / "go.mod").read_text()


def _named(pattern: str, what: str) -> str:
    found = re.search(pattern, _go_mod(), re.MULTILINE)
    if found is None:
        raise KubeError(f"{MODULE / 'go.mod'} names no {what}")
    return found[1]


def _last(lines: deque[str] | list[str]) -> str:
    """The end of what Go said, which is where it says why."""
    return "; ".join(list(lines)[-5:]) or "it does not say why"


def main() -> int:
    """Entry point of `make kube`."""

    def say(line: str) -> None:
        sys.stderr.write(f"kube: {line}\n")

    try:
        folder = build(say)
    except KubeError as error:
        say(str(error))
        return 1
    say(f"Kubernetes {kubernetes_version()} is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
