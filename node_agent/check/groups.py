"""Control groups: which version each controller has, and which knobs may be turned.

A knob is tried by opening its file for writing and closing it again: the kernel checks rights and
the mount, and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from node_agent.cgroup.layout import CONTROLLERS, Layout
from node_agent.check.finding import Asked, Finding, Question
from node_agent.surfaces import offered

WITHOUT = {
    "cpu": "everything: best-effort work cannot be bounded",
    "cpuacct": "everything: CPU use is not known",
    "cpuset": "suppress.policy: cpuset; the quota holds instead",
    "memory": "memory figures and eviction by them",
    "io": "block io figures and limits",
    "pids": "nothing of ours",
    "freezer": "freezing (v2 needs no controller for it)",
}
ESSENTIAL = ("cpu", "cpuacct")
ACTS = {
    "cpu_quota": "suppression by quota",
    "cpu_idle": "best-effort work as SCHED_IDLE: it competes as an equal in its quota",
    "kill": "eviction in one stroke; each process is killed by itself, which takes CAP_KILL",
    "freeze": "freezing",
}


def controllers(asked: Asked) -> Iterator[Finding]:
    """The version of each; found by the type of the mount."""
    if asked.layout is None:
        yield Finding("control groups", False, "no hierarchy is mounted", "everything", True)
        return
    yield Finding("control groups", True, asked.layout.kind, essential=True)
    versions = asked.layout.versions()
    for name in CONTROLLERS:
        there = versions.get(name)
        found = "not mounted" if there is None else f"v{there}"
        yield Finding(
            f"controller {name}", there is not None, found, WITHOUT[name], name in ESSENTIAL
        )
    found = asked.layout.unified or "not mounted: mount -t cgroup2 none /sys/fs/cgroup/unified"
    yield Finding(
        "cgroup2 mount", asked.layout.unified is not None, found, "pressure of groups, cgroup.kill"
    )


def best_effort(asked: Asked) -> Iterator[Finding]:
    """Where best-effort work lives."""
    layout, root = asked.layout, asked.be_root
    if layout is None:
        return
    if root is None:
        found = "no kubepods tree, and none was named with --be-root"
        yield Finding(
            "best-effort root", False, found, "everything but measuring, until there is one"
        )
        return
    there = Path(layout.anchor, root).is_dir()
    missing = "there is no such group"
    yield Finding(
        "best-effort root", there, root if there else f"{root}: {missing}", "everything", True
    )


def knobs(asked: Asked) -> Iterator[Finding]:
    """The files that acting needs: there, and open to this process."""
    layout, root = asked.layout, asked.be_root
    if layout is None or root is None or not Path(layout.anchor, root).is_dir():
        return
    for name, without in ACTS.items():
        place = layout.place(name, root)
        refused = "no such file here" if place is None else _refused(place.path)
        yield Finding(
            f"writable {name}", not refused, refused or "yes", without, name == "cpu_quota"
        )
    yield from _isolation(layout, root)


def _isolation(layout: Layout, root: str) -> Iterator[Finding]:
    found = offered(layout, root)
    there = sorted(name for name, here in found.items() if here)
    absent = sorted(name for name, here in found.items() if not here)
    yield Finding(
        "isolation knobs",
        bool(there),
        ", ".join(there) or "none",
        f"of isolation: {', '.join(absent)}" if absent else "",
    )


def _refused(path: str) -> str:
    """Why a file cannot be opened for writing; empty: it can."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return f"{error.strerror}: {path}"
    return ""


QUESTIONS: tuple[Question, ...] = (controllers, best_effort, knobs)
