"""Plain files that answer like a kernel, an inventory beside them, and isolation over both."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from node_agent.actuators import pod_tasks
from node_agent.actuators.acts import Acts
from node_agent.actuators.knob import Knob
from node_agent.actuators.resctrl import MOUNT
from node_agent.cgroup.layout import Hierarchy, Layout, Version
from node_agent.containers import Amounts, Container
from node_agent.inventory import Census
from node_agent.isolation import ROOM_US, Isolation
from node_agent.journal import Journal
from schemas.records import Inventory, PodFact
from tests.node_agent import resctrl_tree
from tests.node_agent.trees import Crash


def batch(cpu_milli: int, memory_bytes: int) -> Amounts:
    return Amounts(batch_cpu_milli=cpu_milli, batch_memory_bytes=memory_bytes)


TOP, BE = "kubepods", "kubepods/besteffort"
LS_POD, BE_POD = "kubepods/burstable/podls", "kubepods/besteffort/podbe"
LSR_POD = "kubepods/podlsr"
JOB_POD = "kubepods/besteffort/podjob"
PODS = {
    "lsr": (LSR_POD, "LSR"),
    "ls": (LS_POD, "LS"),
    "be": (BE_POD, "BE"),
    "job": (JOB_POD, "BE"),
}
USUAL = ("lsr", "ls", "be")
MIB = 1 << 20
CONTAINERS = {
    "job": (
        Container("3", "", "prepare", "init", batch(1000, MIB), batch(1000, MIB)),
        Container("1", f"{JOB_POD}/c1", "app", "app", batch(1500, 64 * MIB), batch(1500, 64 * MIB)),
        Container("2", f"{JOB_POD}/c2", "side", "sidecar", batch(500, -1), batch(500, 8 * MIB + 1)),
        Container("4", f"{JOB_POD}/sandbox"),
    )
}
DAEMONS = "system.slice"
GROUPS = (
    DAEMONS, TOP, BE, "kubepods/burstable", LSR_POD, LS_POD, f"{LS_POD}/c1", f"{LS_POD}/c2", BE_POD,
    JOB_POD, f"{JOB_POD}/c1", f"{JOB_POD}/c2", f"{JOB_POD}/sandbox",
)  # fmt: skip
DISK = "254:0"
TASKS = {
    LS_POD: (100,), f"{LS_POD}/c1": (101, 102), BE_POD: (110, 111),
    f"{JOB_POD}/c1": (120,), f"{JOB_POD}/sandbox": (121,),
}  # fmt: skip
"""Threads of groups; of a resctrl tree's."""
V1_NO_LIMIT = "9223372036854771712"
_ANOLIS = {
    "memory.priority": "0",
    "memory.use_priority_oom": "0",
    "cpu.bvt_warp_ns": "0",
    "memory.wmark_ratio": "0",
    "memory.wmark_scale_factor": "50",
    "memory.wmark_min_adj": "0",
    "memory.pagecache_limit.enable": "0",
    "memory.pagecache_limit.size": "0",
    "memory.pagecache_limit.sync": "0",
}
FILES: dict[Version, dict[str, str]] = {
    1: {
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_burst_us": "0",
        "cpu.shares": "1024",
        "memory.limit_in_bytes": V1_NO_LIMIT,
        "memory.soft_limit_in_bytes": V1_NO_LIMIT,
        "blkio.bfq.weight": "100",
        "blkio.throttle.read_bps_device": "",
        "blkio.throttle.write_bps_device": "",
        "blkio.throttle.read_iops_device": "8:16 77",
        "blkio.throttle.write_iops_device": "",
        "freezer.state": "THAWED",
        "freezer.self_freezing": "0",
        "net_cls.classid": "0",
        **_ANOLIS,
    },
    2: {
        "cpu.max": "max 100000",
        "cpu.max.burst": "0",
        "cpu.weight": "100",
        "memory.min": "0",
        "memory.low": "0",
        "memory.high": "max",
        "memory.max": "max",
        "memory.current": str(256 << 20),
        "memory.oom.group": "0",
        "memory.stat": f"anon {4096}\ninactive_file {128 << 20}\nactive_file {128 << 20}",
        "memory.reclaim": "",
        "io.weight": "default 100\n8:16 50",
        "io.bfq.weight": "default 100",
        "io.max": "8:16 rbps=max wbps=max riops=77 wiops=max",
        "cgroup.freeze": "0",
        **_ANOLIS,
    },
}
"""A group of each version, as a kernel of this very family makes it."""
LIMITED: dict[Version, dict[str, dict[str, str]]] = {
    1: {
        LS_POD: {"cpu.cfs_quota_us": "200000"},
        f"{LS_POD}/c1": {"cpu.cfs_quota_us": "150000"},
        f"{LS_POD}/c2": {"cpu.cfs_quota_us": "50000", "cpu.cfs_burst_us": "1000"},
    },
    2: {
        LS_POD: {"cpu.max": "200000 100000"},
        f"{LS_POD}/c1": {"cpu.max": "150000 100000"},
        f"{LS_POD}/c2": {"cpu.max": "25000 50000", "cpu.max.burst": "500"},
    },
}


