"""Helm and Kustomize: pinned, with the libraries that the cluster has, plain in complaint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kube import programs, tools
from tests.kube.errors import KubeError, MissingError
from tests.kube.tools import Tools

GO_MOD = (tools.MODULE / "go.mod").read_text()
GO_SUM = (tools.MODULE / "go.sum").read_text()


def test_the_libraries_are_those_of_the_cluster() -> None:
    """Go compiles them once for both."""
    line = r"^\t(k8s\.io/\S+) v(0\.\d+\.\d+)(?: // indirect)?$"
    ours = dict(re.findall(line, GO_MOD, re.MULTILINE))
    same = "0." + programs.kubernetes_version().removeprefix("1.")
    released = {"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kubectl"}
    assert {ours[name] for name in released} == {same}


def test_every_module_is_pinned_by_its_sum() -> None:
    needed = re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", GO_MOD, re.MULTILINE)
    assert len(needed) > 50
    summed = {tuple(line.split()[:2]) for line in GO_SUM.splitlines()}
    assert [name for name, version in needed if (name, f"{version}/go.mod") not in summed] == []


def test_says_how_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.99.1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingError, match=r"Helm 4\.\S+ and Kustomize 5\.\S+ .* run 'make kube'"):
        tools.find()


def test_what_they_complain_of_is_said(tmp_path: Path, charting: Tools) -> None:
    with pytest.raises(KubeError, match=r"kustomize build: .*kustomization"):
        charting.kustomize(tmp_path)
    with pytest.raises(KubeError, match=r"helm template: .*Chart\.yaml"):
        charting.helm("template", "x", str(tmp_path))
