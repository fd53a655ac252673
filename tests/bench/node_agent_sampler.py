"""The sampler and the packed codec alone, as a process: started by `tests.bench.node_agent`.

Argument: the top group. One line a sweep on stdout, its cost in microseconds.
"""

from __future__ import annotations

import sys
import time

from node_agent.cgroup.layout import detect
from node_agent.discovery import Discovery
from node_agent.sampler import Sampler, SystemClock
from schemas import packed


def run(top: str) -> None:
    """Until killed."""
    layout = detect()
    source = Discovery(
        "bench", layout, first_rev=1, roots=(f"{top}/*/pod*",), be_root=f"{top}/besteffort"
    )
    sampler = Sampler(layout, source, "bench", SystemClock())
    due = time.monotonic()
    while True:
        packed.encode(sampler.sweep())
        sys.stdout.write(f"{sampler.stats.sweep_cost_us}\n")
        sys.stdout.flush()
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    run(sys.argv[1])