def make_tree(mount: Path, version: Version, without: Iterable[str] = ()) -> None:
    """Every group with every file but some, and one disk."""
    disk = mount / "sys/block/vda"
    disk.mkdir(parents=True, exist_ok=True)
    (disk / "dev").write_text(DISK + "\n")
    (disk / "size").write_text("2048\n")
    for group in GROUPS:
        directory = mount / group
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in {**FILES[version], **LIMITED[version].get(group, {})}.items():
            if file not in without:
                (directory / file).write_text(text + "\n")
        threads = "\n".join(str(task) for task in TASKS.get(group, ()))
        (directory / pod_tasks.THREADS[version]).write_text(threads + "\n")
        (directory / pod_tasks.PROCESSES).write_text(threads + "\n")
        for task in TASKS.get(group, ()):
            make_process(mount, task)


def make_process(mount: Path, pid: int, score: int = 0, start: int = 5000) -> None:
    """What /proc says of one, whose name is hard to read."""
    directory = mount / f"proc/{pid}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "stat").write_text(f"{pid} (a) b) S 1 {'0 ' * 17}{start} 0\n")
    (directory / "oom_score_adj").write_text(f"{score}\n")


def census(pods: Iterable[str] = USUAL) -> Census:
    facts = tuple(PodFact(uid, uid, qos=PODS[uid][1]) for uid in sorted(pods))  # type: ignore[arg-type]
    groups = tuple(PODS[fact.uid][0] for fact in facts)
    containers = tuple(CONTAINERS.get(fact.uid, ()) for fact in facts)
    record = Inventory("n1", 1, 4000, 1 << 30, pods=facts)
    return Census(record, groups, BE, containers, DAEMONS)


def layout(mount: Path, version: Version) -> Layout:
    at = Hierarchy(version, str(mount))
    controllers = dict.fromkeys(("cpu", "cpuacct", "memory", "io", "freezer"), at)
    unified, net_cls = (str(mount), None) if version == 2 else (None, str(mount))
    return Layout(str(mount), controllers, unified, net_cls=net_cls)


class FakeKernel:
    """Writes as a kernel answers them; counts, and fails or crashes at the n-th (from 1).

    ``error`` None: the process is gone at that very write, after it or (``before``) before it.
    """

    def __init__(self, at: int = 0, error: int | None = None, *, before: bool = False) -> None:
        self.at, self.error, self.before, self.count = at, error, before, 0
        self.log: list[tuple[str, str]] = []

    def __call__(self, descriptor: int, raw: bytes) -> int:
        path = resctrl_tree.name_of(descriptor)
        self._at_turn(lambda: self._write(path, raw.decode()))
        return len(raw)

    @property
    def acts(self) -> Acts:
        """Directories of a resctrl tree, made and taken away as its kernel does; no `tc`."""
        return Acts(self._make, self._remove, None)

    def _make(self, name: str, _mode: int, dir_fd: int) -> None:
        top = resctrl_tree.name_of(dir_fd)
        self._at_turn(lambda: resctrl_tree.make_group(top, name))

    def _remove(self, name: str, dir_fd: int) -> None:
        top = resctrl_tree.name_of(dir_fd)
        self._at_turn(lambda: resctrl_tree.remove_group(top, name))

    def _at_turn(self, act: Callable[[], None]) -> None:
        self.count += 1
        if self.count == self.at and self.error is not None:
            raise OSError(self.error, errno.errorcode[self.error])
        if self.error is None and 0 < self.at < self.count:
            raise Crash
        if self.count == self.at and self.before:
            raise Crash
        act()
        if self.count == self.at:
            raise Crash

    def _write(self, path: Path, text: str) -> None:
        self.log.append((str(path), text.strip()))
        if MOUNT in str(path):
            resctrl_tree.answer(path, text)
        else:
            path.write_text(_answer(path, text.strip()) + "\n")


