"""`make bench NAME=fuzz_bundles`: 10,000 damaged and evil bundles, opened in small processes.

Each is refused clearly, or opens with what is damaged named; nothing else is left of it: no
traceback of another kind, no crash, no hang, no file outside, no more memory than a process may
have. Seeded: `--first` goes on behind, a bug is repeated by its number.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.bench.common import Goal, finish, say
from tests.sim import plan
from tests.streams.recording import made
from tests.streams.recording.fuzzing import fuzz

SEED, SECONDS = 5, 8
STEP = 500


def good_bundle(path: Path) -> None:
    """A small bundle with all topics and images."""
    drawn = replace(plan.draw(Random(SEED)), nodes=2, partitions=2, image_every_ms=5_000)
    made.bundle_of(*made.log_of(SEED, SECONDS, None, drawn), path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    bundles = refused = harmed = unharmed = peak_mib = bugs = 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good.slack"
        good_bundle(good)
        for first in range(asked.first, asked.first + asked.count, STEP):
            found = fuzz(good, Path(folder), first, min(STEP, asked.first + asked.count - first))
            bundles += found.bundles
            refused, harmed = refused + found.refused, harmed + found.harmed
            unharmed, bugs = unharmed + found.unharmed, bugs + len(found.bugs)
            peak_mib = max(peak_mib, found.peak_mib)
            for bug in found.bugs:
                say(f"BUG {bug['number']} {bug['kind']}: {bug['bug']}")
            say(f"{bundles} bundles, {bugs} bugs, {time.monotonic() - begun:.0f} s")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "bundles": bundles, "refused": refused, "opened_harmed": harmed, "unharmed": unharmed,
        "peak_mib": peak_mib, "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }  # fmt: skip
    goals = [
        Goal("bugs", bugs, 0),
        Goal("bundles", bundles, asked.count, "at_least"),
    ]
    return finish("fuzz_bundles", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
