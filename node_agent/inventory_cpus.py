"""Where each CPU of the machine sits, and what of its caches the kernel lets divide.

Called by `node_agent.inventory_node` at each refresh. Where a CPU sits is read once for a set of
online CPUs: it does not move. What /sys does not say is not known: None, never a guess.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from agents.isolation.schemata import parse
from node_agent.actuators.resctrl import in_mbps
from node_agent.cgroup.cpulist import parse_cpu_list
from schemas.records import CpuTopology, ResctrlFacts, Zone

AMD = "AuthenticAMD"
MILLI_PER_CPU = 1000
CPUINFO_HEAD = 4096  # characters; the vendor stands in the first CPU's part


@lru_cache(maxsize=4)
def topology(base: str, online: tuple[int, ...]) -> CpuTopology | None:
    """The online CPUs; ``base`` is the root of the file system, without a slash at its end."""
    system = Path(f"{base}/sys/devices/system")
    try:
        places = [_place(system / f"cpu/cpu{cpu}/topology") for cpu in online]
        numa = _numa(system / "node")
    except (OSError, ValueError):
        return None
    core = tuple(core for core, _ in places)
    socket = tuple(socket for _, socket in places)
    return CpuTopology(online, core, socket, tuple(numa.get(cpu, 0) for cpu in online))


def zones(base: str, online: tuple[int, ...]) -> tuple[Zone, ...]:
    """What each NUMA node has; none where there is but one, for that is the machine itself.

    A node of memory alone is a zone without CPUs. A node whose memory is not said has none.
    """
    nodes = Path(f"{base}/sys/devices/system/node")
    found: list[tuple[int, Zone]] = []
    for each in nodes.glob("node[0-9]*"):
        number = int(each.name.removeprefix("node"))
        try:
            cpus = parse_cpu_list((each / "cpulist").read_text("ascii"))
            memory_bytes = _memory_bytes((each / "meminfo").read_text("ascii"))
        except (OSError, ValueError):
            return ()
        milli = len(set(cpus) & set(online)) * MILLI_PER_CPU
        found.append((number, Zone(each.name, milli, memory_bytes)))
    ordered = sorted(found, key=lambda pair: pair[0])
    return tuple(zone for _, zone in ordered) if len(found) > 1 else ()


def zone_places(zones: tuple[Zone, ...]) -> dict[int, int]:
    """The kernel's number of each NUMA node -> its place among the zones."""
    return {int(zone.name.removeprefix("node")): place for place, zone in enumerate(zones)}


def resctrl(base: str) -> ResctrlFacts | None:
    """What can be divided; None where resctrl is not mounted, or not readable.

    Bandwidth only where its domains are those of the caches: a command names one list for both.
    """
    top = Path(f"{base}/sys/fs/resctrl")
    try:
        text = (top / "schemata").read_text("ascii")
        ways, rates = (parse(_line_of(name, text), -1) for name in ("L3", "MB"))
        mask_file = top / "info/L3/cbm_mask"
        mask = int(mask_file.read_text("ascii"), 16) if mask_file.exists() else 0
        bandwidth = (top / "info/MB").is_dir() and not in_mbps(base)
        with Path(f"{base}/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            amd = AMD in file.read(CPUINFO_HEAD)
    except (OSError, ValueError):
        return None
    if ways is None or rates is None or not (ways.l3 or rates.mb):
        return None
    if ways.l3 and rates.mb and ways.l3.keys() != rates.mb.keys():
        bandwidth = False
    return ResctrlFacts(mask, tuple(sorted(ways.l3 or rates.mb)), bandwidth, amd)


def _line_of(resource: str, text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip().startswith(resource + ":"))


def _place(directory: Path) -> tuple[int, int]:
    """(core, socket); a socket that the kernel does not know is the first."""
    core = int((directory / "core_id").read_text("ascii"))
    socket = int((directory / "physical_package_id").read_text("ascii"))
    return core, max(socket, 0)


def _memory_bytes(text: str) -> int:
    """MemTotal of a NUMA node: "Node 0 MemTotal:  65842484 kB"."""
    for line in text.splitlines():
        words = line.split()
        if words[2:3] == ["MemTotal:"] and words[4:] == ["kB"]:
            return int(words[3]) * 1024
    return 0


def _numa(nodes: Path) -> dict[int, int]:
    """NUMA node of each CPU; a kernel without NUMA has no such directory."""
    return {
        cpu: int(found.name.removeprefix("node"))
        for found in sorted(nodes.glob("node[0-9]*"))
        for cpu in parse_cpu_list((found / "cpulist").read_text("ascii"))
    }
