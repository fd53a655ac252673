"""The distribution: pins, extras that keep Faust off a node, data files, commands that load."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points, metadata, requires
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streams.cli import COMMANDS, GROUP, load

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()


def installed_with(extra: str) -> set[str]:
    """The names of all packages that `pip install slackwater[extra]` brings."""
    found: set[str] = set()
    todo = [Requirement(f"slackwater[{extra}]")]
    while todo:
        wanted = todo.pop()
        for line in requires(wanted.name) or []:
            needed = Requirement(line)
            extras = wanted.extras or {""}
            if needed.marker and not any(needed.marker.evaluate({"extra": e}) for e in extras):
                continue
            if needed.name not in found:
                found.add(canonicalize_name(needed.name))
                todo.append(needed)
    return found


def test_a_node_installs_no_stream_engine() -> None:
    names = installed_with("node")
    assert {"aiokafka", "numpy", "orjson"} <= names
    assert names.isdisjoint({"faust-streaming", "mode-streaming", "aiohttp", "click"})


def test_a_worker_installs_the_pinned_engine() -> None:
    assert {"faust-streaming", "mode-streaming", "backports-zstd"} <= installed_with("streams")
    pins = PROJECT["project"]["optional-dependencies"]["streams"]
    assert {"faust-streaming==0.15.3", "mode-streaming==0.7.1"} <= set(pins)


def test_constraints_are_plain_pins() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in CONSTRAINTS)


def test_everything_asked_for_is_pinned() -> None:
    pinned = {canonicalize_name(line.partition("==")[0]) for line in CONSTRAINTS}
    project = PROJECT["project"]
    asked = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
        *PROJECT["dependency-groups"]["dev"],
    ]
    names = {canonicalize_name(Requirement(line).name) for line in asked} - {"slackwater"}
    assert names <= pinned, f"not in constraints.txt: {sorted(names - pinned)}"


def test_each_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    pinned = re.findall(r'^  "[A-Za-z][\w.-]*[<>=][^"]*",(.*)$', text, re.MULTILINE)
    loose = re.findall(r'^  "types-\w+",(.*)$', text, re.MULTILINE)
    assert len(pinned) >= 15
    assert all("#" in rest for rest in pinned + loose)


@pytest.mark.parametrize("point", entry_points(group=GROUP), ids=lambda point: str(point.name))
def test_each_command_loads(point: Any) -> None:
    assert isinstance(load(point), typer.Typer)


def test_each_command_has_a_line_of_help() -> None:
    declared = PROJECT["project"]["entry-points"][GROUP]
    assert declared.keys() == COMMANDS.keys()
    extras = PROJECT["project"]["optional-dependencies"].keys()
    assert {about.extra for about in COMMANDS.values() if about.extra} <= extras


def test_version_and_licence_are_told() -> None:
    told = metadata("slackwater")
    assert told["Version"] == PROJECT["project"]["version"]
    assert told["License-Expression"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
