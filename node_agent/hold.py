"""Holding a value: originals kept first, the kernel written only when it says something else.

`node_agent.obey` calls `quota`, `idle`, `bind` and `unbind` on each beat and each command. A value
that a stranger changed is written again at once and counted as drift. A child group that its owner
changed keeps the owner's new value as its original.
"""

from __future__ import annotations

from collections.abc import Sequence

from node_agent import originals
from node_agent.actuators import cpu_idle, cpu_quota, cpuset
from node_agent.actuators.beneath import Parts
from node_agent.actuators.cpu_quota import GroupQuota
from node_agent.actuators.cpuset import Cpus
from node_agent.actuators.subtree import BE_ROOT, Subtree
from node_agent.journal import Journal
from node_agent.originals import Trees


class Hold:
    """What this start of the agent keeps in force; ``drift`` counts foreign writes put right."""

    def __init__(self, journal: Journal, *, use_idle: bool, dry_run: bool) -> None:
        self.drift = 0
        self.trees: Trees | None = None  # None: no best-effort root is known
        self._journal = journal
        self._use_idle, self._dry_run = use_idle, dry_run
        self._written: dict[Parts, GroupQuota] = {}
        self._bound: dict[Parts, Cpus] = {}

    def quota(self, allow_milli: int | None) -> int:
        """Let best-effort work use ``allow_milli`` (None: the quota it had before us); read back.

        Raises ActuatorFailed when the kernel refuses. A best-effort root that is not there has
        no limit: -1.
        """
        root = None if self.trees is None else cpu_quota.read(self.trees.cpu, BE_ROOT)
        if root is None or self.trees is None:
            self._written.clear()
            return cpu_quota.UNLIMITED
        held = originals.quotas(self._journal, self.trees.root)
        if self._dry_run or not cpu_quota.plan([root], held, allow_milli).steps:
            return root.milli
        if root != self._written.get(BE_ROOT, root):
            self.drift += 1
        return self._write(self.trees.cpu, held, allow_milli)

    def _write(self, cpu: Subtree, held: dict[Parts, GroupQuota], allow_milli: int | None) -> int:
        originals.forget_gone(self._journal, cpu)
        observed = cpu_quota.observe(cpu)
        fresh = {q.group: q for q in observed if self._is_original(q, held)}
        todo = cpu_quota.plan(observed, held | fresh, allow_milli)
        touched = {then.group: then for _, then in todo.steps}
        originals.keep_quotas(self._journal, cpu.root, [fresh[g] for g in touched if g in fresh])
        milli = cpu_quota.apply(cpu, todo)
        there = {q.group for q in observed}
        self._written = {g: q for g, q in (self._written | touched).items() if g in there}
        return milli

    def bind(self, cpus: Cpus) -> Cpus:
        """Let best-effort work run on ``cpus`` alone; those in force, () where nothing binds it.

        CPUs that it cannot run on are not named for its first binding: it would run anywhere.
        Raises ActuatorFailed when the kernel refuses.
        """
        tree = None if self.trees is None else self.trees.cpuset
        root = None if tree is None else cpuset.read(tree, BE_ROOT)
        if root is None or tree is None or self._dry_run:
            return ()
        if root.cpus == cpus and self._bound.get(BE_ROOT) == cpus:
            return cpuset.in_force(tree, cpus)
        unbound = BE_ROOT not in originals.cpus(self._journal, tree.root)
        if unbound and not cpuset.in_force(tree, cpus):
            return ()
        if root.cpus != self._bound.get(BE_ROOT, root.cpus):
            self.drift += 1
        originals.forget_gone_cpus(self._journal, tree)
        observed = cpuset.observe(tree)
        held = self._cpus_before(tree.root, observed)
        todo = cpuset.plan(observed, held, cpus)
        cpuset.apply(tree, todo)
        self._bound = {found.group: found.cpus for found in cpuset.observe(tree)}
        return cpuset.in_force(tree, cpus)

    def unbind(self) -> None:
        """Best-effort work runs where it ran before us. Raises ActuatorFailed."""
        tree = None if self.trees is None else self.trees.cpuset
        self._bound.clear()
        if tree is None or self._dry_run:
            return
        held = originals.cpus(self._journal, tree.root)
        if held:
            cpuset.apply(tree, cpuset.plan(cpuset.observe(tree), held, None))
            originals.forget_cpus(self._journal, tree.root)

    def idle(self) -> None:
        """Best-effort work runs only when nobody else wants to, where the kernel can do that."""
        if self.trees is None or not self._use_idle or self._dry_run:
            return
        cpu = self.trees.cpu
        now = cpu_idle.observe(cpu)
        if now is None or now.idle == 1:
            return
        held = originals.idles(self._journal, cpu.root).get(BE_ROOT)
        if held is None:
            originals.keep_idle(self._journal, cpu.root, now)
            held = now
        else:
            self.drift += 1
        wanted = cpu_idle.Idle(1, held.weight)
        cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, now, wanted))

    def in_force(self) -> int:
        """The milli of the best-effort root's quota, whoever set it; -1: no limit."""
        root = None if self.trees is None else cpu_quota.read(self.trees.cpu, BE_ROOT)
        return cpu_quota.UNLIMITED if root is None else root.milli

    def release(self) -> list[str]:
        """Every original back, once: then nothing is written; what the kernel refused."""
        self._written.clear()
        self._bound.clear()
        if self.trees is None or self._dry_run:
            return []
        return originals.release(self.trees, self._journal)

    def _is_original(self, found: GroupQuota, held: dict[Parts, GroupQuota]) -> bool:
        """Not kept yet, or a child that somebody else has written since."""
        if found.group not in held:
            return True
        return found.group != BE_ROOT and found != self._written.get(found.group, found)

    def _cpus_before(self, root: str, observed: Sequence[cpuset.GroupCpus]) -> dict[Parts, Cpus]:
        """The CPU sets before ours; those that were not kept yet are kept now.

        A child that its owner has written since keeps the owner's value; one that was made while
        the root was bound has only what it found there, so it gets what the root had.
        """
        held = originals.cpus(self._journal, root)
        whole = cpuset.inherited(observed, held)
        fresh = [
            whole.get(found.group, found)
            for found in observed
            if found.group not in held
            or (found.group != BE_ROOT and found.cpus != self._bound.get(found.group, found.cpus))
        ]
        originals.keep_cpus(self._journal, root, fresh)
        return held | {found.group: found.cpus for found in fresh}
