"""A go.mod of ours and the programs that it names as tools, built from the Go module proxy.

`programs` (the cluster's) and `tools` (Helm and Kustomize) each have one; both are cached by a
digest of go.mod, go.sum, the flags and the Go that built them. A cache folder is always whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.errors import KubeError, MissingError

SAY_EVERY_S = 20.0
# No C compiler, nothing but what go.sum pins.
ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}

Say = Callable[[str], None]


def built_as(tool: str) -> str:
    """The file that `go build` makes of an import path: its last part that is no version."""
    return next(part for part in reversed(tool.split("/")) if not re.fullmatch(r"v\d+", part))


@dataclass(frozen=True)
class GoModule:
    """`folder` holds go.mod and go.sum; `link_flags` are the linker's.

    `names` says what a tool's file is to be called, where that is not what Go calls it.
    """

    folder: Path
    what: str  # it is, in words, with its version
    link_flags: str = "-s -w"  # without symbols: half the size
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """go.mod."""
        return (self.folder / "go.mod").read_text()

    def named(self, pattern: str, what: str) -> str:
        """The first group of a pattern in go.mod. Raises KubeError."""
        found = re.search(pattern, self.text, re.MULTILINE)
        if found is None:
            raise KubeError(f"{self.folder / 'go.mod'} names no {what}")
        return found[1]

    def tools(self) -> list[str]:
        """The import paths that go.mod names as tools."""
        block = re.search(r"^tool \((.*?)^\)", self.text, re.MULTILINE | re.DOTALL)
        return [] if block is None else block.group(1).split()

    def go_needed(self) -> tuple[int, int]:
        """The oldest Go that builds it."""
        major, minor = self.named(r"^go (\d+\.\d+)", "version of Go").split(".")
        return int(major), int(minor)

    def go_version(self) -> str:
        """The Go that would build, such as `go1.26.8`. Raises MissingError."""
        need = ".".join(map(str, self.go_needed()))
        if shutil.which("go") is None:
            raise MissingError(f"there is no 'go' on PATH: install Go {need} or newer (go.dev/dl)")
        # Asked in the folder of go.mod: Go may fetch a toolchain of its own for it.
        answer = self._go("env", "GOVERSION")
        said = (answer.stdout + answer.stderr).strip()
        found = re.match(r"go(\d+)\.(\d+)", said)
        if answer.returncode != 0 or found is None:
            raise MissingError(f"Go {need} or newer is needed (go.dev/dl): {said}")
        if (int(found[1]), int(found[2])) < self.go_needed():
            raise MissingError(f"{said} is on PATH: install Go {need} or newer (go.dev/dl)")
        return said

    def cache_folder(self, name: str, go: str) -> Path:
        """Where that Go's build belongs, whether or not it is there."""
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        sums = (self.folder / "go.sum").read_text()
        parts = [self.text, sums, go, self.link_flags, *ENVIRONMENT.values()]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        return Path(base) / "slackwater" / f"{name}-{digest}"

    def build(self, folder: Path, go: str, say: Say) -> Path:
        """The folder of the programs, built if they are not there yet. Raises KubeError."""
        if folder.is_dir():
            return folder
        say(f"building {self.what} with {go} (once; minutes)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            say("fetching its sources (unless Go has them)")
            listed = self._go("list", "-deps", *self.tools())
            if listed.returncode != 0:
                last = _last(listed.stderr.splitlines())
                raise KubeError(f"Go could not fetch the sources: {last}")
            self._compile(work / "made", len(listed.stdout.split()), say)
            try:
                (work / "made").rename(folder)
            except OSError:
                if not folder.is_dir():  # else another build was faster, and its folder is as good
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return folder

    def _compile(self, target: Path, packages: int, say: Say) -> None:
        """Build into `target`; Go names each package that it has compiled on its standard error."""
        target.mkdir()
        tools = self.tools()
        command = ["go", "build", "-v", "-ldflags", self.link_flags, "-o", f"{target}/", *tools]
        said: deque[str] = deque(maxlen=20)
        compiled, began = 0, time.monotonic()
        told = began
        environment = os.environ | ENVIRONMENT
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True
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
        missing = [tool for tool in tools if not (target / built_as(tool)).is_file()]
        if go.returncode != 0 or missing:
            raise KubeError(f"Go could not build {', '.join(missing) or self.what}: {_last(said)}")
        for tool, name in self.names.items():
            (target / built_as(tool)).rename(target / name)
        say(f"built in {(time.monotonic() - began) / 60:.1f} min")

    def _go(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["go", *arguments],
            cwd=self.folder,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )


def _last(lines: deque[str] | list[str]) -> str:
    """The end of what Go said, which is where it says why."""
    return "; ".join(list(lines)[-5:]) or "it does not say why"
