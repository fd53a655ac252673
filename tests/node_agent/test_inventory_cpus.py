"""Topology and caches: read from trees of files, absent where the kernel does not say."""

from __future__ import annotations

from pathlib import Path

from node_agent.cgroup.layout import detect
from node_agent.inventory_cpus import resctrl, topology, zone_places, zones
from node_agent.inventory_node import node_facts
from schemas.records import CpuTopology, ResctrlFacts, Zone


def cpus(base: Path, places: dict[int, tuple[int, int]], nodes: dict[int, str]) -> str:
    system = base / "sys/devices/system"
    for cpu, (core, socket) in places.items():
        directory = system / f"cpu/cpu{cpu}/topology"
        directory.mkdir(parents=True)
        (directory / "core_id").write_text(f"{core}\n")
        (directory / "physical_package_id").write_text(f"{socket}\n")
    for node, text in nodes.items():
        directory = system / f"node/node{node}"
        directory.mkdir(parents=True)
        (directory / "cpulist").write_text(f"{text}\n")
    return str(base)


def test_each_online_cpu_has_its_core_socket_and_numa_node(tmp_path: Path) -> None:
    places = {0: (0, 0), 1: (4, 0), 2: (0, 1), 3: (4, 1), 9: (7, 1)}
    base = cpus(tmp_path, places, {0: "0-1", 10: "2-3,9"})
    assert topology(base, (0, 1, 3, 9)) == CpuTopology(
        (0, 1, 3, 9), (0, 4, 4, 7), (0, 0, 1, 1), (0, 0, 10, 10)
    )


def test_without_numa_all_is_one_node_and_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    base = cpus(tmp_path, {0: (0, -1), 1: (0, -1)}, {})
    assert topology(base, (0, 1)) == CpuTopology((0, 1), (0, 0), (0, 0), (0, 0))
    assert topology(base, (0, 1, 2)) is None


def memory(base: Path, sizes: dict[int, str]) -> None:
    for node, text in sizes.items():
        (base / f"sys/devices/system/node/node{node}/meminfo").write_text(
            f"Node {node} MemTotal:       {text}\nNode {node} MemFree:          1 kB\n"
        )


def test_each_numa_node_is_a_zone_also_one_of_memory_alone(tmp_path: Path) -> None:
    base = cpus(tmp_path, {}, {0: "0-3", 10: "", 2: "4-7"})
    memory(tmp_path, {0: "1000 kB", 10: "4 kB", 2: "2000 kB"})
    found = zones(base, (0, 1, 2, 5))
    assert found == (
        Zone("node0", 3000, 1000 * 1024), Zone("node2", 1000, 2000 * 1024), Zone("node10", 0, 4096),
    )  # fmt: skip
    assert zone_places(found) == {0: 0, 2: 1, 10: 2}


def test_one_numa_node_or_one_that_does_not_say_its_memory_makes_no_zones(tmp_path: Path) -> None:
    assert zones(str(tmp_path), (0,)) == ()
    base = cpus(tmp_path / "one", {}, {0: "0-3"})
    memory(tmp_path / "one", {0: "1000 kB"})
    assert zones(base, (0,)) == ()
    base = cpus(tmp_path / "two", {}, {0: "0", 1: "1"})
    memory(tmp_path / "two", {0: "1000 kB"})
    assert zones(base, (0, 1)) == ()
    memory(tmp_path / "two", {1: "many kB"})
    assert zones(base, (0, 1)) == ()


def caches(base: Path, schemata: str, vendor: str = "GenuineIntel") -> str:
    (base / "sys/fs/resctrl/info/L3").mkdir(parents=True)
    (base / "sys/fs/resctrl/info/L3/cbm_mask").write_text("7ff\n")
    (base / "sys/fs/resctrl/schemata").write_text(schemata)
    (base / "proc").mkdir()
    (base / "proc/cpuinfo").write_text(f"processor : 0\nvendor_id : {vendor}\n")
    return str(base)


def test_caches_are_told_with_their_domains_and_the_vendor_s_unit(tmp_path: Path) -> None:
    base = caches(tmp_path / "intel", "    L3:0=7ff;1=7ff\n")
    assert resctrl(base) == ResctrlFacts(0x7FF, (0, 1))
    base = caches(tmp_path / "amd", "    MB:0=2048;8=2048\n    L3:0=ff;8=ff\n", "AuthenticAMD")
    (tmp_path / "amd/sys/fs/resctrl/info/MB").mkdir()
    assert resctrl(base) == ResctrlFacts(0x7FF, (0, 8), bandwidth=True, amd=True)


def test_not_mounted_or_unreadable_is_nothing_known(tmp_path: Path) -> None:
    assert resctrl(str(tmp_path)) is None
    assert resctrl(caches(tmp_path, "L3:what\n")) is None


def test_this_machine_s_own_facts_are_whole() -> None:
    record = node_facts("n", detect(), None)
    if record.topology is not None:
        assert len(record.topology.cpu) * 1000 == record.cpu_capacity_milli
