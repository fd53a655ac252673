"""Giving back what only the start needed: less is resident, and all of it still works."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import numpy, node_agent.process
from node_agent.footprint import give_back_start

def resident_kib():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:"))

before = resident_kib()
assert give_back_start() > 1 << 20
left = resident_kib()
again = numpy.linalg.inv(numpy.eye(8) * 2).sum()  # code of a library that was unmapped
print(before, left, again)
"""


def test_less_is_resident_and_what_is_needed_again_comes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True, timeout=60
    )
    before, left, again = done.stdout.split()
    assert int(left) < int(before) * 3 // 4
    assert float(again) == 4.0
