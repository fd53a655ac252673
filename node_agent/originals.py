"""Undo: what the knobs said before the agent's first write, kept in the journal, and given back.

`node_agent.obey` records and releases while it runs; `slackwater node release-all` releases what a
crashed agent left. A value is in the journal before the kernel hears of another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from node_agent.actuators import cpu_idle, cpu_quota, cpuset, evict
from node_agent.actuators.beneath import Parts, safe_parts
from node_agent.actuators.cpu_idle import Idle
from node_agent.actuators.cpu_quota import GroupQuota
from node_agent.actuators.cpuset import Cpus
from node_agent.actuators.failure import ActuatorFailed
from node_agent.actuators.subtree import BE_ROOT, Subtree
from node_agent.cgroup.layout import Layout, LayoutError
from node_agent.journal import Journal

QUOTA, IDLE, CPUSET = "cpu_quota", "cpu_idle", "cpuset"
WORD_BITS = 32  # CPUs are kept as a bit mask, in words that JSON can say
_ROOT_NAME = "."
Row = tuple[str, str, dict[str, int]]
"""(knob, group, values) as the journal keeps them."""


@dataclass(frozen=True, slots=True)
class Trees:
    """The best-effort subtree in the hierarchies that are acted on; on pure v2 both are one."""

    cpu: Subtree
    unified: Subtree | None
    cpuset: Subtree | None = None  # None: this machine has no cpuset controller

    @property
    def root(self) -> str:
        """The best-effort root, from the hierarchies' root."""
        return self.cpu.root

    def close(self) -> None:
        """Give the descriptors back."""
        for tree in {id(tree): tree for tree in (self.cpu, self.unified, self.cpuset)}.values():
            if tree is not None:
                tree.close()


def open_trees(layout: Layout, root: str) -> Trees:
    """The best-effort subtree on this machine. Raises LayoutError without a cpu controller."""
    cpu, unified = layout.hierarchy("cpu"), layout.hierarchy("unified")
    if cpu is None:
        raise LayoutError("no cpu controller is mounted; nothing can be suppressed here")
    tree = Subtree(cpu.mount, cpu.version, root)
    if unified is None or unified.mount == cpu.mount:
        whole = tree if cpu.version == 2 else None
    else:
        whole = Subtree(unified.mount, 2, root)
    cpus = layout.hierarchy("cpuset")
    if cpus is None:
        return Trees(tree, whole)
    shared = next((t for t, at in ((tree, cpu), (whole, unified)) if at == cpus), None)
    return Trees(tree, whole, shared or Subtree(cpus.mount, cpus.version, root))


def quotas(journal: Journal, root: str) -> dict[Parts, GroupQuota]:
    """Original bandwidths, by group."""
    found: dict[Parts, GroupQuota] = {}
    for name, values in journal.originals(root, QUOTA).items():
        group = _group(name)
        found[group] = GroupQuota(
            group, values["quota_us"], values["period_us"], values.get("burst_us")
        )
    return found


def keep_quotas(journal: Journal, root: str, found: Sequence[GroupQuota]) -> None:
    """Record bandwidths as originals."""
    journal.keep_originals(root, [_quota_row(each) for each in found])


def forget_gone(journal: Journal, cpu: Subtree) -> None:
    """Drop the originals of groups that no longer exist, so that the state stays small."""
    for knob in (QUOTA, IDLE):
        for group in [_group(name) for name in journal.originals(cpu.root, knob)]:
            if group != BE_ROOT and not cpu.exists(group):
                journal.forget(cpu.root, knob, _name(group))


def idles(journal: Journal, root: str) -> dict[Parts, Idle]:
    """Originals of `cpu.idle` with the weight, by group: the root's, and those of pods on their
    way out.
    """
    found = journal.originals(root, IDLE).items()
    return {_group(name): Idle(values["idle"], values["weight"]) for name, values in found}


def keep_idle(journal: Journal, root: str, found: Idle) -> None:
    """Record the root's as original."""
    journal.keep_originals(root, [_idle_row(BE_ROOT, found)])


def keep_brakes(
    journal: Journal, root: str, lift: Sequence[evict.Brakes]
) -> list[tuple[str, evict.Brakes]]:
    """Record what an eviction is about to lift and nobody has kept yet; (knob, brakes) of that."""
    quota, idle = quotas(journal, root), idles(journal, root)
    rows: list[Row] = []
    fresh: list[tuple[str, evict.Brakes]] = []
    for found in lift:
        if found.quota is not None and found.group not in quota:
            rows.append(_quota_row(found.quota))
            fresh.append((QUOTA, found))
        if found.idle is not None and found.group not in idle:
            rows.append(_idle_row(found.group, found.idle))
            fresh.append((IDLE, found))
    journal.keep_originals(root, rows)
    return fresh


