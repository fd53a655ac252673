"""Reason codes: every one of the table is used, and no other is raised anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import REASONS, BadRecord

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "agents", "streams", "node_agent", "scheduler_bridge")


def literals_raised(source: str) -> Iterator[str]:
    """First arguments of `BadRecord(...)` that are plain text."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        first = node.args[0]
        if name == "BadRecord" and isinstance(first, ast.Constant):
            yield str(first.value)


def sources() -> dict[Path, str]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path: path.read_text() for path in paths if path.name != "errors.py"}


def test_no_other_reason_is_raised() -> None:
    raised = {
        (path.name, reason) for path, text in sources().items() for reason in literals_raised(text)
    }
    assert raised
    assert {(name, reason) for name, reason in raised if reason not in REASONS} == set()


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_used(reason: str) -> None:
    assert any(f'"{reason}"' in text for text in sources().values())


def test_the_search_sees_what_it_should() -> None:
    text = 'raise BadRecord("a", x)\nraise errors.BadRecord("b", y)\nraise Other("c")'
    assert list(literals_raised(text)) == ["a", "b"]


def test_a_bad_record_says_reason_and_detail() -> None:
    error = BadRecord("checksum", "crc32 differs")
    assert (error.reason, error.detail, str(error)) == (
        "checksum",
        "crc32 differs",
        "checksum: crc32 differs",
    )
