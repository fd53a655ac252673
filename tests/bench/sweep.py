"""A sweep on two cores beside the same on one, paired, alternating: at least 1.5 times as fast.

`make bench NAME=sweep`, arguments by `ARGS="--pairs 5"`. The recording is the planted incident
(tests/fixtures/recordings/incident.slack): two partitions, seven minutes. Both sides must give the
same bytes.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import msgspec

from streams.recording import open_recording
from streams.replay.run import Wanted
from streams.replay.what_if.policies import swept
from streams.replay.what_if.result import WhatIf
from streams.replay.what_if.run import Asked, answer
from tests.bench.common import Goal, finish, median, say

BUNDLE = Path(__file__).parents[1] / "fixtures" / "recordings" / "incident.slack"
LEAST = 1.5


def main() -> int:
    """Run the pairs; 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--recording", type=Path, default=BUNDLE)
    parser.add_argument(
        "--sweep", action="append", help="default: suppress.threshold_percent in twelve steps"
    )
    given = parser.parse_args()
    sweeps = given.sweep or [
        "suppress.threshold_percent=" + ",".join(str(40 + 4 * i) for i in range(12))
    ]
    with open_recording(given.recording) as recording:
        choices = tuple(swept(recording, None, sweeps))
    asked = Asked(Wanted(path=given.recording), choices, over_time=False)
    ratios, same = [], True
    one_s: list[float] = []
    two_s: list[float] = []
    cpu_s: dict[int, list[float]] = {1: [], 2: []}
    for pair in range(given.pairs):
        order = (1, 2) if pair % 2 == 0 else (2, 1)
        found = {jobs: _timed(asked, jobs) for jobs in order}
        for jobs, (_, _, cpu) in found.items():
            cpu_s[jobs].append(cpu)
        same &= found[1][1] == found[2][1]
        one_s.append(found[1][0])
        two_s.append(found[2][0])
        ratios.append(one_s[-1] / two_s[-1])
        say(f"pair {pair + 1}: one core {one_s[-1]:.1f} s, two {two_s[-1]:.1f} s: "
            f"{ratios[-1]:.2f} times")  # fmt: skip
    figures = {
        "policies": len(choices),
        "pairs": given.pairs,
        "one_core_s": median(one_s),
        "two_cores_s": median(two_s),
        "one_core_cpu_s": median(cpu_s[1]),
        "two_cores_cpu_s": median(cpu_s[2]),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "same_bytes": same,
    }
    return finish("sweep", figures, [
        Goal("times_as_fast_on_two_cores", median(ratios), LEAST, "at_least"),
        Goal("pairs_of_other_bytes", 0 if same else 1, 0),
    ])  # fmt: skip


def _timed(asked: Asked, jobs: int) -> tuple[float, bytes, float]:
    """Seconds, the answers, seconds of CPU."""
    began, before = time.perf_counter(), _cpu_s()
    answers: list[WhatIf] = answer(asked, jobs)
    seconds = time.perf_counter() - began
    return seconds, msgspec.json.encode(answers), _cpu_s() - before


def _cpu_s() -> float:
    """What this process and those that it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    sys.exit(main())
