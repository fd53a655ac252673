"""The counter of run-queue wait over a tree of small files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from node_agent.cgroup.handles import Descriptors, GroupFiles
from node_agent.cgroup.layout import Layout, detect
from node_agent.signals import runq_wait
from node_agent.signals.runq_wait import SHORT_RELIST_US, GroupWait, RunqWait


class Tree:
    """A v2 machine whose groups have threads with a wait that the test sets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)
        line = "35 24 0:30 / /cg rw - cgroup2 cgroup2 rw\n"
        (root / "proc/self/mountinfo").write_text(line)
        (root / "cg").mkdir()
        self.layout: Layout = detect(str(root))
        self.groups: list[GroupFiles] = []

    def group(self, name: str) -> None:
        (self.root / "cg" / name).mkdir()
        self.groups.append(GroupFiles(self.layout, name, Descriptors(0)))

    def threads(self, path: str, tids: list[int]) -> None:
        home = self.root / "cg" / path
        home.mkdir(exist_ok=True)
        (home / "cgroup.threads").write_text("".join(f"{tid}\n" for tid in tids))

    def wait(self, tid: int, us: int) -> None:
        (self.root / f"proc/{tid}").mkdir(exist_ok=True)
        (self.root / f"proc/{tid}/schedstat").write_text(f"1 {us * 1000} 1\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_threads_of_sub_groups_count_and_the_first_reading_is_the_base(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1])
    tree.threads("g/c", [2])
    tree.wait(1, 1_000_000)
    tree.wait(2, 5)
    waits = RunqWait(str(tree.root), 1000)
    assert waits.sweep(tree.groups, 0) == [0]
    tree.wait(1, 1_000_100)
    tree.wait(2, 25)
    assert waits.sweep(tree.groups, 1) == [120]


def test_the_end_of_a_thread_and_a_reused_id_never_lower_it(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1, 2])
    tree.wait(1, 100)
    tree.wait(2, 100)
    waits = RunqWait(str(tree.root), 1000)
    waits.sweep(tree.groups, 0)
    tree.wait(1, 150)
    tree.wait(2, 150)
    assert waits.sweep(tree.groups, 1) == [100]
    (tree.root / "proc/2/schedstat").unlink()
    assert waits.sweep(tree.groups, 2) == [100]
    tree.threads("g", [1])
    tree.wait(1, 3)  # another thread under the old id
    assert waits.sweep(tree.groups, 3) == [100]
    tree.wait(1, 8)
    assert waits.sweep(tree.groups, 4) == [105]


def test_a_sample_of_the_threads_is_scaled_up(tree: Tree) -> None:
    count = 4 * runq_wait.THREADS_PER_GROUP
    tree.group("g")
    tree.threads("g", list(range(1, count + 1)))
    for tid in range(1, count + 1):
        tree.wait(tid, 0)
    waits = RunqWait(str(tree.root), 1000)
    waits.sweep(tree.groups, 0)
    for tid in range(1, count + 1):
        tree.wait(tid, 10)
    assert waits.sweep(tree.groups, 1) == [10 * count]


def test_the_budget_bounds_a_sweep_and_every_group_gets_its_turn(tree: Tree) -> None:
    groups = 3 * runq_wait.GROUPS_PER_S
    for index in range(groups):
        tree.group(f"g{index}")
        tree.threads(f"g{index}", [index + 1])
        tree.wait(index + 1, 0)
    waits = RunqWait(str(tree.root), 1000)
    seen: set[int] = set()
    for sweep in range(3):
        values = waits.sweep(tree.groups, sweep)
        visited = {index for index, value in enumerate(values) if value is not None}
        assert len(visited) == runq_wait.GROUPS_PER_S
        assert not visited & seen
        seen |= visited
    assert len(seen) == groups


def test_a_group_with_thousands_of_threads_does_not_break_the_budget(tree: Tree) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        tree.group(name)
        tree.threads(name, list(range(1, 5001)))
    for tid in range(1, 5001):
        tree.wait(tid, 0)
    waits = RunqWait(str(tree.root), 1000)
    values = waits.sweep(tree.groups, 0)
    most = runq_wait.THREADS_PER_S // runq_wait.THREADS_PER_GROUP
    assert sum(value is not None for value in values) == most


def test_a_group_that_left_begins_anew(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1])
    tree.wait(1, 0)
    waits = RunqWait(str(tree.root), 1000)
    waits.sweep(tree.groups, 0)
    tree.wait(1, 10)
    assert waits.sweep(tree.groups, 1) == [10]
    waits.forget({"g"})
    assert waits.sweep(tree.groups, 2) == [0]


def test_a_container_that_is_replaced_is_followed(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [])
    tree.threads("g/old", [1])
    tree.wait(1, 0)
    waits = RunqWait(str(tree.root), 1000)
    waits.sweep(tree.groups, 0)
    tree.wait(1, 10)
    assert waits.sweep(tree.groups, 1) == [10]
    shutil.rmtree(tree.root / "cg/g/old")
    tree.threads("g/new", [2])
    tree.wait(2, 500)
    for us in (500, 500, 540):  # the old one is missed, the new one listed, its first reading
        tree.wait(2, us)
        waits.sweep(tree.groups, us)
    assert waits.sweep(tree.groups, 999) == [50]


def test_at_short_intervals_the_longest_wait_of_a_few_kept_threads_counts(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1])
    tree.threads("g/c", [2])
    tree.wait(1, 50)
    tree.wait(2, 0)
    waits = GroupWait(tree.groups[0])
    assert waits.total_us(0) == 0
    tree.wait(1, 60)
    tree.wait(2, 25)
    assert waits.total_us(1) == 25
    tree.threads("g/c", [])
    tree.wait(1, 70)
    tree.wait(2, 999)
    assert waits.total_us(SHORT_RELIST_US) == 35  # the thread that left counts no more
    tree.threads("g", [])
    assert waits.total_us(2 * SHORT_RELIST_US) is None
    waits.close()
