"""What `make kube` builds is pinned, cached by what it is made of, and missed in one plain line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.kube import go_module, programs
from tests.kube.errors import KubeError, MissingError
from tests.kube.programs import Programs

GO_MOD = (programs.MODULE / "go.mod").read_text()
GO_SUM = (programs.MODULE / "go.sum").read_text()


def one_line(error: pytest.ExceptionInfo[KubeError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def fake_go(folder: Path, script: str) -> None:
    """A `go` on PATH that is a shell script."""
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH, with a shell and nothing else behind it; an empty cache."""
    found = tmp_path / "bin"
    found.mkdir()
    for name in ("sh", "cat", "touch"):
        (found / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(found))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def test_one_version_throughout() -> None:
    version = programs.kubernetes_version()
    assert version.startswith("1.")
    staged = re.findall(r"^\t(k8s\.io/\S+) => (k8s\.io/\S+) v(\S+)$", GO_MOD, re.MULTILINE)
    assert len(staged) > 20
    assert all(here == there for here, there, _ in staged)
    assert {found for *_, found in staged} == {"0." + version.removeprefix("1.")}


def test_every_module_is_pinned_by_its_sum() -> None:
    replaced = dict(re.findall(r"^\t(\S+) => \S+ (v\S+)$", GO_MOD, re.MULTILINE))
    needed = re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", GO_MOD, re.MULTILINE)
    assert len(needed) > 100
    summed = {tuple(line.split()[:2]) for line in GO_SUM.splitlines()}
    unpinned = [
        name
        for name, version in needed
        if (name, f"{replaced.get(name, version)}/go.mod") not in summed
    ]
    assert not unpinned


def test_the_programs_are_those_that_the_cluster_runs() -> None:
    where = Programs(Path("/made"))
    run = {where.etcd, where.api_server, where.controller_manager, where.scheduler}
    built = {go_module.built_as(tool) for tool in programs.tools()}
    assert {path.name for path in run} == built - {go_module.built_as(programs.ETCD)} | {"etcd"}


def test_another_go_or_another_pin_is_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    usual = programs.cache_folder("go1.26.1")
    assert usual.parent == tmp_path / "slackwater"
    assert programs.kubernetes_version() in usual.name
    other = tmp_path / "go"
    other.mkdir()
    (other / "go.mod").write_text(GO_MOD)
    (other / "go.sum").write_text(GO_SUM + "\n")
    monkeypatch.setattr(programs, "MODULE", other)
    assert len({usual, programs.cache_folder("go1.26.2"), programs.cache_folder("go1.26.1")}) == 3


def test_says_that_go_is_missing(bare: Path) -> None:
    with pytest.raises(MissingError) as error:
        programs.go_version()
    assert re.search(r"no 'go' on PATH: install Go 1\.\d+ or newer", one_line(error))


@pytest.mark.parametrize("script", ["echo go1.19.8", "echo 'unknown directive: tool' >&2; exit 1"])
def test_says_that_go_is_too_old(bare: Path, script: str) -> None:
    fake_go(bare, script)
    with pytest.raises(MissingError) as error:
        programs.go_version()
    assert "or newer" in one_line(error)


def test_says_how_to_build(bare: Path) -> None:
    fake_go(bare, "echo go1.99.1")
    with pytest.raises(MissingError) as error:
        programs.find()
    assert "run 'make kube'" in one_line(error)


def test_a_build_that_fails_says_why_and_leaves_nothing(bare: Path) -> None:
    script = (
        "case $1 in env) echo go1.99.1;; list) echo a;; build) echo 'no space' >&2; exit 1;; esac"
    )
    fake_go(bare, script)
    said: list[str] = []
    with pytest.raises(KubeError) as error:
        programs.build(said.append)
    assert "no space" in one_line(error)
    assert list(programs.cache_folder("go1.99.1").parent.iterdir()) == []


def test_a_build_is_done_once(bare: Path) -> None:
    fake_go(
        bare,
        'case $1 in env) echo go1.99.1;; list) echo a b;; build) echo "$@" >&2; for one; do '
        "case $one in *made/) out=$one;; */v3) touch $out/server;; */*) touch $out/${one##*/};; "
        "esac; done;; esac",
    )
    said: list[str] = []
    folder = programs.build(said.append)
    assert "etcd" in {path.name for path in folder.iterdir()}
    assert len(list(folder.iterdir())) == len(programs.tools())
    told = len(said)
    assert told >= 3
    assert programs.build(said.append) == folder
    assert len(said) == told


def test_the_real_ones_tell_the_version(kube_programs: Programs) -> None:
    for program in (
        kube_programs.api_server,
        kube_programs.controller_manager,
        kube_programs.scheduler,
    ):
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, env=os.environ
        )
        assert answer.stdout.strip() == f"Kubernetes v{programs.kubernetes_version()}"
