"""Everything on this machine that knobs of isolation are turned at, opened by name.

`node_agent.loop` opens it for the groups that the inventory names, `node_agent.originals` for those
that the journal has originals of. A new kind of place is a line here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from node_agent.actuators.acts import KERNEL, Acts
from node_agent.actuators.beneath import Write
from node_agent.actuators.cores import Cores
from node_agent.actuators.daemons import DaemonsSurface
from node_agent.actuators.hierarchy import HierarchySurface
from node_agent.actuators.knob import Surface
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.online import OnlineNames
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.actuators.processes import Processes
from node_agent.actuators.resctrl import MOUNT, Resctrl, in_mbps
from node_agent.actuators.resctrl_surfaces import ResctrlGroups, ResctrlTasks
from node_agent.actuators.traffic import Traffic
from node_agent.cgroup.files import UNIFIED
from node_agent.cgroup.layout import Hierarchy, Layout

CONTROLLERS = ("cpu", "memory", "io")
FREEZE = "freeze"
"""The v2 mount, where a kill reaches what is frozen; the v1 freezer without one."""
NET_CLS = "net_cls"
HIERARCHIES = (*CONTROLLERS, FREEZE, NET_CLS)
RESCTRL, RESCTRL_TASKS = "resctrl", "resctrl_tasks"
DAEMONS = {"daemons_cpu": "cpu", "daemons_memory": "memory"}
"""Surface -> controller."""
PROCESSES, TRAFFIC, CORES = "processes", "traffic", "cores"
TC_PLACES = ("usr/sbin/tc", "sbin/tc", "usr/bin/tc", "bin/tc")
OF_GROUPS = (*HIERARCHIES, RESCTRL_TASKS, PROCESSES, CORES)
"""Surfaces whose places are control groups, or stand for what runs in them."""


def open_surfaces(
    layout: Layout,
    roots: Collection[str],
    names: OnlineNames,
    write: Write = os.write,
    acts: Acts = KERNEL,
    daemons: Collection[str] = (),
) -> Mapping[str, Surface]:
    """Surfaces by the names that knobs use; what is not mounted has none.

    ``roots``: best-effort roots; ``daemons``: the group of daemons, now or before. Raises OSError
    when a mount has gone.
    """
    by_mount: dict[str, HierarchySurface] = {}
    found: dict[str, Surface] = {}
    for name, place in hierarchies(layout).items():
        if place.mount not in by_mount:
            surface = HierarchySurface(place.mount, place.version, roots, names, write)
            by_mount[place.mount] = surface
        found[name] = by_mount[place.mount]
    for name, controller in DAEMONS.items():
        at = layout.hierarchy(controller)
        if at is not None and daemons:
            found[name] = DaemonsSurface(at.mount, at.version, daemons, write)
    return found | _of_tasks(layout, roots, names, write, acts) | _of_machine(layout, write, acts)


def _of_tasks(
    layout: Layout, roots: Collection[str], names: OnlineNames, write: Write, acts: Acts
) -> dict[str, Surface]:
    """Surfaces of what runs in groups, where every group has a place."""
    at, base = layout.hierarchy("cpuacct") or layout.hierarchy("cpu"), _base(layout)
    if at is None:
        return {}

    def tasks() -> PodTasks:
        return PodTasks(at.mount, at.version)

    found: dict[str, Surface] = {
        PROCESSES: Processes(f"{base}/proc", tasks(), roots, names, write),
    }
    if acts.cookies is not None and acts.cookies.there():
        found[CORES] = Cores(acts.cookies, tasks(), roots, names)
    if resctrl_there(base):
        tree = Resctrl(f"{base}/{MOUNT}", write, acts)
        found[RESCTRL_TASKS] = ResctrlTasks(tree, tasks(), roots, names)
    return found


def _of_machine(layout: Layout, write: Write, acts: Acts) -> dict[str, Surface]:
    """Surfaces of the machine itself."""
    found: dict[str, Surface] = {}
    base = _base(layout)
    if resctrl_there(base):
        tree = Resctrl(f"{base}/{MOUNT}", write, acts)
        found[RESCTRL] = ResctrlGroups(tree, bandwidth=not in_mbps(base))
    if acts.tc is not None and own_network(base):
        found[TRAFFIC] = Traffic(f"{base}/proc/net", acts.tc)
    return found


def _base(layout: Layout) -> str:
    return layout.root.rstrip("/")


def resctrl_there(base: str) -> bool:
    """Whether resctrl is mounted; ``base``: root of the file system, without a slash at its end."""
    return Path(f"{base}/{MOUNT}/schemata").exists()


def own_network(base: str) -> bool:
    """Whether this process sees the machine's own network, as far as it may know that.

    ``base``: root of the file system, without a slash at its end.
    """
    try:
        first, own = (os.readlink(f"{base}/proc/{who}/ns/net") for who in ("1", "self"))
    except OSError:
        return True
    return first == own


def hierarchies(layout: Layout) -> dict[str, Hierarchy]:
    """Where the files of each control group surface are; what is not mounted is left out."""
    found = {name: layout.hierarchy(name) for name in CONTROLLERS}
    found[NET_CLS] = None if layout.net_cls is None else Hierarchy(1, layout.net_cls)
    found[FREEZE] = layout.hierarchy(UNIFIED) or layout.hierarchy("freezer")
    return {name: at for name, at in found.items() if at is not None}


def offered(layout: Layout, group: str) -> dict[str, bool]:
    """Knobs by name: whether this group has any file of theirs, or the kernel what they turn."""
    places = hierarchies(layout)
    machine = {
        RESCTRL: resctrl_there(_base(layout)),
        RESCTRL_TASKS: resctrl_there(_base(layout)),
        PROCESSES: True,
        TRAFFIC: any(Path(layout.root, place).exists() for place in TC_PLACES),
        CORES: layout.root == "/" and KERNEL.cookies is not None and KERNEL.cookies.there(),
    }
    found = {}
    for knob in KNOBS:
        at = places.get(knob.surface)
        if at is not None:
            files = knob.files(at.version)
            found[knob.name] = any(Path(at.mount, group, file).exists() for file in files)
        elif knob.surface not in DAEMONS:  # theirs is another group
            found[knob.name] = machine.get(knob.surface, False)
    return found


def close_surfaces(surfaces: Mapping[str, Surface]) -> None:
    """Give every descriptor back once."""
    for surface in {id(each): each for each in surfaces.values()}.values():
        surface.close()
