"""Everything on this machine that knobs of isolation are turned at, opened by name.

`node_agent.loop` opens it for the groups that the inventory names, `node_agent.originals` for those
that the journal has originals of. A new kind of place is a line here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from node_agent.actuators.beneath import Write
from node_agent.actuators.hierarchy import HierarchySurface
from node_agent.actuators.knob import Surface
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.online import OnlineNames
from node_agent.cgroup.files import UNIFIED
from node_agent.cgroup.layout import Hierarchy, Layout

CONTROLLERS = ("cpu", "memory", "io")
FREEZE = "freeze"
"""The v2 mount, where a kill reaches what is frozen; the v1 freezer without one."""
HIERARCHIES = (*CONTROLLERS, FREEZE)


def open_surfaces(
    layout: Layout, roots: Collection[str], names: OnlineNames, write: Write = os.write
) -> Mapping[str, Surface]:
    """Surfaces by the names that knobs use; a controller that is not mounted has none.

    ``roots``: best-effort roots. Raises OSError when a mount has gone.
    """
    by_mount: dict[str, HierarchySurface] = {}
    found: dict[str, Surface] = {}
    for name, at in hierarchies(layout).items():
        if at.mount not in by_mount:
            by_mount[at.mount] = HierarchySurface(at.mount, at.version, roots, names, write)
        found[name] = by_mount[at.mount]
    return found


def hierarchies(layout: Layout) -> dict[str, Hierarchy]:
    """Where the files of each control group surface are; what is not mounted is left out."""
    found = {name: layout.hierarchy(name) for name in CONTROLLERS}
    found[FREEZE] = layout.hierarchy(UNIFIED) or layout.hierarchy("freezer")
    return {name: at for name, at in found.items() if at is not None}


def offered(layout: Layout, group: str) -> dict[str, bool]:
    """Knobs of control groups by name: whether this group has any file of theirs."""
    places = hierarchies(layout)
    found = {}
    for knob in KNOBS:
        at = places.get(knob.surface)
        if at is not None:
            files = knob.files(at.version)
            found[knob.name] = any(Path(at.mount, group, file).exists() for file in files)
        elif knob.surface in HIERARCHIES:
            found[knob.name] = False
    return found


def close_surfaces(surfaces: Mapping[str, Surface]) -> None:
    """Give every descriptor back once."""
    for surface in {id(each): each for each in surfaces.values()}.values():
        surface.close()
