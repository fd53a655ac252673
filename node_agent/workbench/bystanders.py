"""Groups for the processes beside the show: what is on the node, and what is elsewhere in earnest.

The demo and the closed-loop bench play a fleet on one machine. The agent and the witnesses are on
the node beside the pods (`<name>/node`, ordinary weight), as a DaemonSet puts an agent. In the
bench Kafka and the worker, which run on other machines in earnest, are in `<name>/elsewhere`, which
is `cpu.idle`: the online service does not wait for them. Only the cpu hierarchy is used, and all
phases that are compared have it so, the ones without an agent too.

Both are siblings of the online group on purpose. While a task outside their parent runs, the
virtual time inside the parent stands still; an online group that has used its share to the last
microsecond stays ineligible for so long, and the idle best-effort group gets the next tick, up to
4 ms (docs/nodes.md, "Where the agent belongs").
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from node_agent.cgroup.layout import Layout
from node_agent.courtesy import set_slice
from node_agent.workbench.groups import POLL_S, REMOVE_S, Groups, GroupsError

ROLES = ("node", "elsewhere")


class Bystanders:
    """Moves processes into the groups of their roles, and back where they came from."""

    def __init__(self, groups: Groups) -> None:
        """Make both groups; ``groups`` is entered and takes them away when it is left."""
        self._home = own_directory(groups.layout)
        self._directories: dict[str, Path] = {}
        for role in ROLES:
            groups.make(f"{groups.name}/{role}")
            self._directories[role] = groups.directory("cpu", f"{groups.name}/{role}")
        idle = self._directories["elsewhere"] / "cpu.idle"
        if idle.exists():  # Linux 5.15; without it they compete as equals
            idle.write_text("1", "ascii")

    def place(self, role: str, pids: Iterable[int]) -> None:
        """Move processes and teach them manners; one that has ended already is fine.

        Children that come later follow.

        Raises ValueError for a role that is not one of `ROLES`.
        """
        if role not in self._directories:
            raise ValueError(f"unknown role {role!r}; it is one of {', '.join(self._directories)}")
        for pid in pids:
            _move(pid, self._directories[role])
            set_slice(pid=pid)

    def release(self) -> None:
        """Put every process back, also those that were forked since.

        Raises GroupsError when one stays: the groups' end would kill it.
        """
        until = time.monotonic() + REMOVE_S
        for directory in self._directories.values():
            while pids := (directory / "cgroup.procs").read_text("ascii").split():
                if time.monotonic() > until:
                    raise GroupsError(f"processes {pids} do not leave {directory}")
                for pid in pids:
                    _move(int(pid), self._home)
                time.sleep(POLL_S)


def own_directory(layout: Layout) -> Path:
    """This process's own group in the hierarchy of the cpu controller."""
    hierarchy = layout.controllers.get("cpu")
    if hierarchy is None:
        raise GroupsError("this machine has no cpu hierarchy")
    for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
        number, controllers, path = line.split(":", 2)
        if (hierarchy.version == 2 and number == "0") or "cpu" in controllers.split(","):
            return Path(hierarchy.mount + path)
    raise GroupsError("/proc/self/cgroup does not name a group of the cpu controller")


def _move(pid: int, directory: Path) -> None:
    try:
        (directory / "cgroup.procs").write_text(str(pid), "ascii")
    except ProcessLookupError:
        return
