"""Readers of the machine: resctrl's counters and disks, over small trees of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.actuators.resctrl import MOUNT
from node_agent.cgroup.handles import Descriptors, NodeFiles
from node_agent.signals import resctrl
from node_agent.signals.base import Value, zone_there
from node_agent.signals.disks import Disks
from node_agent.signals.resctrl import ClassCache


class Caches:
    """A mounted resctrl whose figures the test sets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / MOUNT / "info/L3_MON").mkdir(parents=True)

    def set(self, group: str, cache: str, llc: str, total: str, local: str) -> None:
        home = self.root / MOUNT / group / "mon_data" / cache
        home.mkdir(parents=True, exist_ok=True)
        for name, text in zip(resctrl.FIGURES, (llc, total, local), strict=True):
            (home / name).write_text(text + "\n")


@pytest.fixture
def caches(tmp_path: Path) -> Caches:
    return Caches(tmp_path)


def read(reader: ClassCache) -> tuple[Value, ...] | None:
    return reader.read(0)


def test_figures_are_sums_over_caches_whose_numbers_have_gaps(caches: Caches) -> None:
    numbers = [*range(8), *range(16, 24)]
    for cache in numbers:
        caches.set("BE", f"mon_L3_{cache:02d}", "1000", "500", "400")
    reader = ClassCache(str(caches.root), "be")
    assert reader.there()
    assert read(reader) == (16_000, None, None)
    for cache in numbers:
        caches.set("BE", f"mon_L3_{cache:02d}", "2000", "530", "410")
    assert read(reader) == (32_000, 16 * 30, 16 * 10)


@pytest.mark.parametrize("word", ["Unavailable", "Error", "Unassigned"])
def test_one_cache_that_does_not_say_makes_the_figure_absent(caches: Caches, word: str) -> None:
    caches.set("BE", "mon_L3_00", "1000", "500", "400")
    caches.set("BE", "mon_L3_01", "1000", "500", "400")
    reader = ClassCache(str(caches.root), "be")
    read(reader)
    caches.set("BE", "mon_L3_01", word, word, "430")
    assert read(reader) == (None, None, 30)
    caches.set("BE", "mon_L3_01", "10", "700", "430")
    assert read(reader) == (1010, None, 30)  # its first reading is a base again
    caches.set("BE", "mon_L3_01", "10", "701", "430")
    assert read(reader) == (1010, 1, 30)


def test_a_counter_that_fell_is_absent_once_and_never_lowers_the_figure(caches: Caches) -> None:
    caches.set("BE", "mon_L3_00", "1", "500", "400")
    reader = ClassCache(str(caches.root), "be")
    read(reader)
    caches.set("BE", "mon_L3_00", "1", "900", "600")
    assert read(reader) == (1, 400, 200)
    caches.set("BE", "mon_L3_00", "1", "5", "700")  # wrapped, or given to another and back
    assert read(reader) == (1, None, 300)
    caches.set("BE", "mon_L3_00", "1", "25", "700")
    assert read(reader) == (1, 420, 300)


def test_what_was_never_above_0_is_suspect(caches: Caches) -> None:
    caches.set("BE", "mon_L3_00", "0", "0", "0")
    reader = ClassCache(str(caches.root), "be")
    assert [read(reader) for _ in range(3)] == [(None, None, None)] * 3
    caches.set("BE", "mon_L3_00", "5", "7", "0")
    assert read(reader) == (5, 7, None)
    caches.set("BE", "mon_L3_00", "0", "7", "0")
    assert read(reader) == (0, 7, None), "once it has counted, 0 is a figure"


def test_classes_are_control_groups_or_groups_for_monitoring_and_the_rest_is_the_root(
    caches: Caches,
) -> None:
    caches.set("LS", "mon_L3_00", "10", "1", "1")
    caches.set("mon_groups/LSR", "mon_L3_00", "20", "1", "1")
    caches.set(".", "mon_L3_00", "30", "1", "1")
    caches.set("foreign", "mon_L3_00", "40", "1", "1")
    readers = {reader.columns[0]: reader for reader in resctrl.readers(str(caches.root))}
    there = {name: read(reader) for name, reader in readers.items() if reader.there()}
    assert there == {
        "llc_lsr_bytes": (20, None, None),
        "llc_ls_bytes": (10, None, None),
        "llc_rest_bytes": (30, None, None),
    }
    assert read(readers["llc_be_bytes"]) is None