def forget_brakes(journal: Journal, cpu: Subtree, kept: Sequence[tuple[str, evict.Brakes]]) -> None:
    """The eviction has put them back, or the group is gone: what its owner writes next is his."""
    for knob, found in kept:
        if found.group == BE_ROOT:
            continue
        if knob == QUOTA:
            back = cpu_quota.read(cpu, found.group) in (None, found.quota)
        else:
            back = cpu_idle.observe(cpu, found.group) in (None, found.idle)
        if back:
            journal.forget(cpu.root, knob, _name(found.group))


def cpus(journal: Journal, root: str) -> dict[Parts, Cpus]:
    """Original CPU sets, by group."""
    return {
        _group(name): _cpus_of(words) for name, words in journal.originals(root, CPUSET).items()
    }


def keep_cpus(journal: Journal, root: str, found: Sequence[cpuset.GroupCpus]) -> None:
    """Record CPU sets as originals."""
    journal.keep_originals(root, [(CPUSET, _name(each.group), _words(each.cpus)) for each in found])


def forget_gone_cpus(journal: Journal, tree: Subtree) -> None:
    """Drop the CPU sets of groups that no longer exist."""
    for group in cpus(journal, tree.root):
        if group != BE_ROOT and not tree.exists(group):
            journal.forget(tree.root, CPUSET, _name(group))


def forget_cpus(journal: Journal, root: str) -> None:
    """They were given back: what is found next time is an original again."""
    if journal.originals(root, CPUSET):
        journal.append({"kind": "released", "root": root, "knob": CPUSET})


def release(trees: Trees, journal: Journal) -> list[str]:
    """Give every original back; the reasons of what the kernel refused (kept in the journal)."""
    refused = []
    for knob, undo in ((CPUSET, _release_cpus), (QUOTA, _release_quota), (IDLE, _release_idle)):
        if not journal.originals(trees.root, knob):
            continue
        try:
            undo(trees, journal)
        except ActuatorFailed as error:
            refused.append(error.reason)
        else:
            journal.append({"kind": "released", "root": trees.root, "knob": knob})
    return refused


def _release_quota(trees: Trees, journal: Journal) -> None:
    """On v2 the root alone is observed; an eviction may have lifted the quotas of a pod too."""
    cpu, kept = trees.cpu, quotas(journal, trees.root)
    observed = cpu_quota.observe(cpu)
    more = sorted(kept.keys() - {found.group for found in observed})
    there = [found for group in more if (found := cpu_quota.read(cpu, group)) is not None]
    cpu_quota.apply(cpu, cpu_quota.plan([*observed, *there], kept, None))


def _release_cpus(trees: Trees, journal: Journal) -> None:
    tree = trees.cpuset
    if tree is not None:
        cpuset.apply(tree, cpuset.plan(cpuset.observe(tree), cpus(journal, tree.root), None))


def _release_idle(trees: Trees, journal: Journal) -> None:
    cpu = trees.cpu
    for group, original in idles(journal, cpu.root).items():
        now = cpu_idle.observe(cpu, group)
        if now is not None:
            cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, now, original), group)


def _quota_row(found: GroupQuota) -> Row:
    values = {"quota_us": found.quota_us, "period_us": found.period_us}
    if found.burst_us is not None:
        values["burst_us"] = found.burst_us
    return QUOTA, _name(found.group), values


def _idle_row(group: Parts, found: Idle) -> Row:
    return IDLE, _name(group), {"idle": found.idle, "weight": found.weight}


def _name(group: Parts) -> str:
    """A group as the journal says it."""
    return "/".join(group) or _ROOT_NAME


def _group(name: str) -> Parts:
    """A group by its name in the journal."""
    return BE_ROOT if name == _ROOT_NAME else safe_parts(name)


def _words(found: Cpus) -> dict[str, int]:
    """A CPU set as words of a bit mask, by place."""
    words: dict[str, int] = {}
    for cpu in found:
        place = str(cpu // WORD_BITS)
        words[place] = words.get(place, 0) | 1 << cpu % WORD_BITS
    return words


def _cpus_of(words: Mapping[str, int]) -> Cpus:
    found = (
        int(place) * WORD_BITS + bit
        for place, bits in words.items()
        for bit in range(WORD_BITS)
        if bits >> bit & 1
    )
    return tuple(sorted(found))
