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
PROCESSES, TRAFFIC = "processes", "traffic"
TC_PLACES = ("usr/sbin/tc", "sbin/tc", "usr/bin/tc", "bin/tc")
OF_GROUPS = (*HIERARCHIES, RESCTRL_TASKS, PROCESSES)
"""Surfaces whose places are control groups, or stand for what runs in them."""


def open_surfaces(
    layout: Layout,
    roots: Collection[str],
    names: OnlineNames,
    write: Write = os.write,
    acts: Acts = KERNEL,
) -> Mapping[str, Surface]:
    """Surfaces by the names that knobs use; what is not mounted has none.

    ``roots``: best-effort roots. Raises OSError when a mount has gone.
    """
    by_mount: dict[str, HierarchySurface] = {}
    found: dict[str, Surface] = {}
    for name, at in hierarchies(layout).items():
        if at.mount not in by_mount:
            by_mount[at.mount] = HierarchySurface(at.mount, at.version, roots, names, write)
        found[name] = by_mount[at.mount]
    tasks = pod_tasks(layout)
    if tasks is not None:
        proc = f"{layout.root.rstrip('/')}/proc"
        found[PROCESSES] = Processes(proc, tasks, roots, names, write)
    if acts.tc is not None and own_network(layout.root.rstrip("/")):
        found[TRAFFIC] = Traffic(f"{layout.root.rstrip('/')}/proc/net", acts.tc)
    return found | _resctrl(layout, roots, names, write, acts)


def _resctrl(
    layout: Layout, roots: Collection[str], names: OnlineNames, write: Write, acts: Acts
) -> dict[str, Surface]:
    tasks = pod_tasks(layout)
    base = layout.root.rstrip("/")
    if tasks is None or not resctrl_there(base):
        return {}
    top = f"{base}/{MOUNT}"
    groups = ResctrlGroups(Resctrl(top, write, acts), bandwidth=not in_mbps(base))
    return {
        RESCTRL: groups,
        RESCTRL_TASKS: ResctrlTasks(Resctrl(top, write, acts), tasks, roots, names),
    }


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


def pod_tasks(layout: Layout) -> PodTasks | None:
    """What runs in groups, where every group has a place. Raises OSError when that has gone."""
    at = layout.hierarchy("cpuacct") or layout.hierarchy("cpu")
    return None if at is None else PodTasks(at.mount, at.version)


def hierarchies(layout: Layout) -> dict[str, Hierarchy]:
    """Where the files of each control group surface are; what is not mounted is left out."""
    found = {name: layout.hierarchy(name) for name in CONTROLLERS}
    found[NET_CLS] = None if layout.net_cls is None else Hierarchy(1, layout.net_cls)
    found[FREEZE] = layout.hierarchy(UNIFIED) or layout.hierarchy("freezer")
    return {name: at for name, at in found.items() if at is not None}


def offered(layout: Layout, group: str) -> dict[str, bool]:
    """Knobs by name: whether this group has any file of theirs, or the kernel what they turn."""
    places = hierarchies(layout)
    resctrl = resctrl_there(layout.root.rstrip("/"))
    found = {}
    for knob in KNOBS:
        at = places.get(knob.surface)
        if at is not None:
            files = knob.files(at.version)
            found[knob.name] = any(Path(at.mount, group, file).exists() for file in files)
        elif knob.surface in HIERARCHIES:
            found[knob.name] = False
        elif knob.surface in (RESCTRL, RESCTRL_TASKS):
            found[knob.name] = resctrl
        elif knob.surface == PROCESSES:
            found[knob.name] = True
        elif knob.surface == TRAFFIC:
            found[knob.name] = any(Path(layout.root, place).exists() for place in TC_PLACES)
    return found


def close_surfaces(surfaces: Mapping[str, Surface]) -> None:
    """Give every descriptor back once."""
    for surface in {id(each): each for each in surfaces.values()}.values():
        surface.close()
