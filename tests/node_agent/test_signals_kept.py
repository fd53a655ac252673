"""Signals that go round the pods: network, kernel kills, cycles; over small trees of files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from node_agent.cgroup.handles import REPROBE_US, Descriptors, GroupFiles
from node_agent.cgroup.layout import detect
from node_agent.signals import network, oom, perf
from node_agent.signals.base import KeptSignal, Pods, Value
from schemas.records import PodFact, Qos

V1 = """33 24 0:30 / /memory rw - cgroup cgroup rw,memory
34 24 0:31 / /cpu rw - cgroup cgroup rw,cpuacct
"""
V2 = "35 24 0:30 / /cg rw - cgroup2 cgroup2 rw\n"
DEV = """Inter-|   Receive  |  Transmit
 face |bytes packets|bytes packets
    lo: 777 1 0 0 0 0 0 0 777 1 0 0 0 0 0 0
  eth0:{rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0
"""


class Tree:
    """A machine of files with groups, processes and namespaces that the test sets."""

    def __init__(self, root: Path, mounts: str = V2) -> None:
        self.root = root
        self.write("proc/self/mountinfo", mounts)
        self.write("cg/cgroup.controllers", "memory\n")
        self.write("sys/devices/system/cpu/online", "0-1\n")
        self.namespace(1, "machine")
        self.layout = detect(str(root))
        self.files: list[GroupFiles] = []
        self.facts: list[PodFact] = []

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def namespace(self, pid: int, name: str) -> None:
        """Put a process into a namespace."""
        self.write(f"ns/{name}", "")
        link = self.root / f"proc/{pid}/ns/net"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(self.root / "ns" / name)

    def traffic(self, pid: int, received: int, sent: int) -> None:
        self.write(f"proc/{pid}/net/dev", DEV.format(rx=received, tx=sent))

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / f"proc/{pid}")

    def pod(self, name: str, qos: Qos = "LS") -> None:
        for mount in self.layout.mounts():
            Path(mount, name).mkdir(parents=True)
        self.files.append(GroupFiles(self.layout, name, Descriptors(0)))
        self.facts.append(PodFact(name, name, qos=qos))

    def pods(self) -> Pods:
        return Pods(self.files, self.facts)

    def visit(self, signal: KeptSignal, now_us: int = 0, oom_kills: Value = None) -> bool:
        return signal.visit(self.pods(), now_us, oom_kills)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def received(tree: Tree, net: network.Network) -> list[Value]:
    tree.visit(net)
    return net.values("net_receive_bytes", tree.pods())


def a_round(tree: Tree) -> network.Network:
    """A signal that visits every pod in each sweep."""
    return network.Network(str(tree.root), network.ROUND_MS)


def test_traffic_counts_from_the_first_visit_and_without_loopback(tree: Tree) -> None:
    tree.pod("web")
    tree.write("cg/web/cgroup.procs", "")
    tree.write("cg/web/c0/cgroup.procs", "10\n")
    tree.namespace(10, "web")
    tree.traffic(10, 5000, 300)
    net = a_round(tree)
    assert received(tree, net) == [0]
    tree.traffic(10, 5070, 320)
    assert received(tree, net) == [70]
    assert net.values("net_transmit_bytes", tree.pods()) == [20]
    assert net.reason == ""


def test_a_pod_on_the_machines_network_has_no_figure(tree: Tree) -> None:
    tree.pod("host")
    tree.write("cg/host/cgroup.procs", "10\n")
    tree.namespace(10, "machine")
    tree.traffic(10, 5000, 300)
    net = a_round(tree)
    assert received(tree, net) == [None]
    assert received(tree, net) == [None]


def test_another_process_of_the_same_pod_goes_on_where_the_first_ended(tree: Tree) -> None:
    tree.pod("web")
    tree.write("cg/web/cgroup.procs", "10\n11\n12\n")
    for pid, name in ((10, "web"), (11, "nested"), (12, "web")):
        tree.namespace(pid, name)
        tree.traffic(pid, 100, 0)
    net = a_round(tree)
    assert received(tree, net) == [0]
    tree.end(10)
    tree.traffic(11, 10**9, 0)  # a namespace of its own inside the pod
    tree.traffic(12, 130, 0)
    assert received(tree, net) == [30]


def test_a_namespace_that_is_replaced_begins_anew_and_nothing_falls(tree: Tree) -> None:
    tree.pod("web")
    tree.write("cg/web/cgroup.procs", "10\n")
    tree.namespace(10, "web")
    tree.traffic(10, 100, 0)
    net = a_round(tree)
    received(tree, net)
    tree.traffic(10, 150, 0)
    assert received(tree, net) == [50]
    tree.namespace(10, "again")  # the number was given to another process
    tree.traffic(10, 7, 0)
    assert received(tree, net) == [50]
    tree.traffic(10, 9, 0)
    assert received(tree, net) == [52]


def test_a_pod_without_a_process_keeps_its_figure(tree: Tree) -> None:
    tree.pod("web")
    tree.write("cg/web/cgroup.procs", "10\n")
    tree.namespace(10, "web")
    tree.traffic(10, 100, 0)
    net = a_round(tree)
    received(tree, net)
    tree.traffic(10, 101, 0)
    assert received(tree, net) == [1]
    tree.end(10)
    tree.write("cg/web/cgroup.procs", "")
    assert received(tree, net) == [1]
    net.forget({"web"})
    assert received(tree, net) == [None]


def test_a_pods_namespaces_that_are_not_ours_to_see_are_absent_with_a_reason(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.pod("web")
    tree.write("cg/web/cgroup.procs", "10\n")

    def refuse(_path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "no")

    net = a_round(tree)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        assert received(tree, net) == [None]
    assert net.reason == "denied"
    tree.namespace(10, "web")
    tree.traffic(10, 100, 0)
    assert received(tree, net) == [0]
    assert net.reason == ""


def test_pods_are_visited_in_turn_once_a_round(tree: Tree) -> None:
    for index in range(90):
        tree.pod(f"p{index}")
        tree.write(f"cg/p{index}/cgroup.procs", f"{100 + index}\n")
        tree.namespace(100 + index, f"p{index}")
        tree.traffic(100 + index, 1, 1)
    net = network.Network(str(tree.root), 1000)
    known = [90 - received(tree, net).count(None) for _ in range(60)]
    assert known == [(second + 1) * 3 // 2 for second in range(60)]


@pytest.mark.parametrize("data", [b"", b"x\n", b"a\nb\nc: 1 2\n"])
def test_another_table_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="table"):
        network.parse(data)


def kills(tree: Tree, signal: oom.OomKills) -> list[Value]:
    return signal.values("oom_kills", tree.pods())


def test_kills_are_looked_for_when_the_machine_counts_one(tree: Tree) -> None:
    for name in ("a", "b"):
        tree.pod(name)
        tree.write(f"cg/{name}/memory.events", "low 0\noom 1\noom_kill 4\noom_group_kill 0\n")
    signal = oom.OomKills(tree.layout)
    assert tree.visit(signal, oom_kills=7) is False
    assert kills(tree, signal) == [4, 4]
    tree.write("cg/b/memory.events", "low 0\noom 1\noom_kill 5\n")
    assert tree.visit(signal, oom_kills=7) is False  # nothing was killed: nothing is read
    assert kills(tree, signal) == [4, 4]
    assert tree.visit(signal, oom_kills=None) is False  # not asked in this sweep
    assert tree.visit(signal, oom_kills=8) is True
    assert kills(tree, signal) == [4, 5]
    assert tree.visit(signal, oom_kills=9) is False  # outside of all pods
    tree.pod("c")
    tree.write("cg/c/memory.events", "oom_kill 1\n")
    assert tree.visit(signal, oom_kills=9) is False  # new here, not news
    assert kills(tree, signal) == [4, 5, 1]


def test_kills_of_containers_add_up_on_v1_and_outlive_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V1)
    tree.pod("a")
    line = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    tree.write("memory/a/memory.oom_control", line.format(0))
    tree.write("memory/a/c0/memory.oom_control", line.format(2))
    signal = oom.OomKills(tree.layout)
    tree.visit(signal, oom_kills=2)
    assert kills(tree, signal) == [2]
    shutil.rmtree(tmp_path / "memory/a/c0")
    tree.write("memory/a/c1/memory.oom_control", line.format(1))
    assert tree.visit(signal, oom_kills=3) is True
    assert kills(tree, signal) == [3]
    tree.write("memory/a/c1/memory.oom_control", line.format(0))  # made anew under the old name
    assert tree.visit(signal, oom_kills=4) is False
    tree.write("memory/a/c1/memory.oom_control", line.format(1))
    assert tree.visit(signal, oom_kills=5) is True
    assert kills(tree, signal) == [4]


def test_many_pods_are_looked_at_a_part_a_sweep(tree: Tree) -> None:
    count = 2 * oom.LOOKS + 1
    for index in range(count):
        tree.pod(f"p{index}")
        tree.write(f"cg/p{index}/memory.events", "oom_kill 0\n")
    signal = oom.OomKills(tree.layout)
    for left in (oom.LOOKS + 1, 1, 0):
        assert tree.visit(signal, oom_kills=0) is False
        assert kills(tree, signal).count(None) == left
    tree.write(f"cg/p{count - 1}/memory.events", "oom_kill 1\n")
    assert [tree.visit(signal, oom_kills=1) for _ in range(4)] == [False, False, True, False]
    signal.forget({f"p{index}" for index in range(count)})
    assert kills(tree, signal) == [None] * count


def test_kernels_that_do_not_count_kills_say_nothing(tree: Tree) -> None:
    tree.pod("a")
    tree.write("cg/a/memory.events", "low 0\nhigh 0\nmax 0\noom 3\n")
    signal = oom.OomKills(tree.layout)
    assert tree.visit(signal) is False
    assert kills(tree, signal) == [None]


class Recorded:
    """Counters that were read once on a machine that has them."""

    open: int = 0
    refuse: int | None = None

    def __init__(self, counted: dict[str, tuple[int, ...] | None]) -> None:
        self.counted = counted
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def __call__(self, directory: str, cpus: Sequence[int]) -> Recorded.Running:
        if self.refuse is not None:
            raise OSError(self.refuse, "refused")
        self.asked.append((Path(directory).name, tuple(cpus)))
        self.open += 1
        return Recorded.Running(self, self.counted[Path(directory).name])

    class Running:
        def __init__(self, home: Recorded, counted: tuple[int, ...] | None) -> None:
            self._home, self._counted = home, counted

        def read(self) -> tuple[int, ...] | None:
            return self._counted

        def close(self) -> None:
            self._home.open -= 1


def cpi(tree: Tree, signal: perf.Perf) -> list[tuple[Value, Value]]:
    cycles, instructions = (signal.values(name, tree.pods()) for name in perf.COLUMNS)
    return list(zip(cycles, instructions, strict=True))


def test_cycles_and_instructions_grow_window_by_window(tree: Tree) -> None:
    tree.pod("a")
    recorded = Recorded({"a": (3_000_000, 2_000_000)})
    signal = perf.Perf(tree.layout, recorded)
    tree.visit(signal)
    assert cpi(tree, signal) == [(None, None)]
    tree.visit(signal, perf.WINDOW_US - 1)
    assert recorded.asked == [("a", (0, 1))]
    tree.visit(signal, perf.WINDOW_US)
    assert cpi(tree, signal) == [(3_000_000, 2_000_000)]
    tree.visit(signal, 2 * perf.WINDOW_US)
    assert cpi(tree, signal) == [(6_000_000, 4_000_000)]  # CPI 1.5, whatever the stretch
    signal.close()
    assert recorded.open == 0


def test_both_figures_are_of_one_moment(tree: Tree) -> None:
    tree.pod("a")
    signal = perf.Perf(tree.layout, Recorded({"a": (30, 20)}))
    tree.visit(signal)
    tree.visit(signal, perf.WINDOW_US)
    assert signal.values("cpu_cycles", tree.pods()) == [30]
    tree.visit(signal, 2 * perf.WINDOW_US)
    assert signal.values("cpu_instructions", tree.pods()) == [20]


@pytest.mark.parametrize("counted", [None, (0, 0), (500, 0)])
def test_a_window_without_instructions_adds_nothing(
    tree: Tree, counted: tuple[int, ...] | None
) -> None:
    tree.pod("a")
    signal = perf.Perf(tree.layout, Recorded({"a": counted}))
    tree.visit(signal)
    tree.visit(signal, perf.WINDOW_US)
    assert cpi(tree, signal) == [(None, None)]


def test_pods_take_turns_within_the_descriptors_and_best_effort_has_none(tree: Tree) -> None:
    tree.write("sys/devices/system/cpu/online", "0-63\n")  # two pods at a time
    for name in ("a", "b", "c", "d"):
        tree.pod(name, "BE" if name == "b" else "LS")
    recorded = Recorded(dict.fromkeys("acd", (2, 1)))
    signal = perf.Perf(tree.layout, recorded)
    for window in range(3):
        tree.visit(signal, window * perf.WINDOW_US)
        assert recorded.open == 2
    assert [name for name, _ in recorded.asked] == ["a", "c", "d", "a", "c", "d"]
    tree.write("sys/devices/system/cpu/online", "0-383\n")  # more than all may hold: one
    tree.visit(signal, 3 * perf.WINDOW_US)
    assert recorded.open == 1
    signal.forget({"a", "c", "d"})
    assert recorded.open == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [(errno.ENOENT, "not_built"), (errno.EACCES, "denied"), (errno.EPERM, "denied")],
)
def test_without_counters_it_asks_again_every_ten_minutes(
    tree: Tree, error: int, reason: str
) -> None:
    tree.pod("a")
    recorded = Recorded({"a": (2, 1)})
    recorded.refuse = error
    signal = perf.Perf(tree.layout, recorded)
    tree.visit(signal)
    assert signal.reason == reason
    recorded.refuse = None
    tree.visit(signal, REPROBE_US - 1)
    assert not recorded.asked
    tree.visit(signal, REPROBE_US)
    assert (signal.reason, recorded.asked) == ("", [("a", (0, 1))])


def test_a_pod_that_went_is_passed_over(tree: Tree) -> None:
    for name in ("a", "b"):
        tree.pod(name)
    opened: list[str] = []

    def opener(directory: str, _cpus: Sequence[int]) -> Recorded.Running:
        Path(directory).stat()
        opened.append(Path(directory).name)
        return Recorded.Running(Recorded({}), (2, 1))

    shutil.rmtree(tree.root / "cg/a")
    signal = perf.Perf(tree.layout, opener)
    tree.visit(signal)
    assert (opened, signal.reason) == (["b"], "")


def test_only_sources_for_the_cpu_make_a_machine_with_counters(tmp_path: Path) -> None:
    assert not perf.there(str(tmp_path))
    home = tmp_path / perf._SOURCES
    for name in ("breakpoint", "msr", "software", "tracepoint", "uprobe"):
        (home / name).mkdir(parents=True)
    assert not perf.there(str(tmp_path))
    (home / "cpu_core").mkdir()
    assert perf.there(str(tmp_path))
