"""Rows as CSV: one line a pool, workload or policy version, every figure a column with its path."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec

from streams.accounts.statement import Statement

COUNTS = ("by_reason", "left")
"""Whose keys are data: one column each would not be the same in every file."""


def as_csv(statement: Statement) -> str:
    """The rows, after the whole (named "(all)") and the control group ("(control group)")."""
    rows: list[tuple[str, Any]] = [("(all)", statement.figures)]
    if statement.control is not None:
        rows.append(("(control group)", statement.control))
    rows += [(row.name, row.figures) for row in statement.rows]
    lines = [
        {statement.by: name, **dict(_flat(msgspec.to_builtins(one), ""))} for name, one in rows
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flat(value: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, one in value.items():
        below = f"{path}.{name}" if path else name
        if name in COUNTS:
            yield below, " ".join(f"{key}={count}" for key, count in one.items())
        elif isinstance(one, dict):
            yield from _flat(one, below)
        else:
            yield below, one
