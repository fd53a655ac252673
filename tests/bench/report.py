"""`slackwater report` on a large fleet: time, memory and the size of the page."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.common import Goal, finish, say
from tests.bench.replay_load import make

COMMAND = "from streams.report.cli import app; app()"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=1000, help="with fifty pods each")
    options.add_argument("--seconds", type=int, default=600)
    options.add_argument("--scratch", type=Path, default=None, help="on a disk with 10 GB free")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as folder:
        recording, page = Path(folder) / "recording", Path(folder) / "page.html"
        make(recording, chosen.nodes, chosen.seconds)
        say("made")
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-c", COMMAND, str(recording), "-o", str(page)],
            check=True, stdout=sys.stderr,
        )  # fmt: skip
        wall_s, size_mb = time.monotonic() - began, page.stat().st_size / 1e6
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    memory_mib, cpu_s = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
    figures = {
        "nodes": chosen.nodes,
        "seconds": chosen.seconds,
        "wall_s": round(wall_s, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }
    samples = chosen.nodes * chosen.seconds
    goals = [
        Goal("cpu_us_a_sample", round(cpu_s * 1e6 / samples, 1), 150),
        Goal("memory_mib", round(memory_mib), 2048),
        Goal("page_mb", round(size_mb, 1), 20),
    ]
    return finish("report", figures, goals)


if __name__ == "__main__":
    sys.exit(main())
