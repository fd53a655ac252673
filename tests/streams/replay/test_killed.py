"""A process of a pool ends with the one that started it, however that one ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CALLER = """
import multiprocessing, os, sys, time
from streams.replay.run import end_with_caller

def work(ready):
    end_with_caller()
    ready.set()
    time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    context.Process(target=work, args=(ready,)).start()
    ready.wait()
    os.kill(os.getpid(), 9)
"""


def test_no_process_stays_when_the_caller_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "caller.py"
    path.write_text(CALLER)
    # stdout ends when the last process that holds it does
    done = subprocess.run([sys.executable, path], capture_output=True, timeout=30, check=False)
    assert done.returncode == -9, done.stderr
