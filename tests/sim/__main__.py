"""`python -m tests.sim --seed N [-v]` tells one run; `--seeds N` runs many and names bad seeds."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.cluster import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", type=int, help="run this one and print its story")
    parser.add_argument("--seeds", type=int, default=200, help="run seeds 0 to N-1")
    parser.add_argument("--first", type=int, default=0, help="first seed of --seeds")
    parser.add_argument("-v", action="store_true", dest="verbose", help="the whole story")
    chosen = parser.parse_args()
    if chosen.seed is not None:
        return _one(chosen.seed, verbose=chosen.verbose)
    began, bad = time.monotonic(), 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        report = run(seed)
        bad += bool(report.violations)
        for violation in report.violations[:3]:
            print(f"seed {seed} {violation.at_ms / 1000:.2f} s {violation.invariant}: "
                  f"{violation.detail[:300]}")  # fmt: skip
    print(f"{chosen.seeds} seeds, {bad} broken, {time.monotonic() - began:.1f} s")
    return int(bad > 0)


def _one(seed: int, *, verbose: bool) -> int:
    report = run(seed)
    for line in report.story:
        if verbose or "BROKEN" in line:
            print(line)
    print(f"seed {seed}: digest {report.digest}, {dict(sorted(report.figures.items()))}")
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
