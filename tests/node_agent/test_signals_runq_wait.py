"""The counter of run-queue wait over a tree of small files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from node_agent.cgroup.handles import Descriptors, GroupFiles
from node_agent.cgroup.layout import Layout, detect
from node_agent.signals import runq_wait
from node_agent.signals.base import Pods, Value
from node_agent.signals.runq_wait import SHORT_RELIST_US, GroupWait, RunqWait
from schemas.records import PodFact, Qos


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
        self.facts: list[PodFact] = []

    def group(self, name: str, qos: Qos = "LS") -> None:
        (self.root / "cg" / name).mkdir()
        self.groups.append(GroupFiles(self.layout, name, Descriptors(0)))
        self.facts.append(PodFact(name, name, qos=qos))

    def sweep(self, waits: RunqWait, now_us: int) -> list[Value]:
        """One visit, and what is known after it."""
        pods = Pods(self.groups, self.facts)
        assert waits.visit(pods, now_us, None) is False
        return waits.values("runq_wait_us", pods)

    def threads(self, path: str, tids: list[int]) -> None:
        home = self.root / "cg" / path
        home.mkdir(exist_ok=True)
        (home / "cgroup.threads").write_text("".join(f"{tid}\n" for tid in tids))

    def wait(self, tid: int, us: int) -> None:
        (self.root / f"proc/{tid}").mkdir(exist_ok=True)
        (self.root / f"proc/{tid}/schedstat").write_text(f"1 {us * 1000} 1\n")


class Watched(RunqWait):
    """Remembers which groups each sweep looked at."""

    def __init__(self, root: str, period_ms: int) -> None:
        super().__init__(root, period_ms)
        self.looks: list[list[str]] = []

    def _look(self, group: runq_wait._Group, files: GroupFiles, budget: int, now_us: int) -> int:
        self.looks[-1].append(files.group)
        return super()._look(group, files, budget, now_us)


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
    assert tree.sweep(waits, 0) == [0]
    tree.wait(1, 1_000_100)
    tree.wait(2, 25)
    assert tree.sweep(waits, 1) == [120]


def test_the_end_of_a_thread_and_a_reused_id_never_lower_it(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1, 2])
    tree.wait(1, 100)
    tree.wait(2, 100)
    waits = RunqWait(str(tree.root), 1000)
    tree.sweep(waits, 0)
    tree.wait(1, 150)
    tree.wait(2, 150)
    assert tree.sweep(waits, 1) == [100]
    (tree.root / "proc/2/schedstat").unlink()
    assert tree.sweep(waits, 2) == [100]
    tree.threads("g", [1])
    tree.wait(1, 3)  # another thread under the old id
    assert tree.sweep(waits, 3) == [100]
    tree.wait(1, 8)
    assert tree.sweep(waits, 4) == [105]


def test_a_sample_of_the_threads_is_scaled_up(tree: Tree) -> None:
    count = 4 * runq_wait.THREADS_PER_GROUP
    tree.group("g")
    tree.threads("g", list(range(1, count + 1)))
    for tid in range(1, count + 1):
        tree.wait(tid, 0)
    waits = RunqWait(str(tree.root), 1000)
    tree.sweep(waits, 0)
    for tid in range(1, count + 1):
        tree.wait(tid, 10)
    assert tree.sweep(waits, 1) == [10 * count]


@pytest.mark.parametrize("period_ms", [100, 200, 1000, 2500])
@pytest.mark.parametrize("groups", [1, 3, 7, 8, 10, 16, 67, 100])
def test_each_stretch_of_a_round_holds_the_same_visits(
    tree: Tree, groups: int, period_ms: int
) -> None:
    for index in range(groups):
        tree.group(f"g{index}")
        tree.threads(f"g{index}", [index + 1])
        tree.wait(index + 1, 0)
    waits = Watched(str(tree.root), period_ms)
    sweeps = runq_wait.ROUND_MS // period_ms
    for sweep in range(4 * sweeps):
        waits.looks.append([])
        tree.sweep(waits, sweep)
    looks = waits.looks
    counts = [
        [sum(group.group in one for one in looks[at : at + sweeps]) for group in tree.groups]
        for at in range(sweeps, 3 * sweeps)
    ]
    rounds = min(max(1, 80 // groups), sweeps)
    assert all(abs(count - rounds) <= 1 for each in counts for count in each)
    assert all(abs(sum(each) - groups * rounds) <= 1 for each in counts)
    most = max(len(one) for one in looks)
    assert most <= -(-groups * rounds * period_ms // runq_wait.ROUND_MS) + 1


def test_between_visits_the_counter_stands(tree: Tree) -> None:
    for index in range(100):
        tree.group(f"g{index}")
        tree.threads(f"g{index}", [index + 1])
        tree.wait(index + 1, 0)
    waits = RunqWait(str(tree.root), 1000)
    seen = [tree.sweep(waits, sweep) for sweep in range(10)]
    assert [values.count(None) for values in seen] == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    for index in range(100):
        tree.wait(index + 1, 50)
    later = [tree.sweep(waits, sweep) for sweep in range(10)]
    assert [values.count(50) for values in later] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert [values.count(0) for values in later] == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]


def test_best_effort_groups_are_not_looked_at(tree: Tree) -> None:
    tree.group("be", "BE")
    tree.group("ls")
    for name, tid in (("be", 1), ("ls", 2)):
        tree.threads(name, [tid])
        tree.wait(tid, 0)
    waits = RunqWait(str(tree.root), 1000)
    assert tree.sweep(waits, 0) == [None, 0]


def test_groups_with_thousands_of_threads_do_not_break_the_budget(tree: Tree) -> None:
    names = ("a", "b", "c", "d", "e", "f")
    for name in names:
        tree.group(name)
        tree.threads(name, list(range(1, 5001)))
    for tid in range(1, 5001):
        tree.wait(tid, 0)
    waits = RunqWait(str(tree.root), 1000)
    assert tree.sweep(waits, 0) == [0] * len(names)
    read = sum(len(group.waited_ns) for group in waits._groups.values())
    assert len(names) * runq_wait.THREADS_LEAST <= read <= runq_wait.THREADS_PER_S


def test_a_group_that_left_begins_anew(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [1])
    tree.wait(1, 0)
    waits = RunqWait(str(tree.root), 1000)
    tree.sweep(waits, 0)
    tree.wait(1, 10)
    assert tree.sweep(waits, 1) == [10]
    waits.forget({"g"})
    assert tree.sweep(waits, 2) == [0]


def test_a_container_that_is_replaced_is_followed(tree: Tree) -> None:
    tree.group("g")
    tree.threads("g", [])
    tree.threads("g/old", [1])
    tree.wait(1, 0)
    waits = RunqWait(str(tree.root), 1000)
    tree.sweep(waits, 0)
    tree.wait(1, 10)
    assert tree.sweep(waits, 1) == [10]
    shutil.rmtree(tree.root / "cg/g/old")
    tree.threads("g/new", [2])
    tree.wait(2, 500)
    for us in (500, 500, 540):  # the old one is missed, the new one listed, its first reading
        tree.wait(2, us)
        tree.sweep(waits, us)
    assert tree.sweep(waits, 999) == [50]


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
