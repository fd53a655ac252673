"""Proof that a run has left nothing: no process with its mark, no cgroup with its name.

The mark is an environment variable that every descendant inherits, so that a grandchild that
escaped its process group is found too. Called by `run` at the end, and by the tests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MARK = "SLACKWATER_DEMO_RUN"
_CGROUP_TYPES = ("cgroup", "cgroup2")


@dataclass(frozen=True, slots=True)
class Process:
    """One process that carries the mark."""

    pid: int
    name: str


def processes(mark: str, proc: Path = Path("/proc")) -> list[Process]:
    """Every process of this mark except the caller; one that cannot be read is not ours."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            # A zombie has no environment any more, so whatever is found here really runs.
            found.append(Process(int(folder.name), (folder / "comm").read_text().strip()))
        except OSError:
            continue
    return found


def cgroups(name: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """The folders called ``name`` at the top of any mounted cgroup hierarchy. Never empty name."""
    if not name:
        raise ValueError("a cgroup without a name would be the root: give the run's name")
    return [folder for mount in hierarchies(mountinfo) if (folder := mount / name).is_dir()]


def hierarchies(mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Where cgroup hierarchies are mounted, of either version."""
    found = []
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in _CGROUP_TYPES:
            found.append(Path(before.split(" ")[4]))
    return found


def cpu_us(mark_pids: list[int], proc: Path = Path("/proc")) -> dict[int, int]:
    """CPU time of processes so far, in microseconds (a tick is 10 ms); vanished ones are absent."""
    tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
    used = {}
    for pid in mark_pids:
        try:
            stat = (proc / str(pid) / "stat").read_bytes()
        except OSError:
            continue
        fields = stat[stat.rindex(b")") + 2 :].split()
        used[pid] = (int(fields[11]) + int(fields[12])) * tick_us  # utime, stime
    return used
