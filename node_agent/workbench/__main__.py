"""`python -m node_agent.workbench`: real online and best-effort work on this machine, by command.

Started by the demo and by the closed-loop bench, which speak one JSON object a line:

    in   {"do": "phase", "name": "alone"}   end the latency phase that runs, begin this ("": none)
         {"do": "greedy", "on": true}       start or end the greedy best-effort job
         {"do": "load", "milli": 400}       step the online load to this share of a core
         {"do": "place", "role": "node", "pids": [7]}   see `bystanders`
    out  {"event": "ready", "inventory": FILE, "best_effort_root": GROUP}
         {"event": "done", "do": ..., "mono_us": ...}              a command has taken effect
         {"event": "latency", "phase", "count", "p50_us", "p99_us", "max_us"}
         and the events of `watch`

Ends when its input does, at SIGTERM and at SIGINT; the groups are gone then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from node_agent.cgroup.layout import detect
from node_agent.workbench.bystanders import Bystanders
from node_agent.workbench.greedy import Greedy
from node_agent.workbench.groups import Groups, remove_stale
from node_agent.workbench.online import Delay, Load, Probe, percentile_us
from node_agent.workbench.watch import Watch

SPINNERS = 2
COLLECT_S = 10.0  # the probe's ring holds a minute
INVENTORY = """\
best_effort_root: {name}/besteffort
pods:
  - uid: online-service
    cgroup: {service}
    qos: LS
    priority_class: prod
    priority: 9500
    requests: {{cpu_milli: 800, memory_bytes: 67108864}}
  - uid: greedy-job
    cgroup: {job}
    qos: BE
    priority_class: batch
    priority: 5500
"""


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    """Nothing here: the wake-up pipe tells the loop, so that no group is left half made."""


def _ended_by_signal() -> int:
    """A descriptor that becomes readable when SIGTERM or SIGINT has come."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)
    return reader


def _tell(event: dict[str, Any]) -> None:
    """One line, whole: the watching thread tells too."""
    raw = json.dumps(event).encode() + b"\n"
    with _TELLING:
        os.write(sys.stdout.fileno(), raw)


_TELLING = threading.Lock()


class Workbench:
    """The work in its groups, and the latency phase that runs."""

    def __init__(self, groups: Groups, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        service = groups.pod("online", "service")
        self._job = groups.pod("besteffort", "job")
        self.inventory = folder / "inventory.yaml"
        self.inventory.write_text(
            INVENTORY.format(name=groups.name, service=service, job=self._job)
        )
        self._probe = Probe(service, folder / "delays")
        self._load = Load(service)
        self._bystanders = Bystanders(groups)
        self._greedy: Greedy | None = None
        self._phase = ""
        self._next = 0
        self._delays: list[Delay] = []

    def begin(self) -> None:
        """Stand beside the pods; from here on `stop` must be called."""
        self._bystanders.place("node", [os.getpid()])

    def obey(self, command: dict[str, Any]) -> None:
        """Carry one command out. Raises ValueError for one that it does not know."""
        match command["do"]:
            case "phase":
                self._begin(str(command["name"]))
            case "greedy":
                self._set_greedy(wanted=bool(command["on"]))
            case "load":
                self._load.set(int(command["milli"]))
            case "place":
                self._bystanders.place(command["role"], [int(pid) for pid in command["pids"]])
            case other:
                raise ValueError(f"unknown command {other!r}")
        now_us = time.monotonic_ns() // 1000
        _tell({"event": "done", "do": command["do"], "mono_us": now_us})

    def collect(self) -> None:
        """Take over what the probe measured, before its ring forgets."""
        fresh = self._probe.since(self._next)
        self._next += len(fresh)
        if self._phase:
            self._delays += fresh

    def stop(self) -> None:
        """End all work, after those who are only beside it have left its groups."""
        self._bystanders.release()
        if self._greedy is not None:
            self._greedy.stop()
        self._load.stop()
        self._probe.stop()

    def _begin(self, phase: str) -> None:
        self.collect()
        if self._phase and self._delays:
            _tell(
                {
                    "event": "latency",
                    "phase": self._phase,
                    "count": len(self._delays),
                    "p50_us": percentile_us(self._delays, 500),
                    "p99_us": percentile_us(self._delays, 990),
                    "max_us": max(one.delay_us for one in self._delays),
                }
            )
        self._phase, self._delays, self._next = phase, [], self._probe.count()

    def _set_greedy(self, *, wanted: bool) -> None:
        if wanted and self._greedy is None:
            self._greedy = Greedy(self._job, SPINNERS, self._folder / "counts")
        elif not wanted and self._greedy is not None:
            self._greedy.stop()
            self._greedy = None


def serve(name: str, folder: Path, ended: int) -> None:
    """Make the groups, start the service, obey until the input ends or ``ended`` is readable."""
    layout = detect()
    remove_stale(layout, name.rpartition("-")[0] or name)
    with Groups(name, layout) as groups:
        bench = Workbench(groups, folder)
        watch = Watch(layout, f"{name}/online", groups.be_root, _tell)
        try:
            bench.begin()
            watch.start()
            _tell(
                {
                    "event": "ready",
                    "inventory": str(bench.inventory),
                    "best_effort_root": groups.be_root,
                }
            )
            _obey_input(bench, ended)
        finally:
            watch.stop()
            bench.stop()


def _obey_input(bench: Workbench, ended: int) -> None:
    rest = b""
    collected = time.monotonic()
    while True:
        readable = select.select([sys.stdin, ended], [], [], COLLECT_S)[0]
        if ended in readable:
            return
        if readable:
            data = os.read(sys.stdin.fileno(), 4096)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                bench.obey(json.loads(line))
        if time.monotonic() - collected >= COLLECT_S:
            collected = time.monotonic()
            bench.collect()


def main() -> int:
    """Entry point; 0 when it was asked to end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--name", required=True, help="top group; its part after the last '-': pid")
    parser.add_argument("--folder", required=True, type=Path, help="for its files")
    arguments = parser.parse_args()
    ended = _ended_by_signal()
    # Whoever started us may be gone already, and its pipes with it: an end like any other.
    with contextlib.suppress(BrokenPipeError):
        serve(arguments.name, arguments.folder.resolve(), ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
