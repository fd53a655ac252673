"""SCHED_IDLE for the whole best-effort root: quota bounds the duty cycle, this the collision.

`node_agent.obey` sets it once and checks it each period. The kernel forgets the group's weight
when idle is switched on and gives the default when it is switched off, so the weight is an
original too. Kernels before 5.15 have no `cpu.idle`: `observe` answers None.
"""

from __future__ import annotations

from dataclasses import dataclass

from node_agent.actuators.beneath import Parts
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import BE_ROOT, Subtree

USUAL_WEIGHT = {1: 1024, 2: 100}


@dataclass(frozen=True, slots=True)
class Idle:
    """``idle`` 1 or 0; ``weight``: cpu.shares on v1, cpu.weight on v2."""

    idle: int
    weight: int


@dataclass(frozen=True, slots=True)
class IdlePlan:
    """Files to write in order; empty: nothing to do."""

    writes: tuple[tuple[str, int], ...]


def observe(cpu: Subtree, group: Parts = BE_ROOT) -> Idle | None:
    """What is in force; None where the kernel has no such knob."""
    idle, weight = cpu.read_ints(group, "cpu.idle", _weight_file(cpu.version))
    return None if idle is None or weight is None else Idle(idle, weight)


def plan(cpu_version: int, now: Idle, wanted: Idle) -> IdlePlan:
    """Pure. While idle is on the kernel refuses a weight, so a weight is written only without."""
    writes: list[tuple[str, int]] = []
    if now.idle != wanted.idle:
        writes.append(("cpu.idle", wanted.idle))
    if wanted.idle == 0 and (now.idle != 0 or now.weight != wanted.weight):
        writes.append((_weight_file(cpu_version), wanted.weight))
    return IdlePlan(tuple(writes))


def common(cpu_version: int, now: Idle) -> Idle:
    """A group's right to run like any other: no idle, at least the kernel's usual weight."""
    return Idle(0, max(now.weight, USUAL_WEIGHT[cpu_version]))


def apply(cpu: Subtree, todo: IdlePlan, group: Parts = BE_ROOT) -> Idle | None:
    """Write and read back. Raises ActuatorFailed when the kernel refuses."""
    try:
        for file, value in todo.writes:
            cpu.write(group, file, str(value))
        return observe(cpu, group)
    except OSError as error:
        raise ActuatorFailed("cpu_idle", error) from error


def _weight_file(version: int) -> str:
    return "cpu.weight" if version == 2 else "cpu.shares"
