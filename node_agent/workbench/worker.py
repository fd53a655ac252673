"""A process of the workbench in a group of its own; ends when its starter does.

`greedy` and `online` start these. The process enters its group before it does anything else, and
reads commands as lines from its standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from node_agent.cgroup.layout import detect
from node_agent.courtesy import DEFAULT_NS, set_slice
from node_agent.workbench.groups import enter

PR_SET_PDEATHSIG = 1
VARIABLE = "SLACKWATER_WORK"
STOP_S = 30.0  # killed work of an idle group on a full, slow machine waits for its last turn


class Worker:
    """``module`` has a function ``work(config)``; ``group``: a path from the hierarchies' root.

    Start it from a thread that lives on: the kernel takes the end of that thread for the starter's.
    """

    def __init__(self, module: str, group: str, config: dict[str, Any]) -> None:
        code = f"from {module} import work; from node_agent.workbench.worker import begin, told; "
        self._process = subprocess.Popen(
            [sys.executable, "-c", code + "begin(); work(told())"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, VARIABLE: json.dumps({**config, "group": group})},
        )
        assert self._process.stdout is not None
        if self._process.stdout.read(1) != b"+":
            self.stop()
            raise RuntimeError(f"{module} did not start in {group}; see its error above")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def say(self, line: str) -> None:
        """Send one line. Raises BrokenPipeError when the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; the exit code, negative for a signal. Raises TimeoutExpired."""
        return self._process.wait(timeout_s)

    def stop(self) -> None:
        """Kill and reap; a process that has ended already is fine."""
        if self.alive:
            self._process.kill()
        self._process.wait(STOP_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def told() -> dict[str, Any]:
    """In the worker: its configuration."""
    config: dict[str, Any] = json.loads(os.environ[VARIABLE])
    return config


def group_of(pid: int) -> str | None:
    """The group that a worker was started for; None for any other process, and one that is gone."""
    mark = f"{VARIABLE}=".encode()
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        said = next(word.removeprefix(mark) for word in words if word.startswith(mark))
        group = json.loads(said)["group"]
    except (OSError, StopIteration, ValueError, KeyError, TypeError):
        return None
    return group if isinstance(group, str) else None


def die_with_starter() -> None:
    """In the worker: SIGKILL when the process that started this one ends."""
    starter = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter or starter == 1:
        os._exit(0)


def begin() -> None:
    """In the worker: die with the starter, enter the group, say that it is done."""
    die_with_starter()
    set_slice(DEFAULT_NS)  # the starter may have manners, this is work like any other
    enter(detect(), told()["group"], os.getpid())
    os.write(1, b"+")
