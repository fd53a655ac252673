"""Limits at and above the best-effort root: which comes first, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.cgroup.handles import Descriptors, GroupFiles
from node_agent.cgroup.layout import Layout, detect
from node_agent.signals.memory_limits import CLOSE_BYTES, MemoryLimits, file_pages

ROOT = "kubepods/besteffort"
GIB = 1 << 30
V1_NONE = (1 << 63) - 4096


class Tree:
    """Two groups in a memory hierarchy of files, of either version."""

    def __init__(self, root: Path, version: int) -> None:
        self.version, self.home = version, root / "cg"
        (root / "proc/self").mkdir(parents=True)
        kind = "cgroup cgroup rw,memory,cpuacct" if version == 1 else "cgroup2 cgroup2 rw"
        (root / "proc/self/mountinfo").write_text(f"35 24 0:30 / /cg rw - {kind}\n")
        (self.home / ROOT).mkdir(parents=True)
        (self.home / "cgroup.controllers").write_text("memory\n")
        self.layout: Layout = detect(str(root))
        self.opened: list[GroupFiles] = []
        self.set("kubepods", None, 0)
        self.set(ROOT, None, 0)

    def set(self, group: str, limit: int | None, charged: int, files: int = 0) -> None:
        home = self.home / group
        if self.version == 1:
            (home / "memory.limit_in_bytes").write_text(f"{V1_NONE if limit is None else limit}\n")
            (home / "memory.usage_in_bytes").write_text(f"{charged}\n")
            stat = f"cache 1\ninactive_file 7\ntotal_inactive_file {files // 2}\n"
            (home / "memory.stat").write_text(f"{stat}total_active_file {files - files // 2}\n")
        else:
            (home / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
            (home / "memory.current").write_text(f"{charged}\n")
            stat = f"inactive_file {files // 2}\nactive_file {files - files // 2}\n"
            (home / "memory.stat").write_text(stat)

    def open(self, group: str) -> GroupFiles:
        self.opened.append(GroupFiles(self.layout, group, Descriptors(8)))
        return self.opened[-1]


@pytest.fixture(params=[1, 2])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return Tree(tmp_path, request.param)


@pytest.fixture
def limits(tree: Tree) -> Iterator[MemoryLimits]:
    made = MemoryLimits(tree.layout, ROOT, tree.open)
    yield made
    made.close()


def test_the_limit_with_the_least_room_counts_and_file_pages_do_not(
    tree: Tree, limits: MemoryLimits
) -> None:
    assert limits.read(0) == (-1, None)
    tree.set("kubepods", 8 * GIB, 7 * GIB, files=3 * GIB)
    assert limits.read(0) == (8 * GIB, 4 * GIB)
    tree.set(ROOT, 3 * GIB, 2 * GIB)
    assert limits.read(0) == (3 * GIB, 2 * GIB)
    tree.set(ROOT, 3 * GIB, 2 * GIB, files=2 * GIB)
    assert limits.read(0) == (3 * GIB, 0)
    tree.set("kubepods", 8 * GIB, 7 * GIB)
    assert limits.read(0) == (8 * GIB, 7 * GIB)


def test_more_file_pages_than_memory_in_use_is_nothing_in_use(
    tree: Tree, limits: MemoryLimits
) -> None:
    tree.set(ROOT, GIB, 1000, files=1500)  # the two files are not read at one moment
    assert limits.read(0) == (GIB, 0)


def test_room_is_told_between_two_readings_and_cache_is_looked_into_when_close(
    tree: Tree, limits: MemoryLimits
) -> None:
    assert limits.room(0, lambda limit: limit) is None
    tree.set(ROOT, 4 * GIB, GIB, files=GIB)
    limits.read(0)
    assert limits.room(0, lambda limit: limit) == 3 * GIB  # far away: what is charged is enough
    tree.set(ROOT, 4 * GIB, 4 * GIB, files=GIB)
    assert limits.room(0, lambda limit: limit) == GIB
    tree.set(ROOT, 4 * GIB, 4 * GIB)
    assert limits.room(0, lambda limit: limit - CLOSE_BYTES) == -CLOSE_BYTES


def test_a_root_that_is_not_there_or_goes_is_no_limit(tree: Tree, limits: MemoryLimits) -> None:
    tree.set(ROOT, GIB, GIB)
    assert limits.read(0) == (GIB, GIB)
    for file in (tree.home / ROOT).iterdir():
        file.unlink()
    (tree.home / ROOT).rmdir()
    for files in tree.opened:
        files.close()
    assert limits.room(1, lambda limit: limit) is None
    assert limits.read(1) == (-1, None)


def test_a_machine_without_a_memory_controller_says_nothing(tree: Tree, tmp_path: Path) -> None:
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.write_text("35 24 0:30 / /cg rw - cgroup cgroup rw,cpuacct\n")
    limits = MemoryLimits(detect(str(tmp_path)), ROOT, tree.open)
    assert limits.read(0) == (None, None)
    assert limits.room(0, lambda limit: limit) is None


def test_only_the_sums_over_children_count_on_v1() -> None:
    text = b"cache 9\nactive_file 5\ntotal_active_file 30\ntotal_inactive_file 12\n"
    assert file_pages(text, b"\ntotal_") == 42
    assert file_pages(b"anon 1\nactive_file 5\ninactive_file 6\n", b"\n") == 11
