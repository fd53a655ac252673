"""The demo's processes: started in order, watched, stopped in order; nothing may be left behind.

Each child has a process group and a log file of its own and is told to end (SIGTERM) by the
kernel should the demo itself be killed. Called by `run`; restarts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from streams.demo import leftovers

POLL_S = 0.05
TAIL_LINES = 15
# Asks for SIGTERM when the parent dies, then becomes the real program; the comparison closes the
# gap between fork and prctl. PR_SET_PDEATHSIG is 1.
_SHIM = (
    "import ctypes,os,signal,sys;"
    "ctypes.CDLL(None).prctl(1,int(signal.SIGTERM),0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)


class DemoError(Exception):
    """The demo cannot go on; the message names the process and shows the end of its log."""

    says_what_to_do = True


@dataclass(eq=False)
class Child:
    """One process of the demo. ``patience_s``: how long it may take to end after SIGTERM.

    ``rank``: higher ones are stopped first, equal ones together.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    patience_s: float
    rank: int = 0
    expected_to_end: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of its log, indented; says so when there are none."""
        try:
            with self.log.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 16_384))
                kept = log.read().decode(errors="replace").splitlines()[-lines:]
        except OSError as error:
            kept = [f"({error})"]
        return "\n".join(f"    {line}" for line in kept or ["(its log is empty)"])

    def failure(self, what: str) -> DemoError:
        """An error that names this process and shows its log."""
        return DemoError(
            f"{self.name} (pid {self.pid}) {what}; the end of {self.log}:\n{self.tail()}"
        )


class Supervisor:
    """Starts and stops the children of one run, whose folder and mark are given."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder = folder
        self.mark = mark
        self.children: list[Child] = []
        self.killed: list[str] = []  # who had to be killed because SIGTERM was not enough

    def start(
        self,
        name: str,
        command: list[str],
        *,
        patience_s: float = 10.0,
        rank: int = 0,
        pipes: bool = False,
        env: dict[str, str] | None = None,
    ) -> Child:
        """Start one process. With ``pipes`` its stdin and stdout are ours, else only the log."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *command],
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env={**os.environ, **(env or {}), leftovers.MARK: self.mark},
                start_new_session=True,
            )
        child = Child(name, process, log, patience_s, rank)
        self.children.append(child)
        return child

    def check(self) -> None:
        """Raise DemoError when a child has ended that should not have."""
        for child in self.children:
            if not child.running and not child.expected_to_end:
                raise child.failure(f"ended by itself with code {child.process.returncode}")

    async def until(
        self,
        what: str,
        condition: Callable[[], Awaitable[bool] | bool],
        within_s: float,
        blame: Child | None = None,
    ) -> float:
        """Wait for ``condition``; returns the seconds it took. Raises DemoError when too late."""
        begun = time.monotonic()
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return time.monotonic() - begun
            self.check()
            if time.monotonic() - begun > within_s:
                message = f"did not get there within {within_s:.0f} s: {what}"
                raise blame.failure(message) if blame else DemoError(f"the loop {message}")
            await asyncio.sleep(POLL_S)

    async def finish(self, child: Child, within_s: float) -> None:
        """Wait for a child that ends by itself. Raises DemoError unless it ends with code 0."""
        child.expected_to_end = True
        await self.until("the end of its work", lambda: not child.running, within_s, child)
        if child.process.returncode != 0:
            raise child.failure(f"ended with code {child.process.returncode}")
        self.children.remove(child)

    async def stop(self, child: Child) -> None:
        """SIGTERM, patience, then SIGKILL for its whole group; drops it from the list."""
        child.expected_to_end = True
        _signal(child, signal.SIGTERM)
        try:
            await asyncio.to_thread(child.process.wait, child.patience_s)
        except subprocess.TimeoutExpired:
            self.killed.append(child.name)
        self.kill(child)

    def kill(self, child: Child) -> None:
        """SIGKILL what is left of a child's group, reap it, close its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.process.wait()
        for pipe in (child.process.stdin, child.process.stdout):
            _close(pipe)
        if child in self.children:
            self.children.remove(child)

    async def stop_all(self) -> None:
        """Stop every child, rank by rank: whoever leans on others goes before them."""
        while self.children:
            highest = max(child.rank for child in self.children)
            leaving = [child for child in self.children if child.rank == highest]
            await asyncio.gather(*(self.stop(child) for child in leaving))

    def kill_all(self) -> None:
        """No patience left: SIGKILL for all."""
        for child in reversed(self.children.copy()):
            child.expected_to_end = True
            self.kill(child)


def _signal(child: Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if child.running:
            os.kill(child.pid, number)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
