"""Killing one best-effort pod: lift the brakes, kill the group, wait until it is empty.

`node_agent.evictions` calls `apply` in a worker thread, and `terminate` where there is time. A
process dies only when it gets to run: that takes 0.9 s at a quota of 1 ms (5 ms without), and
seconds where idle or a low weight starves it on a busy machine. So quota, idle and weight are
lifted on the best-effort root and on the pod first and put back after. Unit of the kill is the
pod's group with all groups under it:
`cgroup.kill` where a v2 hierarchy holds the group, and SIGKILL through pidfds for what is left in
a v1 hierarchy. A pidfd is opened before membership is read again, so a recycled id is never hit.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from node_agent.actuators import cpu_idle, cpu_quota
from node_agent.actuators.beneath import Parts
from node_agent.actuators.cpu_idle import Idle
from node_agent.actuators.cpu_quota import GroupQuota
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.pods import BestEffortPod
from node_agent.actuators.subtree import BE_ROOT, Subtree

DEADLINE_US = 3_000_000
"""Before Linux 6.6 a group that was idle stays behind by what it ran while it was: up to 1.6 s more
on a busy machine, whatever its weight is then."""
POLL_US = 1_000
AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class Brakes:
    """What slows one group down, as found: its quota, and idle with weight (None: no such knob)."""

    group: Parts
    quota: GroupQuota | None
    idle: Idle | None


@dataclass(frozen=True, slots=True)
class EvictPlan:
    """``lift``: groups whose brakes are on, parents first, as found."""

    pod: BestEffortPod
    lift: tuple[Brakes, ...]


@dataclass(frozen=True, slots=True)
class Evicted:
    """``empty``: the group held no process at the end; ``processes``: how many it held."""

    processes: int
    empty: bool
    took_us: int


def observe(cpu: Subtree, pod: BestEffortPod) -> tuple[Brakes, ...]:
    """Every group on the way: the root, the pod's ancestors, the pod, what is under it."""
    above: list[Parts] = [pod.group[:i] for i in range(len(pod.group))]
    return tuple(
        Brakes(group, cpu_quota.read(cpu, group), cpu_idle.observe(cpu, group))
        for group in (*above, *cpu.groups(pod.group))
    )


def plan(version: int, pod: BestEffortPod, observed: Sequence[Brakes]) -> EvictPlan:
    """Pure. Only groups that have a quota or run below the usual weight need lifting."""
    held = [
        found
        for found in observed
        if (found.quota is not None and found.quota.quota_us >= 0)
        or (found.idle is not None and found.idle != cpu_idle.common(version, found.idle))
    ]
    return EvictPlan(pod, tuple(held))


def apply(
    cpu: Subtree, unified: Subtree | None, todo: EvictPlan, deadline_us: int = DEADLINE_US
) -> Evicted:
    """Lift, kill, wait, put back. Raises ActuatorFailed when the kernel refuses the kill.

    ``cpu`` and ``unified`` may be one and the same hierarchy. Blocks up to ``deadline_us``.
    """
    started = time.monotonic_ns()
    trees = [tree for tree in {id(t): t for t in (unified, cpu)}.values() if tree is not None]
    found = set().union(*(tree.processes(todo.pod.group) for tree in trees))
    if found & {1, os.getpid()}:
        own = OSError(errno.EPERM, "this very process is in the victim's group")
        raise ActuatorFailed("evict", own)
    try:
        lift(cpu, todo.lift)
        empty = _kill(trees, todo.pod.group, started + deadline_us * 1000)
    except OSError as error:
        raise ActuatorFailed("evict", error) from error
    finally:
        put_back(cpu, todo.lift)
    return Evicted(len(found), empty, (time.monotonic_ns() - started) // 1000)


def terminate(cpu: Subtree, unified: Subtree | None, todo: EvictPlan) -> int:
    """Ask the pod's processes to end, each once; how many there are. Its own brakes are lifted for
    good. Many a server takes a second SIGTERM for an order to drop everything.

    Those above it stay: they hold all best-effort work, and ending may take its time. Raises
    ActuatorFailed.
    """
    mine = todo.pod.group
    trees = [tree for tree in {id(t): t for t in (unified, cpu)}.values() if tree is not None]
    try:
        lift(cpu, [found for found in todo.lift if found.group[: len(mine)] == mine])
        asked: frozenset[int] = frozenset()
        for tree in trees:
            there = tree.processes(mine)
            _signal_processes(tree, mine, signal.SIGTERM, but=asked)
            asked |= there
        return len(set().union(*(tree.processes(mine) for tree in trees)))
    except OSError as error:
        raise ActuatorFailed("evict", error) from error


def is_empty(cpu: Subtree, unified: Subtree | None, pod: BestEffortPod) -> bool:
    """Whether nothing of the pod runs any more."""
    return all(_is_empty(tree, pod.group) for tree in (cpu, unified) if tree is not None)


def lift(cpu: Subtree, brakes: Sequence[Brakes]) -> None:
    """No quota and a usual weight for these groups, top-down; one that is gone is skipped."""
    for found in brakes:
        try:
            if found.quota is not None and found.quota.quota_us >= 0:
                free = replace(found.quota, quota_us=cpu_quota.UNLIMITED, burst_us=0)
                cpu_quota.apply(cpu, cpu_quota.QuotaPlan(((found.quota, free),)))
            if found.idle is not None:
                usual = cpu_idle.common(cpu.version, found.idle)
                cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, found.idle, usual), found.group)
        except ActuatorFailed as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise OSError(error.errno, str(error)) from error