def test_an_empty_group_says_nothing(caches: Caches) -> None:
    (caches.root / MOUNT / "BE/mon_data").mkdir(parents=True)
    assert read(ClassCache(str(caches.root), "be")) == (None, None, None)


def test_without_monitoring_no_reader_is_there(tmp_path: Path) -> None:
    assert not any(reader.there() for reader in resctrl.readers(str(tmp_path)))
    (tmp_path / MOUNT / "mon_data").mkdir(parents=True)  # allocation alone
    assert not any(reader.there() for reader in resctrl.readers(str(tmp_path)))


@pytest.mark.parametrize("text", ["", "many", "1 2"])
def test_a_broken_figure_is_an_error(caches: Caches, text: str) -> None:
    caches.set("BE", "mon_L3_00", text, "1", "1")
    with pytest.raises(ValueError, match="int"):
        read(ClassCache(str(caches.root), "be"))


ROW = "{} {} {name} {reads} 0 0 {read_ms} {writes} 0 0 {write_ms} 0 {busy_ms} 0 0 0 0 0 0 0\n"


class Machine:
    """A machine with block devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "sys/block").mkdir(parents=True)
        self.rows: dict[str, str] = {}
        self.disks = Disks(NodeFiles(str(root), Descriptors(0)))

    def device(self, name: str, home: str | None) -> None:
        """``home``: below /sys/devices; None: a partition, which is not listed."""
        if home is not None:
            (self.root / "sys/devices" / home).mkdir(parents=True)
            link = self.root / "sys/block" / name.replace("/", "!")
            link.symlink_to(f"../devices/{home}")

    def count(self, name: str, figures: tuple[int, int, int, int, int]) -> None:
        keys = ("reads", "read_ms", "writes", "write_ms", "busy_ms")
        self.rows[name] = ROW.format(8, 0, name=name, **dict(zip(keys, figures, strict=True)))
        (self.root / "proc/diskstats").write_text("".join(self.rows.values()))


def test_whole_disks_count_once_and_what_stands_on_them_not_at_all(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for name, home in (
        ("sda", "pci0000:00/ata1/block/sda"),
        ("sda1", None),
        ("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0/nvme0n1"),
        ("cciss/c0d0", "pci0000:00/cciss0/cciss!c0d0"),
        ("dm-0", "virtual/block/dm-0"),
        ("loop0", "virtual/block/loop0"),
    ):
        machine.device(name, home)
        machine.count(name, (10, 20, 30, 40, 50))
    assert machine.disks.there()
    found = machine.disks.read(0)
    assert found == (60_000, 120_000, 30, 90, 150_000)
    assert dict(zip(machine.disks.columns, found, strict=True)) == {
        "disk_read_us": 60_000,
        "disk_write_us": 120_000,
        "disk_reads": 30,
        "disk_writes": 90,
        "disk_busy_us": 150_000,
    }


def test_a_disk_that_comes_later_is_seen(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device("vda", "pci0000:00/virtio1/block/vda")
    machine.count("vda", (1, 2, 3, 4, 5))
    assert machine.disks.read(0) == (2000, 4000, 1, 3, 5000)
    machine.device("vdb", "pci0000:00/virtio2/block/vdb")
    machine.count("vdb", (1, 2, 3, 4, 5))
    assert machine.disks.read(1) == (4000, 8000, 2, 6, 10_000)


def test_a_machine_without_disks_says_nothing_of_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert not machine.disks.there()
    assert machine.disks.read(0) is None
    machine.device("loop0", "virtual/block/loop0")
    machine.count("loop0", (1, 2, 3, 4, 5))
    assert machine.disks.read(10**12) is None


def test_numa_nodes_count_where_there_are_several(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/devices/system/node"
    (nodes / "node0").mkdir(parents=True)
    (nodes / "power").mkdir()
    assert not zone_there(0)(str(tmp_path))
    (nodes / "node2").mkdir()
    assert [zone_there(zone)(str(tmp_path)) for zone in range(4)] == [True, False, True, False]
