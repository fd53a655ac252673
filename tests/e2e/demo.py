"""How the end-to-end tests run `slackwater demo`: as a process, without a terminal, as CI does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.demo import leftovers

COMMAND = [sys.executable, "-c", "from streams.cli import main; main()", "demo"]
ENDS_WITHIN_S = 180.0
GONE_WITHIN_S = 20.0
TURNING_S = 120.0
TOO_NOISY = "up-steps could be judged"


@dataclass
class DemoRun:
    """One demo: what it prints, and what it has running."""

    process: subprocess.Popen[str]
    folder: Path

    @property
    def told(self) -> str:
        """Progress so far."""
        return (self.folder / "err").read_text()

    def until(self, what: str, condition: Callable[[], bool], within_s: float = TURNING_S) -> None:
        """Wait for something to become true while the demo runs."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.told}"
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}\n{self.told}"
            time.sleep(0.05)

    def said(self, words: str) -> Callable[[], bool]:
        """Whether a progress line has these words."""
        return lambda: words in self.told

    def end(self) -> tuple[int, dict[str, Any]]:
        """Exit code and summary of a demo that ends by itself or was told to."""
        try:
            code = self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {ENDS_WITHIN_S} s:\n{self.told}") from None
        text = (self.folder / "out").read_text()
        return code, json.loads(text) if text else {}

    def processes(self) -> dict[int, str]:
        """Its descendants by process id: their environment names the demo's own process id."""
        wanted = f"{leftovers.MARK}={self.process.pid}-".encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if any(e.startswith(wanted) for e in environment(folder)):
                        found[int(folder.name)] = (folder / "cmdline").read_bytes().decode()
        return found

    def cgroups(self) -> list[Path]:
        """Its groups, in any hierarchy."""
        return leftovers.cgroups(f"slackwater-demo-{self.process.pid}")

    def assert_nothing_left(self) -> None:
        """No process and no cgroup; what was killed from outside gets a moment."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while self.processes() or self.cgroups():
            assert time.monotonic() < deadline, f"left: {self.processes()} {self.cgroups()}"
            time.sleep(0.1)


def environment(folder: Path) -> list[bytes]:
    return (folder / "environ").read_bytes().split(b"\0")


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[DemoRun]:
    """A demo with its logs in ``folder``; killed with all that is its own, should the test fail."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*COMMAND, *options, "--json", "--keep-logs", str(folder / "logs")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
        )
    run = DemoRun(process, folder)
    try:
        yield run
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GONE_WITHIN_S)
        process.kill()
        process.wait()
        for pid in run.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def judged(folder: Path, *options: str, tries: int = 3) -> tuple[dict[str, Any], DemoRun]:
    """A demo that must end well. Run again only when foreign load left too little to judge."""
    summary: dict[str, Any] = {}
    failures: list[str] = []
    for number in range(tries):
        with running(folder / str(number), *options) as run:
            code, summary = run.end()
            run.assert_nothing_left()
        failures = summary.get("failures", [run.told])
        if code == 0:
            return summary, run
        if not all(TOO_NOISY in failure for failure in failures):
            break
    raise AssertionError(f"the demo did not hold: {failures}\n{summary}")
