"""CPUs of the best-effort root: the other knob that suppresses.

`node_agent.hold` observes, plans and applies; the CPUs in force come back as read from the kernel:
what a group names is a wish, and where nothing of it is on line or among its parent's CPUs, a v2
group runs on all that its parent has.
On cgroup v1 a child's CPUs lie within its parent's, so first every group is given what it has and
what it shall have, from the root down, then only what it shall have, from the leaves up. On v2 a
child needs no such care: what its parent lacks it does not get.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from node_agent.actuators.beneath import Parts
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import BE_ROOT, Subtree
from node_agent.cgroup.cpulist import parse_cpu_list

FILE = "cpuset.cpus"
EFFECTIVE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}
POSSIBLE = "/sys/devices/system/cpu/possible"
Cpus = tuple[int, ...]
"""Ascending; () is what a v2 group says that was never given any: those of its parent."""


@dataclass(frozen=True, slots=True)
class GroupCpus:
    """What one group says."""

    group: Parts
    cpus: Cpus


@dataclass(frozen=True, slots=True)
class CpusetPlan:
    """Changes in the order of writing, as (what is there, what shall be)."""

    steps: tuple[tuple[GroupCpus, GroupCpus], ...]


def read(tree: Subtree, group: Parts) -> GroupCpus | None:
    """What one group says; None where it has no such file.

    On v1 a group that was never given CPUs takes no process and is none of ours: None too.
    """
    text = tree.read(group, FILE)
    if text is None or (tree.version == 1 and not text):
        return None
    return GroupCpus(group, parse_cpu_list(text))


def in_force(tree: Subtree, cpus: Cpus) -> Cpus:
    """Those of ``cpus`` that the best-effort root really runs on, by the kernel's word; ()
    when it runs elsewhere, or is gone. Kernels that do not say get the benefit of the doubt.
    """
    if read(tree, BE_ROOT) is None:
        return ()
    text = tree.read(BE_ROOT, EFFECTIVE[tree.version])
    if not text:
        return cpus
    really = frozenset(parse_cpu_list(text))
    return tuple(cpu for cpu in cpus if cpu in really)


def observe(tree: Subtree) -> tuple[GroupCpus, ...]:
    """The best-effort root and, on v1, every group under it; parents first."""
    groups = tree.groups() if tree.version == 1 else [BE_ROOT]
    return tuple(found for group in groups if (found := read(tree, group)) is not None)


def plan(
    observed: Sequence[GroupCpus], originals: Mapping[Parts, Cpus], cpus: Cpus | None
) -> CpusetPlan:
    """Writes that let the subtree run on ``cpus`` alone; None gives every group its own back.

    Pure. A child keeps those of its original CPUs that are among them, or gets them all.
    """
    wanted: dict[Parts, Cpus] = {}
    whole = inherited(observed, originals)
    for now in observed:
        own = originals.get(now.group, whole.get(now.group, now).cpus)
        if cpus is None:
            wanted[now.group] = own
        else:
            common = tuple(cpu for cpu in cpus if cpu in own) if now.group != BE_ROOT else ()
            wanted[now.group] = common or cpus
    steps: list[tuple[GroupCpus, GroupCpus]] = []
    between: list[GroupCpus] = []
    for now in observed:
        then = wanted[now.group]
        wide = tuple(sorted({*now.cpus, *then})) if now.cpus and then else then
        between.append(GroupCpus(now.group, wide))
        if wide != now.cpus:
            steps.append((now, between[-1]))
    last = [(now, GroupCpus(now.group, wanted[now.group])) for now in reversed(between)]
    steps += [(now, then) for now, then in last if now != then]
    return CpusetPlan(tuple(steps))


def inherited(
    observed: Sequence[GroupCpus], originals: Mapping[Parts, Cpus]
) -> dict[Parts, GroupCpus]:
    """Children without an original that have what the bound root has, with what it had before."""
    before = originals.get(BE_ROOT)
    root = next((found.cpus for found in observed if found.group == BE_ROOT), None)
    if before is None or root is None:
        return {}
    return {
        found.group: GroupCpus(found.group, before)
        for found in observed
        if found.group not in originals and found.cpus == root
    }


def apply(tree: Subtree, todo: CpusetPlan) -> None:
    """Carry the plan out.

    A child that vanished meanwhile is skipped. Raises ActuatorFailed when the kernel refuses; the
    steps done before are then put back.
    """
    done: list[tuple[GroupCpus, GroupCpus]] = []
    for now, then in todo.steps:
        try:
            _write(tree, then)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV) and now.group != BE_ROOT:
                continue
            _put_back(tree, done)
            raise ActuatorFailed("cpuset", error) from error
        done.append((now, then))


def _put_back(tree: Subtree, done: Sequence[tuple[GroupCpus, GroupCpus]]) -> None:
    """Undo in reverse order; a group that refuses even that keeps what it has."""
    for before, _ in reversed(done):
        try:
            _write(tree, before)
        except OSError:
            continue


def _write(tree: Subtree, then: GroupCpus) -> None:
    """One group. What was never given any CPUs cannot say so again while it has processes (ENOSPC,
    on v2 too): it then names every CPU that this machine may have, which binds as little.
    """
    try:
        tree.write(then.group, FILE, ",".join(map(str, then.cpus)))
    except OSError as error:
        if then.cpus or error.errno != errno.ENOSPC:
            raise
        with open(POSSIBLE, encoding="ascii") as file:
            tree.write(then.group, FILE, file.read().strip())
