"""Runs of `tests.streams.recording.exercise`, and what came of them: for the test and the bench."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUN = 500
"""Bundles of one process at most."""


@dataclass(slots=True)
class Outcome:
    """What became of the bundles; ``bugs``: tracebacks, crashes, hangs and stray files."""

    bundles: int = 0
    refused: int = 0  # not opened: a clear error
    harmed: int = 0  # opened, with what is damaged named, or replay refused clearly
    unharmed: int = 0
    peak_mib: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    bugs: list[dict[str, Any]] = field(default_factory=list)

    def take(self, line: dict[str, Any]) -> None:
        self.bundles += 1
        self.kinds[line["kind"]] += 1
        self.peak_mib = max(self.peak_mib, line.get("peak_mib", 0))
        if "bug" in line:
            self.bugs.append(line)
        elif not line["opens"]:
            self.refused += 1
        elif line["problems"] or line["refused"]:
            self.harmed += 1
        else:
            self.unharmed += 1


def fuzz(good: Path, folder: Path, first: int, count: int) -> Outcome:
    """Open ``count`` damaged bundles in child processes; a child that dies is counted, and the
    next goes on behind.
    """
    outcome = Outcome()
    end = first + count
    number = first
    while number < end:
        sandbox = folder / "sandbox"
        shutil.rmtree(sandbox, ignore_errors=True)
        sandbox.mkdir()
        command = [
            sys.executable, "-m", "tests.streams.recording.exercise", str(good), str(sandbox),
            str(number), str(min(RUN, end - number)),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        finished = [line for line in lines if "peak_mib" in line]
        for line in finished:
            outcome.take(line)
        number = finished[-1]["number"] + 1 if finished else number
        if done.returncode:
            begun: dict[str, Any] = lines[-1] if lines else {"number": number, "kind": "start"}
            why = f"exit {done.returncode}: {done.stderr[-2_000:]}"
            outcome.take({**begun, "bug": why})
            number = begun["number"] + 1
        stray = sorted(p.name for p in sandbox.iterdir() if p.name not in ("in.slack", "outside"))
        if stray:
            outcome.bugs.append({"number": number, "kind": "stray", "bug": f"left {stray}"})
    return outcome
