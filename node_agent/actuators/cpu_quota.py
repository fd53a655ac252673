"""CPU bandwidth of the best-effort root: the knob that suppresses.

`node_agent.obey` observes, plans and applies; the values in force come back as read from the
kernel. Milli-cores to quota: quota_us = milli x period / 1000.

The period is short, for each write of a quota hands out a fresh one at once: at five writes a
second a period of 100 ms let half as much again run as was allowed, 10 ms a twentieth (measured).
The kernel takes no quota below 1 ms, so small allowances keep the long period: 10 milli is the
least.

On cgroup v1 a child may not exceed its parent: children above the new limit are narrowed first
(bottom-up) and widened after it (top-down), never beyond what they had. Burst goes to 0 before a
quota is lowered, for a quota below the burst is refused. On v2 a child needs no such care.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from node_agent.actuators.beneath import Parts
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import BE_ROOT, Subtree

PERIOD_US = 10_000
LONG_PERIOD_US = 100_000
SHORT_FROM_MILLI = 100
MIN_QUOTA_US = 1_000
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class GroupQuota:
    """Bandwidth of one group: quota -1 is none; ``burst_us`` None: this kernel has no burst."""

    group: Parts
    quota_us: int
    period_us: int
    burst_us: int | None = None

    @property
    def milli(self) -> int:
        """Milli-cores, -1 for no limit."""
        return UNLIMITED if self.quota_us < 0 else self.quota_us * 1000 // self.period_us

    def wider_than(self, other: GroupQuota) -> bool:
        """Whether this group may use more CPU than the other says."""
        if self.quota_us < 0 or other.quota_us < 0:
            return self.quota_us < 0 <= other.quota_us
        return self.quota_us * other.period_us > other.quota_us * self.period_us


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """Changes in the order of writing, as (what is there, what shall be)."""

    steps: tuple[tuple[GroupQuota, GroupQuota], ...]


def bandwidth(milli: int) -> tuple[int, int]:
    """(quota, period) in us of ``milli`` milli-cores, at least what the kernel takes."""
    period_us = PERIOD_US if milli >= SHORT_FROM_MILLI else LONG_PERIOD_US
    return max(MIN_QUOTA_US, milli * period_us // 1000), period_us


def read(cpu: Subtree, group: Parts) -> GroupQuota | None:
    """What is in force for one group; None when the group or its cpu controller is not there."""
    if cpu.version == 2:
        text = cpu.read(group, "cpu.max")
        if text is None:
            return None
        quota, period = text.split()
        limit = UNLIMITED if quota == "max" else int(quota)
        (burst,) = cpu.read_ints(group, "cpu.max.burst")
        return GroupQuota(group, limit, int(period), burst)
    limit_us, period_us, burst_us = cpu.read_ints(
        group, "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us"
    )
    if limit_us is None or period_us is None:
        return None
    return GroupQuota(group, limit_us, period_us, burst_us)


def observe(cpu: Subtree) -> tuple[GroupQuota, ...]:
    """The best-effort root and, on v1, every group under it; parents first."""
    groups = cpu.groups() if cpu.version == 1 else [BE_ROOT]
    return tuple(found for group in groups if (found := read(cpu, group)) is not None)


def plan(
    observed: Sequence[GroupQuota],
    originals: Mapping[Parts, GroupQuota],
    allow_milli: int | None,
) -> QuotaPlan:
    """Writes that let the subtree use ``allow_milli``; None gives every group its original back.

    Pure. A child keeps its original or, where that is wider than the root's new limit, gets the
    root's. An empty plan means that all is as asked.
    """
    if allow_milli is None:
        wanted = {q.group: originals.get(q.group, q) for q in observed}
    else:
        root = GroupQuota(BE_ROOT, *bandwidth(allow_milli))
        wanted = {}
        for now in observed:
            own = originals.get(now.group, now)
            capped = now.group == BE_ROOT or (own.quota_us >= 0 and own.wider_than(root))
            burst = None if now.burst_us is None else 0
            wanted[now.group] = (
                GroupQuota(now.group, root.quota_us, root.period_us, burst) if capped else own
            )
    changes = [(q, wanted[q.group]) for q in observed if wanted[q.group] != q]
    wider = [pair for pair in changes if pair[1].wider_than(pair[0])]
    narrower = [pair for pair in changes if not pair[1].wider_than(pair[0])]
    return QuotaPlan(steps=(*reversed(narrower), *wider))


def apply(cpu: Subtree, todo: QuotaPlan) -> int:
    """Carry the plan out and return what is in force at the best-effort root (milli, -1 none).

    A child that vanished meanwhile is skipped. Raises ActuatorFailed when the kernel refuses; the
    steps done before are then put back.
    """
    done: list[tuple[GroupQuota, GroupQuota]] = []
    for now, then in todo.steps:
        try:
            _write(cpu, now, then)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV) and now.group != BE_ROOT:
                continue
            _put_back(cpu, [*done, (now, then)])
            raise ActuatorFailed("cpu_quota", error) from error
        done.append((now, then))
    return in_force(cpu)


def in_force(cpu: Subtree) -> int:
    """Milli-cores in force at the best-effort root, -1 for none or for no such group."""
    root = read(cpu, BE_ROOT)
    return UNLIMITED if root is None else root.milli


def _put_back(cpu: Subtree, done: Sequence[tuple[GroupQuota, GroupQuota]]) -> None:
    """Undo in reverse order; a group that refuses even that keeps what it has (read back later)."""
    for before, _ in reversed(done):
        now = read(cpu, before.group)
        if now is not None and now != before:
            try:
                _write(cpu, now, before)
            except OSError:
                continue


def _write(cpu: Subtree, now: GroupQuota, then: GroupQuota) -> None:
    """One group: burst down, quota and period in an order that the kernel takes, burst up."""
    burst_file = "cpu.max.burst" if cpu.version == 2 else "cpu.cfs_burst_us"
    if now.burst_us:
        cpu.write(now.group, burst_file, "0")
    if cpu.version == 2:
        limit = "max" if then.quota_us < 0 else str(then.quota_us)
        cpu.write(now.group, "cpu.max", f"{limit} {then.period_us}")
    else:
        _write_v1(cpu, now, then)
    if then.burst_us:
        cpu.write(now.group, burst_file, str(then.burst_us))


def _write_v1(cpu: Subtree, now: GroupQuota, then: GroupQuota) -> None:
    """Two files; either order may be refused half-way, so the second order is tried on EINVAL."""
    both = list(_files_v1(now, then))
    try:
        for file, value in both:
            cpu.write(now.group, file, str(value))
    except OSError as error:
        if error.errno != errno.EINVAL or len(both) == 1:
            raise
        for file, value in reversed(both):
            cpu.write(now.group, file, str(value))


def _files_v1(now: GroupQuota, then: GroupQuota) -> Iterator[tuple[str, int]]:
    """Quota first, then the period where it differs."""
    yield "cpu.cfs_quota_us", then.quota_us
    if now.period_us != then.period_us:
        yield "cpu.cfs_period_us", then.period_us
