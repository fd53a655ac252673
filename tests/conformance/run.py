"""`make conformance FILES=...`: the peer's vectors against the law.

Prints one line a family and op, each failure, and last `N passed, N failed`. An op that the law
does not have yet is a failure. Vectors tagged `quirk` depend on an oddity of the peer: they are
counted apart and decide nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.adapters import ADAPTERS
from tests.conformance.adapters.common import Vector

RELATIVE = 1e-9


def same(expected: Any, answer: Any) -> bool:
    """Integers and strings exactly, floats within a relative tolerance."""
    if isinstance(expected, dict):
        return isinstance(answer, dict) and all(
            key in answer and same(value, answer[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(expected)
            and all(same(a, b) for a, b in zip(expected, answer, strict=True))
        )
    if isinstance(expected, float) or isinstance(answer, float):
        numbers = isinstance(expected, int | float) and isinstance(answer, int | float)
        return numbers and math.isclose(expected, answer, rel_tol=RELATIVE)
    return bool(expected == answer)


def passes(op: str, expected: Vector, answer: Vector) -> bool:
    """An eviction is judged by who must and must not go; all else by equality."""
    if op == "evict":
        gone = set(answer["peer_sequence"])
        return set(expected["must_evict"]) <= gone and not gone & set(expected["must_not_evict"])
    return same(expected, answer)


def run_vector(family: str, vector: Vector) -> str:
    """Empty when it passes, else why not."""
    adapter = ADAPTERS.get((family, vector["op"]))
    if adapter is None:
        return "no such op yet"
    answer = adapter(vector["input"])
    if passes(vector["op"], vector["expected"], answer):
        return ""
    return f"expected {json.dumps(vector['expected'])}, got {json.dumps(answer)}"


def run_file(path: Path, counts: Counter[str]) -> list[str]:
    """Lines to print for one file; adds to ``counts`` passed, failed and quirk."""
    document = json.loads(path.read_text())
    lines: list[str] = []
    by_op: Counter[tuple[str, str]] = Counter()
    for vector in document["vectors"]:
        why = run_vector(document["family"], vector)
        kind = "quirk" if vector.get("quirk") else ("failed" if why else "passed")
        counts[kind] += 1
        by_op[vector["op"], kind if why != "no such op yet" else "not there yet"] += 1
        if why and why != "no such op yet":
            lines.append(f"  {kind}: {vector['id']} ({vector['op']}): {why}")
    summary = [f"{document['family']} {op}: {n} {kind}" for (op, kind), n in sorted(by_op.items())]
    return summary + lines


def main(files: list[str]) -> int:
    if not files:
        sys.stderr.write("name the vector files: python -m tests.conformance.run FILES...\n")
        return 2
    counts: Counter[str] = Counter()
    for name in files:
        sys.stdout.write("\n".join(run_file(Path(name), counts)) + "\n")
    if counts["quirk"]:
        sys.stdout.write(f"{counts['quirk']} depend on an oddity of the peer, not counted\n")
    sys.stdout.write(f"{counts['passed']} passed, {counts['failed']} failed\n")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
