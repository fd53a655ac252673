"""docs/field-cases.md names tests: each exists, and each row of a case names one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([\w/]+)::(test_\w+)`")
PAGE = (ROOT / "docs/field-cases.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert named
    for module, name in named:
        places = [ROOT / "tests" / folder / f"{module}.py" for folder in (".", "node_agent")]
        (place,) = [each for each in places if each.exists()] or [places[1]]
        assert re.search(rf"^(async )?def {name}\(", place.read_text(), re.MULTILINE), name


def test_every_case_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith(("| input |", "| actuator |"))]
    assert len(rows) > 50
    assert not [line for line in rows if not NAMED.search(line)]
