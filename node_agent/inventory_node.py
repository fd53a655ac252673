"""Facts of the machine itself: online CPUs, memory, kernel, and what this kernel can do.

Called by both inventory sources, at start and every `REFRESH_US`, so that a CPU that goes offline
lowers the capacity.
"""

from __future__ import annotations

from pathlib import Path

from node_agent.cgroup.cpulist import parse_cpu_list
from node_agent.cgroup.layout import Layout
from node_agent.inventory import InventoryError
from node_agent.inventory_cpus import resctrl, topology
from node_agent.signals import node_memory
from schemas.records import Inventory

REFRESH_US = 10_000_000
MILLI_PER_CPU = 1000


class NodeFactsError(InventoryError):
    """The machine does not say what it has; without it no capacity can be computed."""


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
        topology=topology(base, online),
        resctrl=resctrl(base),
    )


def capabilities(layout: Layout, be_root: str | None) -> dict[str, bool]:
    """What this kernel offers. ``cpu_idle`` and ``cgroup_kill`` are asked of the best-effort root,
    for a hierarchy's root has no such files: False where there is none yet.
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
    return found


def _readable(path: str) -> bool:
    """Whether a file can be read: a kernel with pressure switched off refuses the read."""
    try:
        return bool(_text(path))
    except OSError:
        return False


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii")
