"""A tenant that will not die: threads, depth, forks, other hierarchies, the agent's own group."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node_agent.actuators import evict, pods
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import Subtree
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.once import read_numbers
from node_agent.workbench.groups import Groups
from schemas.records import PodFact
from tests.node_agent.hostile.kit import (
    besieged,
    ended,
    from_file,
    make,
    process,
    write_inventory,
)
from tests.support import patient, unavailable

V1_ALONE = pytest.param(False, marks=pytest.mark.only_v1("as where there is v1 alone"))
MOST_PROCESSES = 600  # of the bomb; the machine has other work
# Forks until it may not, in every process, and again for each that dies.
BOMB = f"""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.time() + {patient(30)}
while time.time() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
"""


@contextmanager
def trees(layout: Layout, root: str, *, unified: bool) -> Iterator[tuple[Subtree, Subtree | None]]:
    """``unified`` False: as on a machine that has v1 alone."""
    cpu = layout.hierarchy("cpu")
    assert cpu is not None
    one = Subtree(cpu.mount, cpu.version, root)
    two = None
    if unified and layout.unified is not None and layout.unified != cpu.mount:
        two = Subtree(layout.unified, 2, root)
    try:
        yield one, two if cpu.version == 1 else one
    finally:
        one.close()
        if two is not None:
            two.close()


def victim(groups: Groups) -> pods.BestEffortPod:
    return pods.best_effort_pod(
        "batch",
        {"batch": PodFact(uid="batch", name="batch", qos="BE")},
        {"batch": f"{groups.be_root}/batch"},
        groups.be_root,
    )


def kill(groups: Groups, *, unified: bool) -> evict.Evicted:
    deadline_us = round(patient(10) * 1_000_000)
    with trees(groups.layout, groups.be_root, unified=unified) as (cpu, whole):
        pod = victim(groups)
        todo = evict.plan(cpu.version, pod, evict.observe(cpu, pod))
        return evict.apply(cpu, whole, todo, deadline_us)


def limit_processes(groups: Groups, path: str) -> None:
    place = groups.layout.directory("pids", path)
    if place is None:
        unavailable("no pids controller: a fork bomb would have no bound")
    Path(place, "pids.max").write_text(str(MOST_PROCESSES))


async def test_a_group_of_threads_is_evicted_like_any_other(groups: Groups, tmp_path: Path) -> None:
    """A tenant that was given its group makes a threaded one in it: it lists no processes."""
    if groups.layout.unified is None:
        unavailable("no v2 hierarchy: no threaded groups")
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    pod = Path(groups.layout.unified, groups.be_root, "batch")
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        with process(groups, f"{groups.be_root}/batch") as pid:
            (pod / "threads").mkdir()
            (pod / "threads" / "cgroup.type").write_text("threaded")
            (pod / "threads" / "cgroup.threads").write_text(str(pid))
            assert read_numbers(f"{pod}/threads/cgroup.procs", 4096) == []
            assert await one.say(decider="evict_memory", pods=("batch",)) == [("applied", "")]
            assert ended(pid)


@pytest.mark.parametrize("unified", [True, V1_ALONE])
def test_processes_deep_down_are_found(groups: Groups, *, unified: bool) -> None:
    groups.pod("besteffort", "batch")
    deep = f"{groups.be_root}/batch" + "/d" * 30
    make(groups, deep)
    with process(groups, deep) as pid:
        assert kill(groups, unified=unified).empty
        assert ended(pid)


@pytest.mark.only_v1("on v2 cgroup.kill needs no descriptors")
@pytest.mark.parametrize("said", [errno.ESRCH, errno.EINVAL, errno.ENOENT])
def test_a_process_that_ends_under_our_hands_keeps_no_other_alive(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    groups.pod("besteffort", "batch")
    hold, refused = os.pidfd_open, list[int]()

    def one_has_just_ended(pid: int) -> int:
        if not refused:
            refused.append(pid)
            raise OSError(said, os.strerror(said))
        return hold(pid)

    path = f"{groups.be_root}/batch"
    with process(groups, path) as one, process(groups, path) as other:
        monkeypatch.setattr(os, "pidfd_open", one_has_just_ended)
        assert kill(groups, unified=False).empty
        assert ended(one)
        assert ended(other)
    assert refused == [min(one, other)]


@pytest.mark.parametrize("unified", [True, V1_ALONE])
def test_a_fork_bomb_dies_whole(groups: Groups, *, unified: bool) -> None:
    groups.pod("besteffort", "batch")
    limit_processes(groups, groups.be_root)
    procs = groups.directory("cpu", f"{groups.be_root}/batch") / "cgroup.procs"
    with process(groups, f"{groups.be_root}/batch", BOMB):
        until = time.monotonic() + patient(20)
        while len(procs.read_text().split()) < MOST_PROCESSES // 2:
            assert time.monotonic() < until, "the bomb does not go off"
        assert kill(groups, unified=unified).empty
        assert not procs.read_text().split()


@pytest.mark.only_v1("on v2 cgroup.kill needs no descriptors")
def test_more_processes_than_descriptors_are_killed_all_the_same(groups: Groups) -> None:
    groups.pod("besteffort", "batch")
    limit_processes(groups, groups.be_root)
    many = "for _ in range(400):\n    if os.fork() == 0:\n        break\ntime.sleep(60)"
    procs = groups.directory("cpu", f"{groups.be_root}/batch") / "cgroup.procs"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with process(groups, f"{groups.be_root}/batch", many):
        until = time.monotonic() + patient(20)
        while len(procs.read_text().split()) < 400:
            assert time.monotonic() < until, "not all have started"
        spare = evict.AT_ONCE + 64 + len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
        try:
            assert kill(groups, unified=False).empty
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.only_v1("one hierarchy only")
def test_who_left_one_hierarchy_dies_by_the_other(groups: Groups) -> None:
    assert groups.layout.unified is not None
    groups.pod("besteffort", "batch")
    groups.pod("online", "web")
    web = Path(groups.layout.unified, groups.name, "online/web/cgroup.procs")
    with process(groups, f"{groups.be_root}/batch") as pid:
        web.write_text(str(pid))
        assert kill(groups, unified=True).empty
        assert ended(pid)


def test_a_victim_that_holds_the_agent_itself_is_refused(groups: Groups) -> None:
    groups.pod("besteffort", "batch")
    cpu = groups.layout.hierarchy("cpu")
    assert cpu is not None
    group = Path(cpu.mount, groups.be_root, "batch", "cgroup.procs")
    home = next(
        line.split(":", 2)[2].strip()
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if "cpu" in line.split(":")[1].split(",") or (cpu.version == 2 and line.startswith("0::"))
    )
    group.write_text(str(os.getpid()))
    try:
        with pytest.raises(ActuatorFailed, match="this very process"):
            kill(groups, unified=False)
    finally:
        Path(cpu.mount, home.strip("/"), "cgroup.procs").write_text(str(os.getpid()))


async def test_a_pod_that_is_renamed_or_gone_before_the_kill_harms_no_other(
    groups: Groups, tmp_path: Path
) -> None:
    """Order for ``batch``; its group has become ``other``'s meanwhile, and ``web`` is near."""
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        for mount in groups.layout.mounts():
            (Path(mount) / groups.be_root / "batch").rmdir()
        other = groups.pod("besteffort", "other")
        with (
            process(groups, other) as bystander,
            process(groups, f"{groups.name}/online/web") as web,
        ):
            answers = await one.say(decider="evict_memory", pods=("batch",))
            assert answers[0][0] in ("applied", "failed", "refused")
            await one.beats(5)
            assert not ended(bystander)
            assert not ended(web)
