"""The house rules over the five packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.arch import rules

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "agents", "streams", "node_agent", "scheduler_bridge")
Rule = Callable[[str], Iterator[rules.Finding]]


def talks_to_the_terminal(path: Path) -> bool:
    """Modules that belong to the command line."""
    inside = path.relative_to(ROOT).parts
    named = path.stem in {"cli", "__main__"} or path.stem.endswith("_cli")
    return named or inside[:2] == ("streams", "demo")


def modules(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def check(rule: Rule, paths: list[Path]) -> None:
    """Fail with one line a finding."""
    assert paths, "no module found: the tree is not where this test looks"
    findings = [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in paths
        for finding in rule(path.read_text())
    ]
    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("rule", [rules.sizes, rules.docstring, rules.words])
def test_every_module(rule: Rule, package: str) -> None:
    check(rule, modules(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_only_the_command_line_prints(package: str) -> None:
    check(rules.prints, [path for path in modules(package) if not talks_to_the_terminal(path)])


@pytest.mark.parametrize("package", ["schemas", "agents"])
def test_what_decides_cannot_touch_the_world(package: str) -> None:
    check(rules.impure_imports, modules(package))


@pytest.mark.parametrize("rule", [rules.float_reductions, rules.thresholds])
def test_agents_decide_the_same_everywhere(rule: Rule) -> None:
    check(rule, modules("agents"))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing"
