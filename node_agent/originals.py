"""Undo: what the knobs said before the agent's first write, kept in the journal, and given back.

`node_agent.obey` records and releases while it runs; `slackwater node release-all` releases what a
crashed agent left. A value is in the journal before the kernel hears of another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from node_agent.actuators import cpu_idle, cpu_quota, cpuset
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
        group = BE_ROOT if name == _ROOT_NAME else safe_parts(name)
        found[group] = GroupQuota(
            group, values["quota_us"], values["period_us"], values.get("burst_us")
        )
    return found


def keep_quotas(journal: Journal, root: str, found: Sequence[GroupQuota]) -> None:
    """Record bandwidths as originals."""
    for each in found:
        values = {"quota_us": each.quota_us, "period_us": each.period_us}
        if each.burst_us is not None:
            values["burst_us"] = each.burst_us
        journal.original(root, QUOTA, "/".join(each.group) or _ROOT_NAME, values)


def forget_gone(journal: Journal, cpu: Subtree) -> None:
    """Drop the originals of groups that no longer exist, so that the state stays small."""
    for group in quotas(journal, cpu.root):
        if group != BE_ROOT and not cpu.exists(group):
            journal.forget(cpu.root, QUOTA, "/".join(group))


def idle(journal: Journal, root: str) -> Idle | None:
    """The original of `cpu.idle`, if it was ever written."""
    values = journal.originals(root, IDLE).get(_ROOT_NAME)
    return None if values is None else Idle(values["idle"], values["weight"])


def keep_idle(journal: Journal, root: str, found: Idle) -> None:
    """Record it as original."""
    journal.original(root, IDLE, _ROOT_NAME, {"idle": found.idle, "weight": found.weight})


def cpus(journal: Journal, root: str) -> dict[Parts, Cpus]:
    """Original CPU sets, by group."""
    return {
        BE_ROOT if name == _ROOT_NAME else safe_parts(name): _cpus_of(words)
        for name, words in journal.originals(root, CPUSET).items()
    }


def keep_cpus(journal: Journal, root: str, found: Sequence[cpuset.GroupCpus]) -> None:
    """Record CPU sets as originals."""
    for each in found:
        journal.original(root, CPUSET, "/".join(each.group) or _ROOT_NAME, _words(each.cpus))


def forget_gone_cpus(journal: Journal, tree: Subtree) -> None:
    """Drop the CPU sets of groups that no longer exist."""
    for group in cpus(journal, tree.root):
        if group != BE_ROOT and not tree.exists(group):
            journal.forget(tree.root, CPUSET, "/".join(group))


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
    cpu = trees.cpu
    cpu_quota.apply(cpu, cpu_quota.plan(cpu_quota.observe(cpu), quotas(journal, cpu.root), None))


def _release_cpus(trees: Trees, journal: Journal) -> None:
    tree = trees.cpuset
    if tree is not None:
        cpuset.apply(tree, cpuset.plan(cpuset.observe(tree), cpus(journal, tree.root), None))


def _release_idle(trees: Trees, journal: Journal) -> None:
    cpu = trees.cpu
    now, original = cpu_idle.observe(cpu), idle(journal, cpu.root)
    if now is not None and original is not None:
        cpu_idle.apply(cpu, cpu_idle.plan(cpu.version, now, original))


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
