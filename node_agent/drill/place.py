"""Where a drill plays, and what a killed one left: groups and a folder that carry its process id.

Used by the drill itself and by `slackwater node release-all`. What has another content than a
drill gives it is somebody else's: it is named and not touched.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from node_agent.cgroup.layout import Layout
from node_agent.cgroup.walk import children
from node_agent.pod_groups import PodGroups
from node_agent.workbench.groups import SIDES, remove
from node_agent.workbench.worker import group_of

PREFIX = "slackwater-drill-"
PODS = {"online": ("web",), "besteffort": ("spin", "hungry", "sudden")}


class NotOurs(RuntimeError):
    """A group has the name of a drill's and holds what no drill made."""


def name(pid: int, under: str | None) -> str:
    """The drill's group: at the top, or below a group that was named."""
    return f"{under}/{PREFIX}{pid}" if under else f"{PREFIX}{pid}"


def folder(pid: int) -> Path:
    """The drill's files."""
    return Path(tempfile.gettempdir(), f"{PREFIX}{pid}")


def left(layout: Layout, under: str | None) -> dict[str, int]:
    """Groups of drills, and the process of each, whether it still runs or not."""
    found = {}
    for mount in layout.mounts():
        for each in children(f"{mount}/{under}" if under else mount):
            pid = each.removeprefix(PREFIX)
            if pid != each and pid.isascii() and pid.isdigit():
                found[name(int(pid), under)] = int(pid)
    return found


def clear(layout: Layout, under: str | None) -> list[str]:
    """Take away what killed drills left; their names. A running drill's stays.

    Raises NotOurs, with nothing touched, and GroupsError for what cannot be removed.
    """
    gone = {group: pid for group, pid in left(layout, under).items() if not _runs(pid)}
    for group in gone:
        _check(layout, group)
    for group, pid in gone.items():
        remove(layout, group)
        shutil.rmtree(folder(pid), ignore_errors=True)
    return sorted(gone)


def clear_all(layout: Layout) -> list[str]:
    """As `clear`, wherever a drill may have been: at the top, below a kubelet's best effort."""
    groups = PodGroups(layout)
    groups.look(0)
    homes = [None, *filter(None, map(groups.best_effort, groups.trees))]
    return [each for home in homes for each in clear(layout, home)]


def running(layout: Layout, under: str | None) -> list[str]:
    """Groups of drills that are still at it."""
    return sorted(group for group, pid in left(layout, under).items() if _runs(pid))


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _check(layout: Layout, group: str) -> None:
    """Raises NotOurs for a child group or a process that no drill puts there."""
    known = {f"{group}/{side}" for side in SIDES}
    known |= {f"{group}/{side}/{pod}" for side in SIDES for pod in PODS[side]}
    for mount in layout.mounts():
        for path in _walk(mount, group):
            if path not in known | {group}:
                raise NotOurs(f"{path}: no drill made this group; look, and remove it yourself")
            for pid in _processes(f"{mount}/{path}"):
                if not (group_of(pid) or "").startswith(f"{group}/"):
                    raise NotOurs(f"{path}: process {pid} is no drill's; move it or end it")


def _walk(mount: str, group: str) -> list[str]:
    below = [
        path for name in children(f"{mount}/{group}") for path in _walk(mount, f"{group}/{name}")
    ]
    return [group, *below] if Path(mount, group).is_dir() else []


def _processes(directory: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(directory, "cgroup.procs").read_text("ascii").split()]
    except OSError:
        return []