def put_back(cpu: Subtree, brakes: Sequence[Brakes]) -> None:
    """All as found, bottom-up; the root last and with its error raised, for it binds all."""
    for found in reversed(brakes):
        try:
            quota = cpu_quota.read(cpu, found.group)
            if quota is not None and found.quota is not None and quota != found.quota:
                cpu_quota.apply(cpu, cpu_quota.QuotaPlan(((quota, found.quota),)))
            idle = cpu_idle.observe(cpu, found.group)
            if idle is not None and found.idle is not None:
                cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, idle, found.idle), found.group)
        except ActuatorFailed:
            if found.group == BE_ROOT:
                raise


def _kill(trees: Sequence[Subtree], group: Parts, until_ns: int) -> bool:
    """Kill until nothing is left or the deadline; True when empty in every hierarchy."""
    while True:
        not_ours = False
        for tree in trees:
            if tree.version == 2:
                _kill_group(tree, group)
            try:
                _signal_processes(tree, group, signal.SIGKILL)
            except PermissionError:  # another user's, without CAP_KILL: `cgroup.kill` may have them
                not_ours = True
        if all(_is_empty(tree, group) for tree in trees):
            return True
        if time.monotonic_ns() >= until_ns:
            if not_ours:
                raise PermissionError(errno.EPERM, "no CAP_KILL, and processes of other users")
            return False
        time.sleep(POLL_US / 1_000_000)


def _kill_group(tree: Subtree, group: Parts) -> None:
    """`cgroup.kill`; not there where the group is gone, is one of threads, or before Linux 5.14."""
    try:
        tree.write(group, "cgroup.kill", "1")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            raise


def _signal_processes(
    tree: Subtree, group: Parts, number: signal.Signals, but: frozenset[int] = frozenset()
) -> None:
    """To each process of the group ``but`` some; one of a foreign pid namespace shows as 0.

    So many at a time, for a tenant may have more processes than the agent may have descriptors.
    """
    found = sorted(tree.processes(group) - {0, 1, os.getpid()} - but)
    for at in range(0, len(found), AT_ONCE):
        _signal_some(tree, group, found[at : at + AT_ONCE], number)


def _signal_some(tree: Subtree, group: Parts, pids: Sequence[int], number: signal.Signals) -> None:
    held: dict[int, int] = {}
    try:
        for pid in pids:
            descriptor = _hold(pid)
            if descriptor is not None:
                held[pid] = descriptor
        for pid in tree.processes(group) & held.keys():
            try:
                signal.pidfd_send_signal(held[pid], number)
            except ProcessLookupError:
                continue
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _hold(pid: int) -> int | None:
    """A descriptor of the process; None: it has ended.

    Kernels say it in three ways: ESRCH; EINVAL too while it is reaped; ENOENT (from 6.16) or
    EINVAL when the number is a thread's by now.
    """
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENOENT):
            return None
        raise


def _is_empty(tree: Subtree, group: Parts) -> bool:
    """`populated 0` on v2; on v1 no process listed. A group that is gone is empty."""
    if tree.version == 2:
        text = tree.read(group, "cgroup.events")
        return text is None or "populated 0" in text
    return not tree.processes(group)
