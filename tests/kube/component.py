"""One program of the cluster: start, wait until it answers, stop, kill, pause, restart."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from streams.dev_broker.process import Child
from tests.kube import commands
from tests.kube.errors import KubeError
from tests.support import patient

READY_WITHIN_S = 120.0  # etcd takes a fraction of a second, the API server some seconds
STOP_WITHIN_S = 15.0
POLL_S = 0.05


class PortTakenError(KubeError):
    """Someone was faster at a port that had been free."""


class Component:
    """A child process that dies with us; a restart keeps its ports and data.

    `ready` asks the program itself. `lock` is held by every child, so that the cluster's folder is
    free only when all have ended.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        ready: Callable[[], bool],
        log: Path,
        lock: int,
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._ready = ready
        self._lock = lock
        self._child: Child | None = None
        self._log_from = 0

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether it runs (paused counts)."""
        return self._child is not None and self._child.running

    def start(self) -> None:
        """Start and wait until it is ready. Raises KubeError, with nothing left running."""
        if self.alive:
            raise KubeError(f"{self.name} runs already")
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        self._child = Child(self._command(), self.log, self._lock)
        try:
            self._await_ready(self._child)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; the data stays. Nothing happens when it does not run."""
        if self._child is not None:
            self._child.stop(STOP_WITHIN_S)
            self._child = None

    def kill(self) -> None:
        """SIGKILL; the data stays as a crash leaves it."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def restart(self) -> None:
        """Stop in order if it runs, and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def said(self) -> list[str]:
        """The lines of its log since this start."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return log.read().decode(errors="replace").splitlines()

    def _running(self) -> Child:
        if self._child is None:
            raise KubeError(f"{self.name} does not run: start it first")
        return self._child

    def _await_ready(self, child: Child) -> None:
        within = patient(READY_WITHIN_S)
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if self._ready() and child.running:  # not a stranger on its port
                return
            if child.wait(POLL_S):
                raise self._failed(f"ended while starting (exit code {child.exit_code})")
        raise self._failed(f"is not ready after {within:.0f} s")

    def _failed(self, what: str) -> KubeError:
        said = self.said()
        kind = KubeError
        if any("address already in use" in line for line in said):
            kind = PortTakenError
        return kind(f"{self.name} {what}; the end of {self.log}:\n{commands.tail(said)}")
