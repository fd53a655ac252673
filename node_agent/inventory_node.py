"""Facts of the machine itself: online CPUs, memory, kernel, and what this kernel can do.

Both inventory sources ask a `NodeFacts`. CPUs that come or go are noticed within a second, the rest
is looked at every `REFRESH_US`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.cgroup.layout import Layout
from node_agent.inventory import InventoryError
from node_agent.inventory_cpus import MILLI_PER_CPU, resctrl, topology, zones
from node_agent.signals import cold_memory, node_memory, perf
from node_agent.signals import resctrl as resctrl_monitoring
from node_agent.signals.base import zone_there
from node_agent.surfaces import offered
from schemas.records import Inventory

_LOG = logging.getLogger(__name__)
REFRESH_US = 10_000_000
HOTPLUG_US = 1_000_000


class NodeFactsError(InventoryError):
    """The machine does not say what it has; without it no capacity can be computed."""


class NodeFacts:
    """The facts of one machine, kept as long as they are fresh."""

    def __init__(self, node: str, layout: Layout) -> None:
        self.error = ""  # why the latest look failed; empty: it did not
        self.changes = 0  # of the set of online CPUs
        self._node, self._layout = node, layout
        self._online = f"{layout.root.rstrip('/')}/sys/devices/system/cpu/online"
        self._kept: Inventory | None = None
        self._be_root: str | None = None
        self._cpus = ""
        self._read_us = self._asked_us = 0

    def look(self, mono_us: int, be_root: str | None) -> Inventory:
        """The facts now: the same object while nothing has changed.

        What cannot be read keeps the last state. Raises `NodeFactsError` when there is none.
        """
        if self._kept is not None and be_root == self._be_root:
            if mono_us - self._asked_us < HOTPLUG_US:
                return self._kept
            self._asked_us = mono_us
            if mono_us - self._read_us < REFRESH_US and self._cpus_now() == self._cpus:
                return self._kept
        self._read_us = self._asked_us = mono_us
        cpus = self._cpus_now()
        try:
            facts = node_facts(self._node, self._layout, be_root)
        except NodeFactsError as error:
            if self._kept is None:
                raise
            if str(error) != self.error:
                self.error = str(error)
                _LOG.warning("node facts not refreshed, the last ones hold: %s", error)
            return self._kept
        self.error = ""
        if self._kept is not None and cpus != self._cpus:
            self.changes += 1
            _LOG.info("online CPUs are now %s, they were %s", cpus, self._cpus)
        self._cpus, self._be_root = cpus, be_root
        if facts != self._kept:
            self._kept = facts
        return self._kept

    def _cpus_now(self) -> str:
        """The list as the kernel writes it; the last one where it cannot be read."""
        try:
            return _text(self._online).strip()
        except OSError:
            return self._cpus


def node_facts(node: str, layout: Layout, be_root: str | None) -> Inventory:
    """An inventory without pods: capacity from online CPUs and MemTotal.

    Raises `NodeFactsError` when /sys or /proc lack them.
    """
    base = layout.root.rstrip("/")
    try:
        online = parse_cpu_list(_text(f"{base}/sys/devices/system/cpu/online"))
        memory_bytes = node_memory.parse(Path(f"{base}/proc/meminfo").read_bytes())[0]
        kernel = _text(f"{base}/proc/sys/kernel/osrelease").strip()
    except (OSError, ValueError) as error:
        raise NodeFactsError(f"cannot read the node's capacity: {error}") from error
    if not online or memory_bytes is None:
        raise NodeFactsError("the kernel names no online CPU or no MemTotal; check /sys and /proc")
    return Inventory(
        node=node,
        pods_rev=0,
        cpu_capacity_milli=len(online) * MILLI_PER_CPU,
        memory_capacity_bytes=memory_bytes,
        kernel=kernel,
        capabilities=capabilities(layout, be_root),
        zones=zones(base, online),
        topology=topology(base, online),
        resctrl=resctrl(base),
    )


def capabilities(layout: Layout, be_root: str | None) -> dict[str, bool]:
    """What this kernel offers. ``cpu_idle``, ``cgroup_kill`` and the knobs of isolation are asked
    of the best-effort root, for a hierarchy's root has no such files: False, or not said, where
    there is none yet.
    """
    base = layout.root.rstrip("/")

    def has(name: str) -> bool:
        place = None if be_root is None else layout.place(name, be_root)
        return place is not None and Path(place.path).exists()

    found = {f"{name}_v2": version == 2 for name, version in layout.versions().items()}
    found["psi"] = _readable(f"{base}/proc/pressure/cpu")
    found["psi_group"] = found["psi"] and layout.unified is not None
    found["cpu_idle"] = has("cpu_idle")
    found["cpu_quota"] = has("cpu_quota")
    found["cgroup_kill"] = has("kill")
    found["numa"] = zone_there(0)(base)
    found["resctrl_monitoring"] = resctrl_monitoring.there(base)
    found["perf"] = layout.perf_event is not None and perf.there(base)
    found["cold_memory"] = cold_memory.there(base)
    if be_root is not None:
        found |= offered(layout, be_root)
    return found


def _readable(path: str) -> bool:
    """Whether a file can be read: a kernel with pressure switched off refuses the read."""
    try:
        return bool(_text(path))
    except OSError:
        return False


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii")