def _answer(path: Path, text: str) -> str:
    """What the file says after the write; raises OSError where a kernel does."""
    name, before = path.name, path.read_text().strip()
    if name in ("cpu.cfs_burst_us", "cpu.max.burst", "cpu.cfs_quota_us", "cpu.max"):
        _check_burst(path, text)
    if name == "cpu.bvt_warp_ns" and not -1 <= int(text) <= 2:
        raise OSError(errno.EINVAL, "no such identity")
    if name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
        _check_parent(path, text)
    if name in ("memory.soft_limit_in_bytes", "memory.limit_in_bytes") and text == "-1":
        return V1_NO_LIMIT
    if name == "memory.reclaim":
        current = path.with_name("memory.current")
        current.write_text(f"{int(current.read_text()) - int(text)}\n")
        return ""
    if name == "freezer.state":
        path.with_name("freezer.self_freezing").write_text("1" if text == "FROZEN" else "0")
    if name in ("io.weight", "io.bfq.weight"):
        return "\n".join([f"default {text}", *before.splitlines()[1:]])
    if name == "io.max" or name.startswith("blkio.throttle."):
        return _device_line(before, *text.split())
    return text


def _check_burst(path: Path, text: str) -> None:
    """No burst above the quota."""
    v2 = path.name.startswith("cpu.max")
    quota = path.with_name("cpu.max" if v2 else "cpu.cfs_quota_us")
    burst = path.with_name("cpu.max.burst" if v2 else "cpu.cfs_burst_us")
    quota_us = (text if path == quota else quota.read_text()).split()[0]
    burst_us = text if path == burst else burst.read_text()
    if quota_us not in ("max", "-1") and int(burst_us) > int(quota_us):
        raise OSError(errno.EINVAL, "burst above the quota")


def _check_parent(path: Path, text: str) -> None:
    """v1: no quota above that of the group that bounds it, nor below one that it bounds."""
    share = _share(path.parent, path.name, text)
    if share is None:
        return
    for above in path.parent.parents:
        bound = _share(above)
        if bound is not None:
            if share > bound:
                raise OSError(errno.EINVAL, "above the parent's quota")
            break
    for below in path.parent.rglob("cpu.cfs_quota_us"):
        bound = _share(below.parent)
        if below != path.with_name("cpu.cfs_quota_us") and bound is not None and bound > share:
            raise OSError(errno.EINVAL, "below a child's quota")


def _share(directory: Path, name: str = "", text: str = "") -> float | None:
    """Quota over period of a group, one of the two as given; None: no quota."""
    files = [directory / "cpu.cfs_quota_us", directory / "cpu.cfs_period_us"]
    if not files[0].exists():
        return None
    quota_us, period_us = (int(text if f.name == name else f.read_text()) for f in files)
    return None if quota_us < 0 else quota_us / period_us


def _device_line(before: str, device: str, said: str) -> str:
    """The lines of all devices with what is said of one; no limit is no line."""
    lines = dict(line.split(maxsplit=1) for line in before.splitlines())
    if "=" in said:
        known = lines.get(device, "rbps=max wbps=max riops=max wiops=max")
        words = dict(word.split("=") for word in known.split()) | dict([said.split("=")])
        lines[device] = " ".join(f"{key}={word}" for key, word in words.items())
        if set(words.values()) == {"max"}:
            del lines[device]
    elif said == "0":
        lines.pop(device, None)
    else:
        lines[device] = said
    return "\n".join(f"{name} {line}" for name, line in sorted(lines.items()))


def contents(mount: Path) -> dict[str, str]:
    """Every file of the tree."""
    return {
        str(path.relative_to(mount)): path.read_text().strip()
        for path in sorted(mount.rglob("*"))
        if path.is_file()
    }


@contextmanager
def isolation(
    state: Path,
    mount: Path,
    version: Version,
    knobs: Iterable[Knob],
    kernel: FakeKernel,
    pods: Iterable[str] = USUAL,
) -> Iterator[Isolation]:
    """One start of an agent over the tree."""
    journal = Journal(state, "k" * 32, fsync="never")
    journal.boot("b1", 1)
    made = Isolation(journal, knobs)
    made.follow(census(pods), layout(mount, version), kernel, kernel.acts)
    made.bound(-1, ROOM_US)
    try:
        yield made
    finally:
        made.close()
        journal.close()
